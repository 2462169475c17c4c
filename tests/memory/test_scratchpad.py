"""The scratchpad as a handle: its verbs, its twin for asyncio, and the names that it had on the conversation."""

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, Memory, ReadOnly
from refold.memory import Scratchpad
from refold.memory.core import Core
from tests.support.memories import refused, remembering
from tests.support.seams import records_in

EMPTY: dict[str, Any] = {"entries": {}, "notes": []}
FORMER = ("set", "get", "delete", "keys", "note", "notes", "clear")


def test_it_shows_what_was_set_and_noted() -> None:
    with remembering() as memory:
        scratchpad = memory.conversation("chat").scratchpad
        assert isinstance(scratchpad, Scratchpad)
        assert (scratchpad.keys(), scratchpad.items(), scratchpad.notes()) == ([], [], [])
        assert memory.head == 0, "a handle writes nothing"
        scratchpad.set("b", "2")
        scratchpad.set("a", "1")
        scratchpad.note("first")
        assert scratchpad.items() == [("a", "1"), ("b", "2")]
        assert scratchpad.to_dict() == {"entries": {"a": "1", "b": "2"}, "notes": ["first"]}
        assert json.loads(scratchpad.to_json()) == scratchpad.to_dict()
        assert repr(scratchpad) == "Scratchpad('conversation/chat', keys=2, notes=1)"
        frozen = memory.conversation("chat").at(2).scratchpad
        assert frozen.items() == [("b", "2")]
        with refused(memory, ReadOnly, "frozen at seq 2"):
            frozen.note("late")


def test_what_was_claimed_of_the_conversation_is_checked_at_its_first_mutation() -> None:
    memory = Memory()
    claimed = memory.conversation("chat", project="acme")
    memory.conversation("chat", project="other").scratchpad.set("k", "v")
    with refused(memory, InvalidInput, "belongs to project 'other'"):
        claimed.scratchpad.set("k", "w")
    with refused(memory, InvalidInput, "belongs to project 'other'"):
        claimed.state.set("k", "w")
    with refused(memory, InvalidInput, "belongs to project 'other'"):
        claimed.session.note_finding("w")
    settled = memory.conversation("chat", window_tokens=128_000)
    settled.scratchpad.set("k", "w")
    memory.conversation("chat").set_window_tokens(50)
    settled.scratchpad.set("k", "x")
    assert settled.append("user", "Still the same handle.").seq == memory.head


def test_all_are_cleared_on_opening_with_one_commit_and_those_of_forks_too(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory, memory.batch():
        for number in range(100):
            memory.conversation(f"chat-{number:02}").scratchpad.set("key", "value")
        memory.conversation("without").append("user", "Hello!")
    with remembering(tmp_path / "store") as memory:
        memory.fork("fork").conversation("chat-01").scratchpad.note("of the fork")
        head = memory.head
    with remembering(tmp_path / "store", clear_scratchpads_on_open=True) as memory:
        assert {command for record in records_in(memory, head) for command in record.commands} == {head + 1}
        assert memory.head == head + 200, "one event for each scratchpad that held something, here and in the fork"
        for branch in (memory, memory.fork("fork")):
            assert all(branch.conversation(name).scratchpad.to_dict() == EMPTY for name in branch.conversations())
        assert memory.at(head).conversation("chat-01").scratchpad.get("key") == "value"


def test_only_conversations_that_may_hold_something_are_read_on_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remembering(tmp_path / "store") as memory:
        for number in range(20):
            memory.conversation(f"chat-{number:02}").append("user", "Hello!")
        memory.conversation("chat-01").scratchpad.set("key", "value")
        memory.conversation("chat-01").fork("fork of one")
        memory.conversation("chat-02").scratchpad.note("over")
        snapshot = memory.conversation("chat-02").snapshot("noted")
        memory.conversation("chat-02").scratchpad.clear()
        memory.conversation("chat-03").fork("fork of nothing")
        memory.conversation("chat-04").restore(snapshot)
        memory.fork("branch").conversation("chat-05").scratchpad.note("of the branch")
        memory.conversation("chat-06").scratchpad.set("key", "value")
        memory.conversation("chat-06").end()
    reads = list[tuple[int, str]]()
    read = Core.read

    def counting(core: Core, stream: str, query: Any, at: int | None) -> Any:
        reads.append((core.branch, stream.removeprefix("conversation/")))
        return read(core, stream, query, at)

    for held in ({(0, "chat-01"), (0, "chat-04"), (0, "fork of one"), (1, "chat-05")}, set[tuple[int, str]]()):
        reads.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Core, "read", counting)
            Memory(tmp_path / "store", clear_scratchpads_on_open=True).close()
        assert held <= set(reads)
        with Memory(tmp_path / "store") as memory:
            for branch in (memory, memory.fork("branch")):
                assert all(branch.conversation(name).scratchpad.to_dict() == EMPTY for name in branch.conversations())
        others = {branch for branch, _ in set(reads) - held}
        assert others <= {1}, "of a branch, those that held something when it was forked are read too"


@pytest.mark.parametrize("verb", FORMER)
def test_a_verb_that_conversations_once_had_says_where_it_is(verb: str) -> None:
    chat: Any = Memory().conversation("chat")
    for handle in (chat, Memory().aio.conversation("chat")):
        kind = type(handle).__name__
        with pytest.raises(AttributeError, match=f"^'{kind}' object has no attribute '{verb}'; use scratchpad.{verb}$"):
            getattr(handle, verb)
        assert not hasattr(handle, verb)
        assert verb not in dir(handle)
        assert callable(getattr(handle.scratchpad, verb))
    with pytest.raises(AttributeError, match=r"^'Conversation' object has no attribute 'absent'$"):
        chat.absent  # noqa: B018 - asking for it is the test


def test_an_option_that_there_is_not_is_a_type_error() -> None:
    memory = Memory()
    scratchpad: Any = memory.conversation("chat").scratchpad
    with pytest.raises(TypeError, match="unexpected keyword arguments: expect;"):
        scratchpad.set("k", "v", expect=1)
    assert memory.head == 0


def test_the_twin_for_asyncio_has_the_same_verbs() -> None:
    async def work(memory: Memory) -> dict[str, Any]:
        scratchpad = memory.aio.conversation("chat").scratchpad
        await scratchpad.set("k", "v")
        await scratchpad.set("gone", "v")
        await scratchpad.note("noted")
        assert await scratchpad.delete("gone") is True
        assert (scratchpad.get("k"), scratchpad.keys(), scratchpad.items()) == ("v", ["k"], [("k", "v")])
        assert scratchpad.notes() == ["noted"]
        assert json.loads(scratchpad.to_json()) == scratchpad.to_dict()
        before = scratchpad.to_dict()
        await scratchpad.clear()
        return before

    with remembering() as memory:
        chat, twin = memory.conversation("chat").scratchpad, memory.aio.conversation("chat").scratchpad
        verbs = [name for name, _ in inspect.getmembers(Scratchpad, inspect.isfunction) if name[0] != "_"]
        assert len(verbs) == 11
        for verb in verbs:
            assert inspect.signature(getattr(twin, verb)) == inspect.signature(getattr(chat, verb))
        assert asyncio.run(work(memory)) == {"entries": {"k": "v"}, "notes": ["noted"]}
        assert chat.to_dict() == {"entries": {}, "notes": []}
