"""Checkpoints of LangGraph: judged by its conformance suite, and equal to those of its own checkpointer."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph

from refold import InvalidInput, LimitExceeded, Memory
from refold.adapters import keys, langchain_messages, langgraph, langgraph_items
from refold.adapters.langgraph import RefoldSaver
from tests.support.memories import assert_sound, in_batch, interrupt, is_stored, refused, remembering
from tests.support.seams import counted_reads

CODE = "the harbour code is 7391"
CHANNELS = ("messages", "step", "notes", "odd\0channel", "")


def config(thread: str = "t", ns: str = "", cid: str | None = None, **more: Any) -> RunnableConfig:
    asked = {"thread_id": thread, "checkpoint_ns": ns} | ({} if cid is None else {"checkpoint_id": cid})
    return {"configurable": asked | more}


REMEMBERED = [
    (langchain_messages, "_SEEN_COUNT_MAX"),
    (langchain_messages, "_LISTS_BYTES_MAX"),
    (langgraph, "_HELD_COUNT_MAX"),
    (langgraph, "_VALUES_COUNT_MAX"),
    (langgraph_items, "_LISTS_COUNT_MAX"),
    (langgraph_items, "LIST_COUNT"),
    (langgraph, "LIST_COUNT"),
]
"""How much a saver remembers, and how long a list of messages is that its checkpoints share."""


def cid_of(number: int) -> str:
    return str(UUID(int=number))


def checkpoint(number: int, values: Mapping[str, Any], versions: Mapping[str, Any]) -> Checkpoint:
    return empty_checkpoint() | {
        "id": cid_of(number),
        "channel_values": dict(values),
        "channel_versions": dict(versions),
    }


def grow(saver: RefoldSaver, messages: list[AnyMessage], thread: str = "t", parent: str | None = None) -> None:
    """Put a checkpoint for each message, which adds it to those before."""
    start = 0 if parent is None else UUID(parent).int
    for number in range(len(messages)):
        version = f"{start + number + 1:032}.0"
        step = checkpoint(start + number + 1, {"messages": messages[: number + 1]}, {"messages": version})
        made = saver.put(config(thread, cid=parent), step, {"step": number}, {"messages": version})
        parent = made["configurable"]["checkpoint_id"]


def said(number: int, text: str = "") -> AnyMessage:
    kind = HumanMessage if number % 2 else AIMessage
    return kind(f"turn {number} {text}", id=f"m{number}")


def shown(memory: Memory, thread: str = "t") -> list[Any]:
    return [message.content for message in memory.conversation(f"langgraph/{thread}").window()]


def test_the_conformance_suite_finds_every_capability_and_no_failure() -> None:
    @checkpointer_test(name="RefoldSaver")
    async def registered() -> Any:
        with Memory() as memory:
            yield RefoldSaver(memory)
            assert_sound(memory)

    report = asyncio.run(validate(registered))
    assert [name for name, result in report.results.items() if not result.detected or result.tests_failed] == []
    assert len(report.results) == 8
    assert sum(result.tests_passed for result in report.results.values()) == 81


def comparable(found: CheckpointTuple | None) -> Any:
    return found and (
        found.config["configurable"],
        found.checkpoint,
        found.metadata,
        found.parent_config,
        found.pending_writes,
    )


class Steps:
    """Random steps over a few threads, done by two checkpointers alike."""

    def __init__(self, memory: Memory, seed: int) -> None:
        self.random = Random(seed)
        self.savers, self.model = [RefoldSaver(memory), RefoldSaver(memory)], InMemorySaver()
        self.made: list[tuple[str, str, str]] = []
        self.versions: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.values: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.number = 0

    @property
    def ours(self) -> RefoldSaver:
        """One of two, each of which remembers what the other may have changed."""
        return self.savers[self.number // 3 % 2]

    def value(self, channel: str, before: Any) -> Any:
        random = self.random
        if channel != "messages":
            return random.choice([None, random.random(), b"\0\xff", "text", ["a", {"b": (1, 2)}], {1, 2}, said(9)])
        messages = list(before or [])
        match random.choice(["add", "add", "add", "answer", "edit", "remove", "trim", "same", "none"]):
            case "add":
                messages.append(said(self.number))
            case "answer":
                call = {"name": "port", "args": {"n": self.number}, "id": f"c{self.number}"}
                messages += [
                    AIMessage("", tool_calls=[call], id=f"a{self.number}"),
                    ToolMessage("5", tool_call_id=call["id"]),
                ]
            case "edit" if messages:
                place = random.randrange(len(messages))
                messages[place] = messages[place].model_copy(update={"content": f"edit {self.number}"})
            case "remove" if messages:
                del messages[random.randrange(len(messages))]
            case "trim":
                messages = [SystemMessage(f"summary {self.number}"), *messages[-2:]]
            case "none":
                return "no message"
            case _:
                pass
        return messages

    def put(self) -> None:
        random = self.random
        self.number += 1
        thread, ns = random.choice(["a", "b", "c" * 500, ""]), random.choice(["", "", "sub:1", "n" * 700])
        within = [place for place in self.made if place[:2] == (thread, ns)]
        # Mostly the newest one, sometimes an older one or none.
        parent = (within[-1] if random.random() < 0.8 else random.choice(within)) if within else None
        versions, values = (dict(self.versions[parent]), dict(self.values[parent])) if parent else ({}, {})
        new: dict[str, str] = {}
        for channel in random.sample(CHANNELS, random.randrange(3)):
            new[channel] = versions[channel] = self.model.get_next_version(versions.get(channel), None)
            if random.random() < 0.1:
                values.pop(channel, None)
            else:
                values[channel] = self.value(channel, values.get(channel) if channel in values else None)
        values = {
            channel: [] if value == "no message" and channel != "messages" else value
            for channel, value in values.items()
        }
        made = (thread, ns, cid_of(self.number))
        step = checkpoint(self.number, values, versions)
        metadata: Any = {"source": "loop", "step": self.number % 5, "run_id": f"r{self.number % 3}"}
        for saver in (self.ours, self.model):
            saver.put(config(thread, ns, parent[2] if parent else None), step, metadata, dict(new))
        self.made.append(made)
        self.versions[made], self.values[made] = versions, values

    def put_writes(self) -> None:
        random = self.random
        if not self.made:
            return
        place = random.choice(self.made[-3:])
        channels = random.choices(
            ["messages", "step", "__error__", "__interrupt__", "__resume__"], k=random.randrange(4)
        )
        writes = [(channel, [self.number, random.random()]) for channel in channels]
        task, path = random.choice(["task-1", "task-2", ""]), random.choice(["", "~a", "~b"])
        for saver in (self.ours, self.model):
            saver.put_writes(config(*place), writes, task, path)

    def delete(self) -> None:
        thread = self.random.choice(["a", "b", "c" * 500, "", "never"])
        for saver in (self.ours, self.model):
            saver.delete_thread(thread)
        self.made = [place for place in self.made if place[0] != thread]

    def compare(self) -> None:
        random = self.random
        thread, ns = random.choice(["a", "b", "c" * 500, "", "never"]), random.choice(["", "sub:1", "n" * 700])
        newest = config(thread, ns)
        assert comparable(self.ours.get_tuple(newest)) == comparable(self.model.get_tuple(newest))
        one = config(thread, ns, cid_of(random.randrange(self.number + 2)))
        assert comparable(self.ours.get_tuple(one)) == comparable(self.model.get_tuple(one))
        options: dict[str, Any] = {
            "filter": random.choice([None, {"step": 2}, {"step": 1, "run_id": "r1"}, {"never": None}]),
            "before": random.choice([None, one]),
            "limit": random.choice([None, 0, 2, 50]),
        }
        ours, model = ([*map(comparable, saver.list(newest, **options))] for saver in (self.ours, self.model))
        assert ours == model
        asked: dict[str, Any] = {"config": random.choice([newest, one]), "channels": ["messages", "step", "never"]}
        assert self.ours.get_delta_channel_history(**asked) == self.model.get_delta_channel_history(**asked)


@pytest.mark.parametrize("seed", range(6))
def test_it_does_what_langgraphs_own_checkpointer_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four hundred random steps, over threads and namespaces of any names, while much or little is remembered."""
    for module, name in REMEMBERED if seed % 2 else ():
        monkeypatch.setattr(module, name, 2)
    with remembering() as memory:
        steps = Steps(memory, seed)
        for _ in range(400):
            draw = steps.random.random()
            (
                steps.put
                if draw < 0.5
                else steps.put_writes
                if draw < 0.75
                else steps.compare
                if draw < 0.99
                else steps.delete
            )()
        for thread in ("a", "b", "c" * 500, ""):
            ours, model = (
                sorted(
                    map(comparable, saver.list({"configurable": {"thread_id": thread}})),
                    key=lambda found: found[1]["id"],
                )
                for saver in (steps.ours, steps.model)
            )
            assert ours == model
        everything = [found.config["configurable"]["checkpoint_id"] for found in steps.ours.list(None)]
        assert everything == sorted(everything, reverse=True)
        assert {found.config["configurable"]["thread_id"] for found in steps.ours.list(None)} <= {
            "a",
            "b",
            "c" * 500,
            "",
        }
        assert len(everything) == len(steps.made)


def test_a_window_shows_what_the_newest_checkpoint_holds(memory: Memory) -> None:
    """Edits, removals and earlier parents, in any order, with calls of tools among them."""
    steps = Steps(memory, 11)
    for _ in range(300):
        steps.number += 1
        within = steps.made
        parent = (within[-1] if steps.random.random() < 0.7 else steps.random.choice(within)) if within else None
        before = steps.values[parent]["messages"] if parent else []
        messages = steps.value("messages", before)
        messages = before if messages == "no message" else messages
        version = f"{steps.number:032}.0"
        made = ("a", "", cid_of(steps.number))
        step = checkpoint(steps.number, {"messages": messages}, {"messages": version})
        steps.ours.put(config("a", "", parent[2] if parent else None), step, {}, {"messages": version})
        steps.made.append(made)
        steps.values[made] = {"messages": messages}
        calls = {call["id"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls}
        whole = [each for each in messages if not isinstance(each, ToolMessage) or each.tool_call_id in calls]
        assert shown(memory, "a") == [each.content for each in whole], f"step {steps.number}"
    assert_sound(memory)


@pytest.mark.slow
def test_a_message_is_kept_once_however_many_checkpoints_hold_it(tmp_path: Path) -> None:
    """A thousand messages in a thousand checkpoints: in SqliteSaver the same take 182 MB."""
    messages = [said(number, "lorem ipsum " * 16) for number in range(1_000)]
    with Memory(tmp_path / "store", durability="delayed") as memory:
        saver = RefoldSaver(memory)
        grow(saver, messages)
        found = saver.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == messages
        middle = saver.get_tuple(config(cid=cid_of(500)))
        assert middle is not None
        assert middle.checkpoint["channel_values"]["messages"] == messages[:500]
        assert shown(memory) == [message.content for message in messages]
        assert memory.head < 5_100
    assert sum(path.stat().st_size for path in (tmp_path / "store").iterdir() if path.name != "ballast") < 10_000_000


def test_messages_that_a_graph_changes_in_place_are_put_as_they_are_now(memory: Memory) -> None:
    saver = RefoldSaver(memory)
    messages = [said(number) for number in range(5)]
    grow(saver, messages)
    messages[1].content, messages[3].additional_kwargs["note"] = "changed", [1]
    more: Any = [*messages, said(5)]
    saver.put(config(cid=cid_of(5)), checkpoint(6, {"messages": more}, {"messages": "6"}), {}, {"messages": "6"})
    expected = [message.model_copy(deep=True) for message in more]
    messages[3].additional_kwargs["note"].append(2)
    for _ in range(2):
        found = saver.get_tuple(config())
        assert found is not None
        held = found.checkpoint["channel_values"]["messages"]
        assert held == expected
        held[3].additional_kwargs["note"].append(3)
        held[0].content = "of the reader"
    saver.put(config(cid=cid_of(6)), checkpoint(7, {"messages": more}, {"messages": "7"}), {}, {"messages": "7"})
    found = next(saver.list(config()))
    assert found.checkpoint["channel_values"]["messages"] == more
    assert shown(memory)[1] == "changed"


def test_old_messages_are_neither_dumped_nor_read_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory() as memory:
        saver = RefoldSaver(memory)
        messages = [said(number) for number in range(400)]
        grow(saver, messages[:1])
        saver.put(
            config(cid=cid_of(1)), checkpoint(2, {"messages": messages[:399]}, {"messages": "2"}), {}, {"messages": "2"}
        )
        dumped: list[Any] = []
        dumps = saver.serde.dumps_typed

        def counting(value: Any) -> tuple[str, bytes]:
            dumped.append(value)
            return dumps(value)

        monkeypatch.setattr(saver.serde, "dumps_typed", counting)
        reads = counted_reads(memory, monkeypatch)
        saver.put(
            config(cid=cid_of(2)), checkpoint(3, {"messages": messages}, {"messages": "3"}), {}, {"messages": "3"}
        )
        assert sum(isinstance(value, AIMessage | HumanMessage) for value in dumped) <= 2
        assert sum(reads) < 40


@pytest.mark.slow
def test_the_first_read_of_a_long_thread_reads_no_other_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(tmp_path / "store", durability="delayed") as memory:
        saver = RefoldSaver(memory)
        parent: str | None = None
        for number in range(1, 3_001):
            values = {"step": number, "messages": [said(number // 100)]}
            versions: dict[str, Any] = {"step": str(number), "messages": str(number // 100)}
            new: dict[str, Any] = versions if not number % 100 or number == 1 else {"step": str(number)}
            made = saver.put(config(cid=parent), checkpoint(number, values, versions), {"step": number}, new)
            saver.put_writes(made, [("step", number)], "task")
            parent = made["configurable"]["checkpoint_id"]
    with Memory(tmp_path / "store") as memory:
        reads = counted_reads(memory, monkeypatch)
        found = RefoldSaver(memory).get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"]["step"] == 3_000
        assert sum(reads) < 100


def test_a_window_with_a_budget_keeps_evicting(memory: Memory) -> None:
    memory.conversation("langgraph/t", window_tokens=100).set_window_tokens(100)
    messages = [said(number, "lorem ipsum " * 4) for number in range(40)]
    saver = RefoldSaver(memory)
    grow(saver, messages)
    texts = [message.content for message in messages]
    assert 2 < len(shown(memory)) < 10
    assert shown(memory) == texts[-len(shown(memory)) :]
    before = shown(memory)
    saver.put(
        config(cid=cid_of(20)), checkpoint(41, {"messages": messages[:20]}, {"messages": "41"}), {}, {"messages": "41"}
    )
    assert shown(memory) == texts[20 - len(before) : 20], "what the branch had in its window is there again"
    assert memory.why(f"m{39}", conversation="langgraph/t") is not None


def test_each_kind_of_message_is_shown(memory: Memory) -> None:
    call = {"name": "port_of", "args": {"service": "db", "since": {1}}, "id": "c1"}
    messages: list[AnyMessage] = [
        SystemMessage("Be brief.", id="1"),
        HumanMessage(["Which port?", {"type": "text", "text": "Now."}], name="ann", id="2"),
        AIMessage("", tool_calls=[call], id="3"),
        ToolMessage("5432", tool_call_id="c1", name="port_of", id="4"),
        AIMessage([{"type": "text", "text": "5432"}, {"type": "blob", "blob": b"\xff"}], id="5"),
    ]
    saver = RefoldSaver(memory)
    grow(saver, messages)
    window = memory.conversation("langgraph/t").window()
    assert [message.role for message in window] == ["system", "user", "assistant", "tool", "assistant"]
    assert [(message.metadata or {})["id"] for message in window] == ["1", "2", "3", "4", "5"]
    assert window[1].name == "ann"
    assert (window[2].tool_calls or [])[0]["function"]["name"] == "port_of"
    assert window[3].tool_call_id == "c1"
    blocks: Any = window[4].content
    assert [block["text"] for block in blocks] == ["5432", "(blob)"]
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == messages


def test_only_the_chosen_channel_of_the_outer_graph_is_shown(memory: Memory) -> None:
    values = {"messages": [said(1)], "talk": [said(2)]}
    versions: dict[str, Any] = {"messages": "1", "talk": "1"}
    for thread, option in (("a", True), ("b", "talk"), ("c", False)):
        saver = RefoldSaver(memory, project_messages=option)
        saver.put(config(thread), checkpoint(1, values, versions), {}, versions)
        saver.put(
            config(thread, "sub:1"), checkpoint(2, {"messages": [said(3)]}, {"messages": "1"}), {}, {"messages": "1"}
        )
        found = saver.get_tuple(config(thread, "sub:1"))
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == [said(3)]
        saver.delete_thread("never")
    assert [shown(memory, thread) for thread in "abc"] == [["turn 1 "], ["turn 2 "], []]
    assert [*memory.conversations()] == ["langgraph/a", "langgraph/b"]


class Reverse:
    """A cipher that is none."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reverse", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "reverse"
        return ciphertext[::-1]


@pytest.mark.parametrize("late", [False, True])
def test_what_is_encrypted_is_shown_nowhere(tmp_path: Path, *, late: bool) -> None:
    with Memory(tmp_path / "store") as memory:
        serde = EncryptedSerializer(Reverse())
        saver = RefoldSaver(memory, serde=None if late else serde)
        saver.serde = serde
        grow(saver, [said(1, CODE), said(2)])
        found = saver.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == [said(1, CODE), said(2)]
        assert [*memory.conversations()] == []
    assert CODE.encode() not in (tmp_path / "store" / "data.mdb").read_bytes()


def test_a_thread_may_be_encrypted_for_a_while(memory: Memory) -> None:
    """Its conversation shows what the newest checkpoint is, and nothing twice."""
    saver = RefoldSaver(memory)
    plain = saver.serde
    grow(saver, [said(1), said(2)])
    saver.serde = EncryptedSerializer(Reverse())
    version: dict[str, Any] = {"messages": f"{3:032}.0"}
    saver.put(config(cid=cid_of(2)), checkpoint(3, {"messages": [said(1), said(2), said(3)]}, version), {}, version)
    assert shown(memory) == []
    saver.serde = plain
    version = {"messages": f"{4:032}.0"}
    messages: list[AnyMessage] = [said(1), said(2), said(3), said(4)]
    saver.put(config(cid=cid_of(3)), checkpoint(4, {"messages": messages}, version), {}, version)
    assert shown(memory) == [message.content for message in messages]
    saver.serde = EncryptedSerializer(Reverse())
    saver.delete_thread("t")
    assert shown(memory) == []


def test_a_thread_is_copied_within_a_batch(memory: Memory) -> None:
    saver = RefoldSaver(memory)
    grow(saver, [said(1), said(2)])
    with memory.batch():
        saver.copy_thread("t", "copy")
    assert shown(memory, "copy") == shown(memory) != []
    found, copied = saver.get_tuple(config()), saver.get_tuple(config("copy"))
    assert found is not None
    assert copied is not None
    assert copied.checkpoint == found.checkpoint


def test_an_erased_secret_is_in_no_file_and_no_checkpoint(tmp_path: Path) -> None:
    call = {"name": "look_up", "args": {}, "id": "c1"}
    messages = [
        said(1, CODE),
        AIMessage("", tool_calls=[call], id="m2"),
        ToolMessage(CODE, tool_call_id="c1", id="m3"),
        said(4),
    ]
    with Memory(tmp_path / "store") as memory:
        saver = RefoldSaver(memory)
        grow(saver, messages)
        saver.put_writes(config(cid=cid_of(4)), [("messages", [said(5, CODE)]), ("note", "kept")], "task-1")
        saver.put_writes(config(cid=cid_of(4)), [("note", "kept")], "task-2")
        versions = {"notes": "1", "messages": f"{4:032}.0"}
        saver.put(
            config(cid=cid_of(4)),
            checkpoint(5, {"notes": {"of": CODE}, "messages": messages}, versions),
            {},
            {"notes": "1"},
        )
        saver.copy_thread("t", "copy")
        memory.erase(text=CODE)
        for thread in ("t", "copy"):
            found = saver.get_tuple(config(thread))
            assert found is not None
            answer = ToolMessage("", tool_call_id="c1")
            assert found.checkpoint["channel_values"] == {"messages": [messages[1], answer, messages[3]]}
            before = saver.get_tuple(config(thread, cid=cid_of(4)))
            assert before is not None
            assert before.pending_writes == [("task-2", "note", "kept")]
            saver.put(
                found.config,
                checkpoint(6, {"messages": [*messages[1:2], answer, said(4)]}, {"messages": "6"}),
                {},
                {"messages": "6"},
            )
            assert saver.get_tuple(config(thread)).checkpoint["channel_values"]["messages"][0] == messages[1]  # type: ignore[union-attr]
        assert CODE not in str(shown(memory))
        assert_sound(memory)
    for path in (tmp_path / "store").iterdir():
        assert CODE.encode() not in path.read_bytes()


def test_an_erased_message_leaves_every_checkpoint_and_copy(memory: Memory) -> None:
    saver = RefoldSaver(memory)
    grow(saver, [said(1), said(2), said(3)])
    saver.copy_thread("t", "copy")
    memory.erase([memory.conversation("langgraph/t").window()[1]])
    for thread in ("t", "copy"):
        found = saver.get_tuple(config(thread))
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == [said(1), said(3)]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_thread_is_erased_from_the_files(tmp_path: Path, *, is_deleted: bool) -> None:
    with Memory(tmp_path / "store") as memory:
        saver = RefoldSaver(memory)
        for thread, text in (("ann", "Elm Street"), ("anne", "Oak Street")):
            put_message(saver, HumanMessage(text), thread)
            saver.put_writes(config(thread, cid=cid_of(1)), [("step", text)], "task")
        saver.copy_thread("ann", "copy")
        if is_deleted:
            saver.delete_thread("ann")
        with pytest.raises(InvalidInput, match="forks"):
            saver.erase_thread("ann")
        asyncio.run(saver.aerase_thread("ann", forks="erase"))
        assert {found.config["configurable"]["thread_id"] for found in saver.list(None)} == {"anne"}
        assert "langgraph/ann" not in memory.conversations() + memory.tables()
        assert not any(shown(memory, "copy"))
        assert_sound(memory)
    texts = ("Elm Street", 'langgraph/ann"', "Oak Street")
    assert [is_stored(tmp_path / "store", text) for text in texts] == [False, False, True]


def put_message(saver: RefoldSaver, message: Any, thread: str) -> None:
    values = {"messages": [message]}
    versions: dict[str, Any] = {"messages": "1"}
    saver.put(config(thread), checkpoint(1, values, versions), {}, versions)


def test_a_checkpoint_that_comes_late_is_not_shown_until_a_run_goes_on_from_it(memory: Memory) -> None:
    saver = RefoldSaver(memory)

    def put(number: int, parent: int | None, *messages: Any) -> None:
        values = {"messages": [*messages]}
        versions: dict[str, Any] = {"messages": str(number)}
        origin = config(cid=None if parent is None else cid_of(parent))
        saver.put(origin, checkpoint(number, values, versions), {}, versions)

    put(1, None, said(1))
    put(4, 1, said(1), said(4))
    put(2, 1, said(1), said(2))
    assert shown(memory) == [said(number).content for number in (1, 4)]
    put(3, 2, said(1), said(2), said(3))
    assert shown(memory) == [said(number).content for number in (1, 4)]
    put(5, 3, said(1), said(2), said(3), said(5))
    assert shown(memory) == [said(number).content for number in (1, 2, 3, 5)]
    put(6, 4, said(1), said(4), said(6))
    assert shown(memory) == [said(number).content for number in (1, 4, 6)]
    put(7, 2, said(1), said(2), said(7))
    assert shown(memory) == [said(number).content for number in (1, 2, 7)]
    memory.erase([memory.conversation("langgraph/t").window()[1]])
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == [said(1), said(7)]
    assert_sound(memory)


def test_threads_end_are_copied_and_pruned_with_their_windows(memory: Memory) -> None:
    saver = RefoldSaver(memory)
    messages = [said(number) for number in range(70)]
    grow(saver, messages)
    texts = [message.content for message in messages]
    head = memory.head
    saver.copy_thread("t", "copy")
    # The table and the conversation, which is opened, go on from those of the thread.
    assert memory.head == head + 3
    saver.copy_thread("t", "t")
    assert shown(memory, "copy") == texts
    saver.delete_thread("t")
    assert saver.get_tuple(config()) is None
    assert shown(memory) == []
    assert [*memory.conversations()] == ["langgraph/copy"]
    saver.prune(["copy"])
    assert len([*saver.list(config("copy"))]) == 1
    # A branch of the copy, from a checkpoint that was copied as well.
    saver.copy_thread("copy", "other")
    saver.put(
        config("other", cid=cid_of(70)),
        checkpoint(71, {"messages": messages[:66]}, {"messages": "71"}),
        {"run_id": "late"},
        {"messages": "71"},
    )
    assert shown(memory, "other") == texts[:66]
    saver.delete_for_runs(["late"])
    assert shown(memory, "other") == texts
    found = saver.get_tuple(config("other"))
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == messages
    table = memory.table("langgraph/other")
    assert len(table.keys(("m",))) == 70
    saver.prune(["other"], strategy="delete")
    assert table.keys() == []
    assert {found.config["configurable"]["thread_id"] for found in saver.list(None)} == {"copy"}
    assert_sound(memory)


def test_a_run_goes_on_from_a_checkpoint_that_a_restore_brought_along(memory: Memory) -> None:
    grow(RefoldSaver(memory), [said(1)])
    fork = memory.fork("elsewhere")
    grow(RefoldSaver(fork), [said(1), said(2), said(3)], parent=cid_of(1))
    memory.restore(fork.snapshot())
    step = checkpoint(9, {"messages": [said(1), said(2), said(9)]}, {"messages": "9"})
    RefoldSaver(memory).put(config(cid=cid_of(3)), step, {}, {"messages": "9"})
    assert shown(memory) == [said(1).content, said(2).content, said(9).content]
    assert_sound(memory)


def test_a_copy_of_a_thread_is_of_one_moment(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = RefoldSaver(memory)
    grow(saver, [said(1), said(2)])
    transact = RefoldSaver._transact

    def late(self: RefoldSaver, function: Any) -> Any:
        monkeypatch.undo()
        grow(RefoldSaver(memory), [said(1), said(2), said(3)], parent=cid_of(2))
        return transact(self, function)

    monkeypatch.setattr(RefoldSaver, "_transact", late)
    saver.copy_thread("t", "copy")
    found = saver.get_tuple(config("copy"))
    assert found is not None
    assert shown(memory, "copy") == [each.content for each in found.checkpoint["channel_values"]["messages"]]


def test_a_thread_may_begin_again(memory: Memory) -> None:
    saver = RefoldSaver(memory)
    grow(saver, [said(1), said(2)])
    saver.delete_thread("t")
    grow(saver, [said(2), said(3)])
    assert shown(memory) == ["turn 2 ", "turn 3 "]
    assert saver.get_tuple(config()).checkpoint["channel_values"]["messages"] == [said(2), said(3)]  # type: ignore[union-attr]


def test_tasks_and_threads_write_at_once(tmp_path: Path) -> None:
    """A hundred tasks of one step, beside checkpoints of the same thread."""

    async def main(saver: RefoldSaver) -> None:
        await saver.aput(config(), checkpoint(1, {"step": 1}, {"step": "1"}), {}, {"step": "1"})
        tasks = [
            saver.aput_writes(config(cid=cid_of(1)), [("step", n), ("messages", [said(n)])], f"task-{n}")
            for n in range(100)
        ]
        errors = [
            saver.aput_writes(config(cid=cid_of(1)), [("__error__", "x"), ("step", 0)], f"bad-{n}") for n in range(9)
        ]
        steps = [
            saver.aput(
                config(cid=cid_of(1)),
                checkpoint(n, {"messages": [said(n)]}, {"messages": str(n)}),
                {},
                {"messages": str(n)},
            )
            for n in range(2, 9)
        ]
        await asyncio.gather(*tasks, *steps, *errors)
        found = await saver.aget_tuple(config(cid=cid_of(1)))
        assert found is not None
        assert len(found.pending_writes or ()) == 218
        assert len([found async for found in saver.alist(config())]) == 8
        history = await saver.aget_delta_channel_history(config=config(cid=cid_of(3)), channels=["step"])
        assert len(history["step"]["writes"]) == 109

    with remembering(tmp_path / "store") as memory:
        asyncio.run(main(RefoldSaver(memory)))


def test_the_events_say_who_wrote_them(memory: Memory) -> None:
    saver = RefoldSaver(memory)
    grow(saver, [said(1)])
    saver.put_writes(config(cid=cid_of(1)), [("step", 1)], "task")
    _, *written = memory.events()  # The first one names the actor.
    assert {recorded.stamp.actor for recorded in written} == {"langgraph"}


def test_a_path_is_opened_for_a_block(tmp_path: Path) -> None:
    with RefoldSaver.from_path(tmp_path / "store", prefix="graphs/") as saver:
        grow(saver, [said(1)])
    with Memory(tmp_path / "store") as memory:
        assert [*memory.conversations()] == ["graphs/t"]


def test_what_a_memory_refuses_is_raised_and_nothing_is_written(memory: Memory) -> None:
    saver = RefoldSaver(memory)
    grow(saver, [said(1)])
    large = {"messages": [said(1), said(2)], "blob": b"x" * 17_000_000}
    versions: Any = {"messages": "2", "blob": "2"}
    with refused(memory, LimitExceeded, "VALUE_BYTES_MAX"):
        saver.put(config(cid=cid_of(1)), checkpoint(2, large, versions), {}, versions)
    with refused(memory, LimitExceeded, "VALUE_BYTES_MAX"):
        saver.put_writes(config(cid=cid_of(1)), [("step", 1), ("blob", large["blob"])], "task")


def test_a_batch_of_the_caller_takes_a_checkpoint_in(memory: Memory) -> None:
    saver = RefoldSaver(memory)
    with pytest.raises(ZeroDivisionError):
        in_batch(memory, lambda: grow(saver, [said(1), said(2)]), interrupt)
    assert saver.get_tuple(config()) is None
    with memory.batch():
        grow(saver, [said(1), said(2)])
        saver.put_writes(config(cid=cid_of(2)), [("step", 1)], "task")
        memory.conversation("audit").append("user", "two checkpoints")
    assert shown(memory) == ["turn 1 ", "turn 2 "]
    assert len([*saver.list(config())]) == 2


def test_branches_that_are_put_at_once_are_not_mixed() -> None:
    with remembering() as memory:
        saver = RefoldSaver(memory)
        grow(saver, [said(0)])
        lists = [[said(0), said(2 * n), said(2 * n + 1)] for n in range(1, 9)]

        def put(number: int) -> None:
            version: Any = {"messages": f"{number}"}
            step = checkpoint(number + 1, {"messages": lists[number - 1]}, version)
            saver.put(config(cid=cid_of(1)), step, {}, version)

        with ThreadPoolExecutor(8) as pool:
            [*pool.map(put, range(1, 9))]
        assert shown(memory) in [[message.content for message in branch] for branch in lists]
        for number, branch in enumerate(lists):
            found = saver.get_tuple(config(cid=cid_of(number + 2)))
            assert found is not None
            assert found.checkpoint["channel_values"]["messages"] == branch


@pytest.mark.parametrize("where", ["metadata", "configurable"])
def test_an_erasure_of_what_a_host_notes_beside_a_run_leaves_its_checkpoints(memory: Memory, where: str) -> None:
    nodes: Any = StateGraph(MessagesState).add_node("answer", lambda _: {"messages": [("ai", "Yes.")]})
    graph = nodes.add_edge(START, "answer").compile(checkpointer=RefoldSaver(memory))
    for text, user in (("q1", "bob"), ("q2", "ann-4711"), ("q3", "bob"), ("q4", "ann-4711")):
        given: Any = {"configurable": {"thread_id": "t"}}
        given.setdefault(where, {})["user_id"] = user
        graph.invoke({"messages": [("human", text)]}, given)
    saver = RefoldSaver(memory)
    noted = [found.metadata.get("user_id") for found in saver.list(config())]
    assert noted == [user for user in ("ann-4711", "bob", "ann-4711", "bob") for _ in range(3)]
    assert len([*saver.list(config(), filter={"user_id": "ann-4711"})]) == 6

    def rests() -> int:
        return sum("__metadata__" in key for key in memory.table("langgraph/t").keys(("v",)))

    assert rests() == 2, "all runs of a user share it"
    before = [found.checkpoint for found in saver.list(config())]
    memory.erase(text="ann-4711")
    for each in (saver, RefoldSaver(memory)):
        assert [found.checkpoint for found in each.list(config())] == before
        assert {found.metadata.get("user_id") for found in each.list(config())} == {None, "bob"}
        assert [found.metadata["step"] for found in each.list(config(), limit=3)] == [10, 9, 8]
        assert [*each.list(config(), filter={"user_id": "ann-4711"})] == []
    graph.invoke({"messages": [("human", "q5")]}, {"configurable": {"thread_id": "t"}})
    assert shown(memory) == [text for number in range(1, 6) for text in (f"q{number}", "Yes.")]
    saver.prune(["t"])
    assert rests() == 0
    assert_sound(memory)


@pytest.mark.parametrize("length", range(540, 580))
def test_a_text_that_was_cut_is_no_other_text(length: int) -> None:
    cut = langgraph_items.key_part("p" * length + "\x01" * 3 + "q" * 500)
    assert langgraph_items.key_part(keys.text(cut)) != cut


@pytest.mark.parametrize(
    ("block", "tokens", "text"),
    [
        ({"type": "image", "base64": "AAAA", "mime_type": "image/png"}, 1_000, "AAAA"),
        ({"type": "image", "url": "https://example.org/y.png"}, 1_000, "example.org/y.png"),
        ({"type": "image", "source_type": "base64", "data": "AAAA", "mime_type": "image/png"}, 1_000, "AAAA"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}, 1_000, "AAAA"),
        ({"type": "image", "file_id": "f1"}, 0, "(image"),
        ({"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"}, 2_000, "AAAA"),
        ({"type": "file", "base64": "AAAA", "mime_type": "application/pdf"}, 5_000, "AAAA"),
        ({"type": "text-plain", "text": "A note."}, 1, "A note."),
        ({"type": "hologram", "value": 5}, 1, "(hologram)"),
    ],
)
def test_the_standard_blocks_of_langchain_count_and_are_sent(block: Any, tokens: int, text: str) -> None:
    memory = Memory()
    graph = StateGraph(MessagesState).add_node("a", lambda _: {"messages": [AIMessage("I see.")]}).add_edge(START, "a")
    thread: Any = {"configurable": {"thread_id": "t"}}
    asked = HumanMessage([{"type": "text", "text": "Look:"}, block])
    graph.compile(checkpointer=RefoldSaver(memory)).invoke({"messages": [asked]}, thread)
    chat = memory.conversation("langgraph/t")
    assert chat.window()[0].tokens >= tokens
    assert text in str(chat.messages("gemini" if "audio" in str(block) else "openai"))
    for form in ("openai", "openai-responses", "anthropic", "gemini", "ollama"):
        assert "I see." in str(chat.messages(form))
    assert memory.context(chat, query="port?", budget=20_000).messages()


def test_a_call_that_is_also_a_block_is_shown_once_and_thoughts_are_left_out() -> None:
    memory = Memory()
    blocks: list[Any] = [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": "Let me look."},
        {"type": "server_tool_call", "id": "s1", "name": "web_search", "args": {}},
        {"type": "server_tool_result", "tool_call_id": "s1", "output": "x"},
    ]
    for kind in ("tool_use", "tool_call"):
        call: dict[str, Any] = {"type": kind, "id": "t", "name": "f", "input" if kind == "tool_use" else "args": {}}
        said: Any = AIMessage([*blocks, call], tool_calls=[{"name": "f", "args": {}, "id": "t"}])
        answer = ToolMessage("5432", tool_call_id="t")
        graph = StateGraph(MessagesState).add_node("a", lambda _, both=(said, answer): {"messages": list(both)})
        thread: Any = {"configurable": {"thread_id": kind}}
        question: Any = {"messages": [("user", "?")]}
        graph.add_edge(START, "a").compile(checkpointer=RefoldSaver(memory)).invoke(question, thread)
        _, asked, answered = memory.conversation(f"langgraph/{kind}").messages()
        assert [each["text"] for each in asked["content"]] == ["Let me look.", "(web_search)"]
        assert [each["id"] for each in asked["tool_calls"]] == [answered["tool_call_id"]]
