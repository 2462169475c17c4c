"""``chat.drop``: a conversation is closed for good, is listed no more, and its id begins another one."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from refold import Closed, Conversation, InvalidInput, Memory, Message, ReadOnly
from tests.support.bounds import Clock
from tests.support.memories import assert_sound
from tests.support.other_process import Elsewhere


def texts(messages: Sequence[Message]) -> list[Any]:
    return [message.content for message in messages]


@pytest.fixture
def chat(memory: Memory) -> Conversation:
    chat = memory.conversation("a", project="p", window_tokens=50)
    chat.append("user", "the fox", tokens=5)
    chat.scratchpad.set("key", "value")
    chat.state.set("x", 1)
    chat.session.note_finding("found")
    return chat


def test_it_is_empty_and_not_listed(memory: Memory, reopen: Callable[[], Memory], chat: Conversation) -> None:
    memory.conversation("b").append("user", "another")
    before = memory.head
    chat.drop()

    def live() -> Memory:
        return memory

    for opened in (live, reopen):
        now = opened()
        gone = now.conversation("a")
        assert (gone.window(), gone.scratchpad.keys(), dict(gone.state.items())) == ([], [], {})
        assert (gone.session.findings(), gone.history(), list(gone.search("fox"))) == ([], [], [])
        assert (gone.project, gone.token_count()) == (None, 0)
        assert (now.conversations(), now.conversations(dropped=True)) == (["b"], ["a"])
        assert now.stats().conversations == 1
        assert list(now.search_messages("fox")) == []
        past = now.at(before)
        assert (past.conversations(), past.conversations(dropped=True)) == (["a", "b"], [])
        assert texts(gone.at(before).window()) == texts(gone.at(before).history()) == ["the fox"]
        assert texts([hit.entry for hit in gone.at(before).search("fox")]) == ["the fox"]
        assert now.verify().ok


def test_older_handles_are_refused_and_a_new_one_begins_anew(memory: Memory, chat: Conversation) -> None:
    pad, state, work = chat.scratchpad, chat.state, chat.session
    chat.drop()
    head = memory.head
    writes: list[Callable[[], Any]] = [
        lambda: chat.append("user", "late"),
        lambda: chat.scratchpad.set("k", "v"),
        lambda: chat.state.set("k", "v"),
        lambda: pad.note("late"),
        lambda: state.set("k", 1),
        lambda: work.note_finding("late"),
        lambda: chat.restore(chat.at(head - 1).snapshot()),
        chat.drop,
    ]

    def refuse_all() -> None:
        for write in writes:
            with pytest.raises(Closed, match="take another one"):
                write()

    refuse_all()
    assert memory.head == head
    again = memory.conversation("a", window_tokens=7)
    assert again.drop() is None
    assert memory.head == head
    again.append("user", "the hen", tokens=5)
    assert texts(again.window()) == texts(again.history()) == ["the hen"]
    assert (again.window_tokens, again.project) == (7, None)
    assert (memory.conversations(), memory.conversations(dropped=True)) == (["a"], [])
    refuse_all()
    assert texts(chat.window()) == ["the hen"]


def test_what_is_not_there_is_not_dropped(memory: Memory) -> None:
    memory.conversation("none").drop()
    assert memory.head == 0
    with pytest.raises(ReadOnly):
        memory.conversation("none").at(0).drop()


def test_a_request_is_answered_again(memory: Memory, chat: Conversation) -> None:
    chat.drop(request_id="r")
    head = memory.head
    chat.drop(request_id="r")
    memory.conversation("a").drop(request_id="r")
    assert memory.head == head


def test_pages_of_names_pass_over_the_dropped(memory: Memory) -> None:
    for number in range(20):
        memory.conversation(f"c{number:02}").append("user", "x")
    for number in range(0, 20, 3):
        memory.conversation(f"c{number:02}").drop()
    left = [f"c{number:02}" for number in range(20) if number % 3]
    gone = [f"c{number:02}" for number in range(0, 20, 3)]
    assert memory.conversations() == left
    assert memory.conversations(limit=4) == left[:4]
    assert memory.conversations(after=left[3], limit=4) == left[4:8]
    assert memory.conversations(limit=0) == []
    assert memory.conversations(dropped=True) == gone
    assert memory.conversations(dropped=True, after=gone[1], limit=2, prefix="c") == gone[2:4]
    assert memory.conversations(dropped=True, prefix="c1") == [name for name in gone if name.startswith("c1")]
    with pytest.raises(InvalidInput):
        memory.conversations(dropped=1)  # type: ignore[arg-type]


def test_the_board_of_its_session_is_emptied(memory: Memory, chat: Conversation) -> None:
    board = memory.board(session="a")
    board.set_working_history("so far")
    chat.drop()
    assert board.get("working_history") != "so far"


def test_a_fork_may_take_the_place_of_another(memory: Memory, reopen: Callable[[], Memory], chat: Conversation) -> None:
    old = memory.conversation("b")
    old.append("user", "old", tokens=5)
    with pytest.raises(InvalidInput, match="replace=True"):
        chat.fork("b")
    new = chat.fork("b", replace=True)
    for _ in range(2):
        assert texts(new.window()) == texts(new.history()) == ["the fox"]
        assert new.project == "p"
    with pytest.raises(Closed):
        old.append("user", "late")
    new.append("user", "more", tokens=5)
    commits = {recorded.stamp.time_ns for recorded in list(new.events())[2:4]}
    assert len(commits) == 1
    assert texts(chat.fork("c", replace=True).window()) == ["the fox"]
    memory = reopen()
    assert texts(memory.conversation("b").window()) == texts(memory.conversation("b").history()) == ["the fox", "more"]
    assert memory.conversations() == ["a", "b", "c"]
    assert memory.verify().ok


def test_a_fork_lives_on_without_its_origin(memory: Memory, chat: Conversation) -> None:
    fork = chat.fork("b")
    chat.drop()
    assert texts(fork.window()) == texts(fork.history()) == ["the fox"]
    fork.close(drop=True)
    assert memory.conversations() == []


def test_a_fork_of_the_memory_has_its_own(memory: Memory, chat: Conversation) -> None:
    twin = memory.fork("twin")
    chat.drop()
    assert (memory.conversations(), twin.conversations()) == ([], ["a"])
    twin.conversation("a").append("user", "there", tokens=5)
    assert texts(twin.conversation("a").window()) == ["the fox", "there"]
    assert memory.fork("later").conversations(dropped=True) == ["a"]


def test_a_whole_restore_brings_it_back(memory: Memory, chat: Conversation) -> None:
    whole = memory.snapshot()
    chat.drop()
    memory.restore(whole)
    assert memory.conversations() == ["a"]
    assert texts(memory.conversation("a").window()) == ["the fox"]


def test_an_erased_one_is_listed_nowhere(memory: Memory, chat: Conversation) -> None:
    chat.drop()
    assert memory.conversations(dropped=True) == ["a"]
    memory.conversation("a").erase()
    assert "a" not in (*memory.conversations(dropped=True), *memory.conversations())


def test_many_drop_and_begin_at_once(memory: Memory) -> None:
    def run(number: int) -> None:
        handle = memory.conversation("a")
        try:
            handle.append("user", f"{number}")
            handle.drop()
        except Closed:
            pass

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(run, range(100)))
    assert memory.verify().ok
    assert memory.state_hash() == memory.replay_hash()


def test_a_handle_taken_behind_a_drop_of_another_process_begins_anew(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory, Elsewhere(Clock()) as elsewhere:
        older = memory.conversation("a")
        older.append("user", "before")
        elsewhere.opened(tmp_path / "store", {}, 2).conversation("a").drop()
        later = memory.conversation("a")
        later.scratchpad.set("key", "value")
        later.append("user", "after")
        assert (texts(later.window()), later.scratchpad.keys()) == (["after"], ["key"])
        with pytest.raises(Closed, match="after this handle was taken"):
            older.append("user", "late")
        elsewhere.shut()


def test_a_handle_on_a_closed_memory_can_be_taken(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("a").append("user", "hello")
    with pytest.raises(Closed, match="open the store again"):
        memory.conversation("a").append("user", "late")


def test_a_batch_sees_what_it_dropped(memory: Memory, chat: Conversation) -> None:
    with memory.batch():
        memory.journal().append("in front")
        chat.append("user", "the elk", tokens=5)
        chat.drop()
        assert (chat.window(), chat.history(), chat.history(before=memory.head)) == ([], [], [])
        assert (list(chat.search("fox elk")), list(memory.search_messages("fox elk"))) == ([], [])
        chat.append("user", "the hen", tokens=5)
        chat.replace(chat.window()[0], "the cow", tokens=5)
        assert texts(chat.window()) == texts(chat.history()) == ["the cow"]
        for search in (chat.search, memory.search_messages):
            assert texts([hit.entry for hit in search("fox elk hen cow")]) == ["the cow"]
    assert texts(memory.conversation("a").history()) == ["the cow"]


def test_a_batch_still_finds_what_another_goes_on_from_of_what_it_dropped(memory: Memory, chat: Conversation) -> None:
    snapshot, heir = chat.snapshot(), memory.conversation("b")
    with memory.batch():
        heir.restore(snapshot)
        chat.append("user", "the fox in the batch", tokens=5)
        chat.drop()
        assert [hit.entry.content for hit in memory.search_messages("fox")] == ["the fox"]
        assert texts(heir.window()) == ["the fox"]
    assert [hit.entry.content for hit in memory.search_messages("fox")] == ["the fox"]


def test_tasks_drop_too(memory: Memory) -> None:
    async def run() -> list[str]:
        await memory.aio.conversation("a").append("user", "hello")
        await memory.aio.conversation("a").drop()
        return memory.conversations(dropped=True)

    assert asyncio.run(run()) == ["a"]


def test_a_restore_brings_back_what_was_said_before_the_drop(memory: Memory) -> None:
    memory.conversation("chat").append("user", "before the drop")
    memory.snapshot("then")
    memory.conversation("chat").append("user", "not in the snapshot")
    memory.conversation("chat").drop()
    memory.conversation("chat").append("user", "behind the drop")
    memory.restore("then")
    chat = memory.conversation("chat")
    assert [message.content for message in chat.window()] == ["before the drop"]
    assert [message.content for message in chat.history()] == ["before the drop", "behind the drop"]
    assert {hit.entry.content for hit in chat.search("drop snapshot")} == {"before the drop", "behind the drop"}
    assert_sound(memory)
