"""Puzzles out of recorded sessions: one command answers each, and a program that folds by hand says the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.importers import import_file
from tests.support.command import Run, running
from tests.support.paths import DATA

LOCOMO = DATA / "locomo" / "locomo7_dev.json"
TAU = DATA / "tau-bench" / "gpt4o_airline_dev.jsonl"
BUDGET = 2_000


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    made: dict[Path, Path] = {}
    for source in (LOCOMO, TAU):
        if source.is_file():
            made[source] = tmp_path_factory.mktemp("store") / "store"
            with Memory(made[source], window_tokens=BUDGET) as memory:
                import_file(memory, source)
    return made


def exported(store: Path, path: Path) -> list[dict[str, Any]]:
    """Return the events as the export tells them: no fold of refold takes part in what is made of these."""
    with Memory(store, readonly=True) as memory:
        memory.export(path)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:-1]]


def said_in(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the messages of each conversation, in order."""
    said: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["kind"] == "message_appended":
            said.setdefault(event["stream"].partition("/")[2], []).append(event)
    return said


def groups_of(messages: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return messages by groups: an answer is of the group of the last call with its id."""
    groups: list[list[dict[str, Any]]] = []
    makers: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        event = message["event"]
        answers = event.get("answers")
        if answers is not None and answers in makers:
            makers[answers].append(message)
            continue
        groups.append([message])
        makers |= dict.fromkeys(event.get("call_ids", ()), groups[-1])
    return groups


def fifo(messages: list[dict[str, Any]], budget: int) -> list[int]:
    """Return the seqs that a first-in, first-out window of groups holds at the end, pinned ones included."""
    live: list[list[dict[str, Any]]] = []
    for end in range(1, len(messages) + 1):
        arrived = messages[end - 1]
        answers = arrived["event"].get("answers")
        home = next((group for group in reversed(live) if answers in group[0]["event"].get("call_ids", ())), None)
        if answers is not None and home is None:
            continue
        if home is None:
            live.append([arrived])
        else:
            home.append(arrived)
        for group in list(live):
            if sum(each["event"]["tokens"] for kept in live for each in kept) <= budget:
                break
            if not any(each["event"]["pinned"] for each in group):
                live.remove(group)
    return sorted(each["seq"] for group in live for each in group)


# The puzzles: of each, what to ask on the command line, and what the truth is, out of the events of an export.


def other_budget(events: list[dict[str, Any]]) -> tuple[list[str], Any, Callable[[Any], Any]]:
    """What would the first conversation show a model today, with a quarter of the budget?"""
    name, messages = min(said_in(events).items())
    arguments = ["what-if", name, "--window-tokens", "500"]
    return arguments, fifo(messages, 500), lambda answer: answer["window"]


def half_for_recalls(events: list[dict[str, Any]]) -> tuple[list[str], Any, Callable[[Any], Any]]:
    """What would be left if half of the budget went to what a search finds?"""
    name, messages = max(said_in(events).items())
    arguments = ["what-if", name, "--eviction", "fifo-recall"]
    return arguments, fifo(messages, BUDGET // 2), lambda answer: answer["window"]


def which_windows(events: list[dict[str, Any]]) -> tuple[list[str], Any, Callable[[Any], Any]]:
    """Whose windows would have held more with twice the budget, and what?"""
    truth = {
        name: sorted(set(fifo(messages, 2 * BUDGET)) - set(fifo(messages, BUDGET)))
        for name, messages in said_in(events).items()
    }
    truth = {name: added for name, added in truth.items() if added}
    arguments = ["what-if", "--window-tokens", str(2 * BUDGET)]
    return arguments, truth, lambda answer: {each["conversation"]: each["added"] for each in answer["windows"]}


def never_said(events: list[dict[str, Any]]) -> tuple[list[str], Any, Callable[[Any], Any]]:
    """What would the window be if the last message had never been said?"""
    name, messages = min(said_in(events).items())
    arguments = ["what-if", name, "--without", str(messages[-1]["seq"])]
    return arguments, fifo(messages[:-1], BUDGET), lambda answer: answer["window"]


def called_again(events: list[dict[str, Any]]) -> tuple[list[str], Any, Callable[[Any], Any]]:
    """In 300 tokens, which calls would have been made again, after the first had left the window?"""
    truth: list[tuple[str, int, int]] = []
    for name, messages in said_in(events).items():
        made: dict[str, int] = {}
        for place, message in enumerate(messages):
            for call in message["event"].get("tool_calls") or ():
                key = json.dumps([call["function"]["name"], json.loads(call["function"]["arguments"])], sort_keys=True)
                if key in made and made[key] not in fifo(messages[:place], 300):
                    truth.append((name, made[key], message["seq"]))
                made[key] = message["seq"]
    arguments = ["what-if", "--window-tokens", "300"]
    return (
        arguments,
        sorted(truth),
        lambda answer: sorted((each["conversation"], each["seq"], each["needed_seq"]) for each in answer["regret"]),
    )


def as_of_that_day(events: list[dict[str, Any]]) -> tuple[list[str], Any, Callable[[Any], Any]]:
    """What was the last thing that had been said on the evening of the third session?"""
    name, messages = min(said_in(events).items())
    times = sorted({message["occurred_ns"] for message in messages})
    moment = times[len(times) // 3]
    then = [message for message in messages if message["occurred_ns"] <= moment]
    arguments = ["show", name, "--at-occurred", text_of_time(moment)]
    return arguments, fifo(then, BUDGET), lambda answer: [each["seq"] for each in answer["messages"]]


def who_had_begun(events: list[dict[str, Any]]) -> tuple[list[str], Any, Callable[[Any], Any]]:
    """Of the last conversation, what had happened before the first message of its second day?"""
    name, messages = max(said_in(events).items())
    times = sorted({message["occurred_ns"] for message in messages})
    then = [message for message in messages if message["occurred_ns"] <= times[1]]
    arguments = ["show", name, "--at-occurred", text_of_time(times[1])]
    return arguments, fifo(then, BUDGET), lambda answer: [each["seq"] for each in answer["messages"]]


def text_of_time(time_ns: int) -> str:
    """Return a time as the command line takes it."""
    import datetime as dates

    return dates.datetime.fromtimestamp(time_ns // 10**9, dates.UTC).isoformat()


PUZZLES = {
    "another budget": (LOCOMO, other_budget),
    "half for recalls": (LOCOMO, half_for_recalls),
    "whose windows": (LOCOMO, which_windows),
    "never said": (TAU, never_said),
    "called again": (TAU, called_again),
    "as of that day": (LOCOMO, as_of_that_day),
    "the second day": (LOCOMO, who_had_begun),
}


@pytest.mark.parametrize("puzzle", PUZZLES)
def test_one_command_says_what_folding_by_hand_says(
    puzzle: str, stores: dict[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    source, pose = PUZZLES[puzzle]
    if source not in stores:
        pytest.skip(f"{source.name} is not on this machine")
    events = exported(stores[source], tmp_path / "export.jsonl")
    arguments, truth, answer_in = pose(events)
    refold: Run = running(monkeypatch, capfd)
    answer = refold(*arguments, "--db", str(stores[source]), "--json").json
    assert truth
    assert answer_in(answer) == truth
