"""Puzzles of a recorded session, each answered by one command, and checked by a program that finds the truth otherwise.

The session is one of tau-bench: a model changes reservations of a flight by tools. The truth is read from its file.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from refold import Memory
from tests.support.command import Run, running
from tests.support.paths import DATA

AIRLINE = DATA / "tau-bench" / "gpt4o_airline_dev.jsonl"
LINE = 3
BUDGET = 900

if not AIRLINE.is_file():
    pytest.skip("the tau-bench trajectories are not on this machine", allow_module_level=True)


class Told(NamedTuple):
    """The store, the messages of the file with their tokens, and the seqs and ids of what was written beside them."""

    path: Path
    messages: list[dict[str, Any]]
    tokens: list[int]
    seqs: list[int]
    calls: list[tuple[int, str]]  # The place of each look at a reservation, and which one.
    things: dict[str, Any]

    @property
    def code(self) -> str:
        return self.calls[0][1]

    def brought(self, text: str) -> int:
        """The place of the first answer of a tool that holds a text."""
        places = enumerate(self.messages)
        return next(place for place, each in places if each["role"] == "tool" and text in str(each["content"]))


def _tokens(message: dict[str, Any]) -> int:
    return 1 + len(str(message.get("content") or "")) // 4


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    path = tmp_path_factory.mktemp("puzzles") / "store"
    source = json.loads(AIRLINE.read_text(encoding="utf-8").splitlines()[LINE])["traj"][1:]
    seqs: list[int] = []
    calls: list[tuple[int, str]] = []
    things: dict[str, Any] = {}
    with Memory(path) as memory:
        chat = memory.conversation("flight", project="airline", window_tokens=BUDGET)
        project = memory.project("airline")
        for place, each in enumerate(source):
            call_ids = {"tool_call_id": each["tool_call_id"]} if each["role"] == "tool" else {}
            made = {"tool_calls": each["tool_calls"]} if each.get("tool_calls") else {}
            message = chat.append(each["role"], each["content"], tokens=_tokens(each), **made, **call_ids)
            seqs.append(message.seq)
            for call in each.get("tool_calls") or ():
                if call["function"]["name"] == "get_reservation_details":
                    code = json.loads(call["function"]["arguments"])["reservation_id"]
                    calls.append((place, code))
                    with memory.acting("tool:get_reservation_details", cause=message):
                        chat.scratchpad.set("reservation", code)
                        project.add(f"They looked at reservation {code}.", source=message)
        first, *_, unused = project.list()
        things["recalled"] = project.search(first.content, top_k=1)[0].entry.id
        project.recall(first.content, top_k=1, conversation=chat)
        things["answer"] = chat.append("assistant", "That one.", tokens=3).seq
        things["unused"] = unused.id
        tastes = memory.project("tastes")
        pair = [tastes.add(text, vector=[1.0, place / 99]) for place, text in enumerate(("An aisle.", "The aisle."))]
        tastes.compact(threshold=0.99)
        things["merged"] = next(each.id for each in pair if tastes.get(each.id) is None)
        skills = [(name, f"Do {name}. " + "Step by step. " * 400, 2.0 - rank / 9) for rank, name in enumerate("abc")]
        named = [(f"skill-{name}", body, score) for name, body, score in skills]
        things["context"] = memory.show(memory.context(chat, query="aisle", budget=1_500, skills=named))
        things["plan"] = memory.rebuild(things["context"]).context.text
        memory.files().create("/memories/trip.md", "Trip\nto Denver\n")
        with memory.acting("tool:memory", cause=seqs[0]):
            memory.files().str_replace("/memories/trip.md", "Denver", "Houston")
        things["edit"] = memory.head
        things["erased"] = seqs[1]
        things["receipt"] = memory.erase([seqs[1]])
    return Told(path, source, [_tokens(each) for each in source], seqs, calls, things)


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], told: Told) -> Run:
    run = running(monkeypatch, capfd)
    monkeypatch.setenv("REFOLD_DB", str(told.path))
    return run


def pushed_out(told: Told, place: int) -> int:
    """The seq of the message with which one left: whole groups, a call with its answers, the oldest first."""
    groups: list[list[int]] = []
    owner: dict[str, int] = {}
    held: list[list[int]] = []
    for at, each in enumerate(told.messages):
        if each["role"] == "tool" and each["tool_call_id"] in owner:
            groups[owner[each["tool_call_id"]]].append(at)
        else:
            groups.append([at])
            held.append(groups[-1])
        for call in each.get("tool_calls") or ():
            owner[call["id"]] = len(groups) - 1
        while sum(told.tokens[member] for group in held for member in group) > BUDGET:
            if place in held.pop(0):
                return told.seqs[at]
    raise AssertionError(place)


def left(answer: Any) -> int:
    return int(next(step["seq"] for step in answer["steps"] if step["relation"] == "left"))


def turns_with(told: Told, place: int) -> list[int]:
    """The seqs of the answers of the assistant between a message and that which pushed it out, both included."""
    last = pushed_out(told, place)
    spoken = zip(told.seqs, told.messages, strict=True)
    return [seq for seq, each in spoken if each["role"] == "assistant" and told.seqs[place] < seq <= last]


class Puzzle(NamedTuple):
    """A question, the command that answers it, and whether its answer is the truth."""

    command: Callable[[Told], tuple[object, ...]]
    holds: Callable[[Told, Any], bool]


PUZZLES: dict[str, Puzzle] = {
    "why does the model not know the first reservation any more": Puzzle(
        lambda told: ("why", told.seqs[told.brought(told.code)]),
        lambda told, answer: left(answer) == pushed_out(told, told.brought(told.code)) and not answer["is_there"],
    ),
    "since when is the first message of the customer out of sight": Puzzle(
        lambda told: ("bisect", "flight", "--window-lacks", told.messages[0]["content"]),
        lambda told, answer: answer["seq"] == pushed_out(told, 0),
    ),
    "which reservations did the scratchpad name, one after the other": Puzzle(
        lambda _: ("blame", "reservation", "flight"),
        lambda told, answer: [each["value"] for each in answer] == [code for _, code in told.calls],
    ),
    "which call overwrote the second reservation": Puzzle(
        lambda _: ("blame", "reservation", "flight"),
        lambda told, answer: (
            answer[2]["cause"] == told.seqs[told.calls[2][0]] and answer[2]["actor"] == "tool:get_reservation_details"
        ),
    ),
    "in which turn of the customer was it written": Puzzle(
        lambda _: ("blame", "reservation", "flight"),
        lambda told, answer: (
            answer[-1]["turn"]
            == max(
                seq
                for seq, each in zip(told.seqs, told.messages, strict=True)
                if each["role"] == "user" and seq < answer[-1]["seq"]
            )
        ),
    ),
    "when did the scratchpad come to name the last reservation": Puzzle(
        lambda told: ("bisect", "flight", "--key", f"reservation={told.calls[-1][1]}"),
        lambda told, answer: told.seqs[told.calls[-1][0]] < answer["seq"] < told.seqs[told.calls[-1][0] + 1],
    ),
    "where does a memory come from": Puzzle(
        lambda told: ("why", f"They looked at reservation {told.code}."),
        lambda told, answer: (
            {"cause", "source"}
            <= {step["relation"] for step in answer["steps"] if step["seq"] == told.seqs[told.calls[0][0]]}
        ),
    ),
    "where did the memory go that was merged": Puzzle(
        lambda told: ("why", told.things["merged"]),
        lambda _, answer: not answer["is_there"] and "merged into memory" in answer["steps"][-1]["text"],
    ),
    "was this memory ever recalled": Puzzle(
        lambda told: ("influence", told.things["unused"]),
        lambda told, answer: told.things["unused"] == told.things["recalled"] or answer["turns"] == [],
    ),
    "what was said after a memory was recalled": Puzzle(
        lambda told: ("influence", told.things["recalled"]),
        lambda told, answer: told.things["answer"] in [turn["answer"] for turn in answer["turns"]],
    ),
    "why was the third skill not before the model": Puzzle(
        lambda told: ("why", "skill-c", "--missing-from", told.things["context"]),
        lambda told, answer: "skill 3 of 3" in answer["steps"][-1]["text"] and "Do c." not in told.things["plan"],
    ),
    "who wrote the second line of a file, and what was there before": Puzzle(
        lambda _: ("blame", "/memories/trip.md", "--line", 2),
        lambda told, answer: (
            [each["value"] for each in answer] == ["to Denver", "to Houston"]
            and (answer[-1]["seq"], answer[-1]["turn"]) == (told.things["edit"], told.seqs[0])
        ),
    ),
    "which answers had seen what was erased": Puzzle(
        lambda told: ("influence", told.things["erased"]),
        lambda told, answer: (
            [turn["answer"] for turn in answer["turns"]] == turns_with(told, 1)
            and told.things["receipt"].turns == len(answer["turns"])
        ),
    ),
    "what became of what was erased": Puzzle(
        lambda told: ("why", told.things["erased"]),
        lambda told, answer: (
            "erased" in [step["relation"] for step in answer["steps"]]
            and str(told.messages[1]["content"])[:20] not in json.dumps(answer)
        ),
    ),
}


@pytest.mark.parametrize("question", PUZZLES)
def test_a_command_answers_the_puzzle(told: Told, refold: Run, question: str) -> None:
    puzzle = PUZZLES[question]
    ended = refold(*puzzle.command(told), "--json")
    assert ended.code == 0, ended.err
    assert puzzle.holds(told, ended.json), ended.out
    assert refold(*puzzle.command(told)).code == 0
