"""A batch: one commit or none, seen by nobody before its end, and undone by an exception."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from refold import (
    ANY,
    EXISTS,
    NO_STREAM,
    Closed,
    Conversation,
    InvalidInput,
    Memory,
    Message,
    WrongVersion,
)
from refold.engine import batch as batches
from refold.log.lmdb_log import LmdbTurn
from tests.support.memories import Clock, assert_sound, elsewhere, in_batch, interrupt, refused, remembering


class TestOneCommit:
    def test_all_its_events_have_one_time_and_one_command(self, tmp_path: Path) -> None:
        clock = Clock()

        def ticking() -> int:
            clock.advance(1)
            return clock.now_ns

        with remembering(tmp_path / "store", clock_ns=ticking) as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                for number in range(5):
                    chat.append("user", str(number), tokens=1)
                memory.profile().set("k", "v")
            times = {stamp.time_ns for _, stamp in chat.events()}
            assert len(times) == 1
            memory.export(tmp_path / "export")
            assert (tmp_path / "export").read_text().count('"command":1,') == 7

    def test_spans_streams_of_every_kind(self) -> None:
        with remembering() as memory:
            with memory.batch():
                memory.conversation("a", project="p").append("user", "x", tokens=1)
                memory.conversation("b").scratchpad.set("k", "v")
                memory.conversation("a").state["project:k"] = 1
                memory.profile().set("k", "v")
                memory.journal().append("note", day="2026-01-01")
            assert (memory.conversations(), memory.projects()) == (["a", "b"], ["p"])
            assert memory.stats().profiles == memory.stats().journals == 1

    def test_of_nothing_writes_nothing(self) -> None:
        with remembering() as memory:
            with memory.batch() as batch:
                assert len(batch) == 0
            assert memory.head == 0

    def test_of_what_changes_nothing_writes_nothing(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.set("k", "v")
            with memory.batch():
                chat.scratchpad.set("k", "v")
                chat.scratchpad.delete("absent")
                chat.clear_window()
            assert memory.head == 2

    def test_counts_its_events(self) -> None:
        with remembering() as memory, memory.batch() as batch:
            chat = memory.conversation("chat")
            chat.append("user", "x", tokens=1)
            assert len(batch) == 2
            chat.append("user", "y", tokens=1)
            assert len(batch) == 3

    def test_gives_the_same_state_as_verb_by_verb(self) -> None:
        def work(memory: Memory) -> None:
            chat = memory.conversation("chat", project="p")
            chat.append("user", "x", tokens=4)
            chat.scratchpad.set("a", "1")
            chat.scratchpad.set("a", "2")
            chat.scratchpad.set("b", "3")
            chat.scratchpad.delete("a")
            chat.scratchpad.note("n")
            chat.state["temp:x"] = 1
            chat.state["y"] = [1]
            chat.end_round()
            chat.append("user", "z", tokens=8)
            chat.set_window_tokens(9)
            memory.profile().set("k", "v")
            memory.profile().delete("k")

        with (
            remembering(clock_ns=Clock(), random_bytes=bytes) as one,
            remembering(clock_ns=Clock(), random_bytes=bytes) as other,
        ):
            work(one)
            with other.batch():
                work(other)
            assert one.state_hash() == other.state_hash()


class TestResults:
    def test_carry_their_id_at_once_and_their_seq_at_the_end(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                first = chat.append("user", "one", tokens=1)
                second = chat.append("user", "two", tokens=1)
                assert len(first.id) == 20
                assert [getattr(first, field) for field in ("seq", "time_ns", "occurred_ns")] == [None, None, None]
                assert [message.seq for message in chat.window()] == [None, None]
            assert (first.seq, second.seq) == (2, 3)
            assert first.time_ns > 0
            assert chat.window() == [first, second]

    def test_may_be_sources_of_later_ones(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "before", tokens=1)
            with memory.batch():
                message = chat.append("user", "one", tokens=1)
                chat.scratchpad.note("derived", sources=[message, 2])
                chat.append("user", "two", tokens=1, sources=[message])
            sources = [event.sources for event, _ in chat.events(after=2)]
            assert sources == [(), (3, 2), (3,)]

    def test_of_a_discarded_batch_are_no_sources(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        chat.append("user", "before", tokens=1)
        messages: list[Message] = []
        with pytest.raises(ZeroDivisionError):
            in_batch(memory, lambda: messages.append(chat.append("user", "lost", tokens=1)), interrupt)
        lost = messages[0]
        assert getattr(lost, "seq", 0) is None
        with refused(memory, InvalidInput, "a batch that was not committed"):
            chat.scratchpad.note("derived", sources=[lost])
        with memory.batch():
            chat.append("user", "another", tokens=1)
            with pytest.raises(InvalidInput, match="a batch that was not committed"):
                chat.scratchpad.note("derived", sources=[lost])
        assert_sound(memory)

    def test_of_another_memorys_batch_are_no_sources(self) -> None:
        memory, other = Memory(), Memory()
        with other.batch(), memory.batch():
            message = other.conversation("chat").append("user", "x", tokens=1)
            memory.conversation("chat").append("user", "y", tokens=1)
            with pytest.raises(InvalidInput, match="a batch that was not committed"):
                memory.conversation("chat").scratchpad.note("derived", sources=[message])
        assert_sound(memory)

    def test_of_a_journal_hold_the_day(self) -> None:
        with remembering() as memory:
            with memory.batch():
                note = memory.journal().append("x", day="2026-01-01")
            assert (note.day, note.text) == ("2026-01-01", "x")


class TestReading:
    def test_sees_what_the_batch_has_done_and_nobody_else_does(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "before", tokens=1)
            with memory.batch():
                chat.append("user", "inside", tokens=1)
                chat.scratchpad.set("k", "v")
                memory.profile().set("k", "v")
                assert [message.content for message in chat.window()] == ["before", "inside"]
                assert (chat.token_count(), chat.scratchpad.get("k"), memory.profile().items()) == (
                    2,
                    "v",
                    [("k", "v")],
                )
                assert elsewhere(lambda: [message.content for message in chat.window()]) == ["before"]
                assert elsewhere(lambda: (chat.scratchpad.get("k"), memory.profile().items(), memory.head)) == (
                    None,
                    [],
                    2,
                )

    def test_of_a_frozen_handle_sees_the_past_only(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "before", tokens=1)
            frozen = chat.at(2)
            with memory.batch():
                chat.append("user", "inside", tokens=1)
                assert frozen.token_count() == 1
                assert memory.state_hash() == memory.state_hash(2)

    def test_decides_on_what_the_batch_has_done(self) -> None:
        with remembering(window_tokens=10) as memory:
            chat = memory.conversation("chat")
            with memory.batch() as batch:
                chat.scratchpad.set("k", "v")
                length = len(batch)
                chat.scratchpad.set("k", "v")
                assert len(batch) == length
                assert chat.scratchpad.delete("k") is True
                assert chat.scratchpad.delete("k") is False
                chat.append("user", "pinned", tokens=8, pinned=True)
                with pytest.raises(Exception, match="would hold 11"):
                    chat.append("user", "pinned", tokens=3, pinned=True)
            assert memory.head == 4

    def test_of_a_long_history_starts_from_it(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                for number in range(600):
                    chat.scratchpad.set(f"k{number % 50}", str(number))
        with remembering(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                chat.scratchpad.set("k0", "new")
                assert (chat.scratchpad.get("k0"), chat.scratchpad.get("k49"), len(chat.scratchpad.keys())) == (
                    "new",
                    "599",
                    50,
                )


class TestAnException:
    def test_discards_everything(self) -> None:
        memory = Memory()
        memory.conversation("chat").scratchpad.set("k", "v")
        head, hashed = memory.head, memory.state_hash()
        for error in (ZeroDivisionError, KeyboardInterrupt, GeneratorExit):
            with pytest.raises(error):
                in_batch(
                    memory,
                    lambda: memory.conversation("chat").scratchpad.set("k", "other"),
                    lambda: memory.conversation("new").append("user", "x"),
                    partial(interrupt, error),
                )
        assert (memory.head, memory.state_hash(), memory.conversations()) == (head, hashed, ["chat"])
        memory.conversation("chat").scratchpad.set("k", "after")
        assert_sound(memory)

    def test_of_one_verb_that_is_caught_leaves_the_others(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            with memory.batch() as batch:
                chat.append("user", "one", tokens=1)
                length = len(batch)
                for what, value in {
                    "role": "robot",
                    "tokens": -1,
                    "expected": 7,
                    "sources": [9],
                    "metadata": [],
                }.items():
                    arguments: dict[str, Any] = {"role": "user", "content": "x", what: value}
                    with pytest.raises((InvalidInput, WrongVersion)):
                        chat.append(**arguments)
                assert len(batch) == length
                chat.append("user", "two", tokens=1)
            assert [message.content for message in chat.window()] == ["one", "two"]

    def test_in_the_first_verb_of_a_stream_leaves_it_unopened(self) -> None:
        with remembering(window_tokens=10) as memory:
            with memory.batch():
                with pytest.raises(Exception, match="pinned"):
                    memory.conversation("chat").append("user", "x", tokens=11, pinned=True)
                memory.profile().set("k", "v")
            assert memory.conversations() == []
            memory.conversation("chat").append("user", "x", tokens=1)


class TestAnotherWriter:
    def test_of_a_stream_that_was_read_makes_it_fail(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        chat.scratchpad.set("k", "0")
        with pytest.raises(WrongVersion, match="moved from version 2 to 3 while a batch was open; run the batch again"):
            in_batch(
                memory,
                chat.scratchpad.keys,
                lambda: chat.scratchpad.set("k", "1"),
                lambda: elsewhere(lambda: chat.scratchpad.set("k", "2")),
            )
        assert (chat.scratchpad.get("k"), memory.head) == ("2", 3)
        assert_sound(memory)

    @pytest.mark.parametrize("read", ["get", "window", "keys", "token_count", "version"])
    def test_after_an_explicit_read_makes_it_fail(self, read: str) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        chat.scratchpad.set("k", "0")
        reads: dict[str, Callable[[], object]] = {
            "get": lambda: chat.scratchpad.get("k"),
            "window": chat.window,
            "keys": chat.scratchpad.keys,
            "token_count": chat.token_count,
            "version": lambda: chat.version,
        }
        with pytest.raises(WrongVersion):
            in_batch(
                memory,
                reads[read],
                lambda: memory.profile().set("derived", "from it"),
                lambda: elsewhere(lambda: chat.scratchpad.set("k", "2")),
            )
        assert memory.profile().items() == []

    def test_of_a_stream_that_was_only_appended_to_is_no_conflict(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                mine = chat.append("user", "mine", tokens=1)
                chat.scratchpad.note("mine")
                elsewhere(lambda: chat.append("user", "theirs", tokens=1))
            assert [message.content for message in chat.window()] == ["theirs", "mine"]
            assert [type(event).__name__ for event, _ in chat.events()].count("ConversationOpened") == 1
            assert mine.seq == 3
            assert [stamp.version for _, stamp in chat.events()] == [1, 2, 3, 4]

    def test_that_dropped_the_fork_meanwhile_leaves_a_sound_store(self) -> None:
        with remembering() as memory:
            memory.conversation("chat").append("user", "x", tokens=1)
            fork = memory.conversation("chat").fork("fork")
            with suppress(WrongVersion):
                in_batch(
                    memory,
                    lambda: fork.append("user", "mine", tokens=1),
                    lambda: elsewhere(lambda: memory.conversation("fork").close(drop=True)),
                )
            with pytest.raises(Closed):
                fork.append("user", "after", tokens=1)
            fork = memory.conversation("fork")
            fork.append("user", "after", tokens=1)
            assert fork.window()[-1].content == "after"

    def test_is_never_kept_waiting(self) -> None:
        with remembering() as memory, memory.batch():
            memory.conversation("a").scratchpad.set("k", "v")
            elsewhere(lambda: memory.conversation("b").scratchpad.set("k", "v"))
            assert elsewhere(memory.conversations) == ["b"]


class TestExpected:
    @pytest.mark.parametrize(
        ("expected", "fits"),
        [(ANY, True), (NO_STREAM, False), (EXISTS, True), (4, True), (3, False), (0, False)],
        ids=str,
    )
    def test_counts_what_the_batch_has_added(self, expected: object, fits: bool) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        chat.append("user", "one", tokens=1)
        with memory.batch():
            chat.append("user", "two", tokens=1)
            chat.append("user", "three", tokens=1)
            if fits:
                chat.append("user", "four", tokens=1, expected=expected)
            else:
                with pytest.raises(WrongVersion, match="at version 4"):
                    chat.append("user", "four", tokens=1, expected=expected)
        assert chat.version == 4 + fits

    def test_of_no_stream_holds_for_the_first_of_a_batch(self) -> None:
        with remembering() as memory, memory.batch():
            memory.conversation("chat").append("user", "one", tokens=1, expected=NO_STREAM)
            with pytest.raises(WrongVersion):
                memory.conversation("chat").append("user", "two", tokens=1, expected=NO_STREAM)


class TestRequests:
    def test_answer_after_the_batch(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                message = chat.append("user", "one", tokens=1, request_id="r")
            assert chat.append("user", "one", tokens=1, request_id="r") == message
            with memory.batch():
                assert chat.append("user", "one", tokens=1, request_id="r") == message
            assert memory.head == 2

    def test_twice_in_one_batch_are_done_once(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                first = chat.append("user", "one", tokens=1, request_id="r")
                chat.append("user", "two", tokens=1)
                again = chat.append("user", "one", tokens=1, request_id="r")
                assert chat.scratchpad.delete("k", request_id="none") is False
                chat.scratchpad.set("k", "v")
                assert chat.scratchpad.delete("k", request_id="none") is False
            assert first == again
            assert (first.seq, again.seq, memory.head) == (2, 2, 4)
            assert chat.append("user", "one", tokens=1, request_id="r") == first

    def test_another_request_under_the_id_of_one_of_the_batch_is_refused(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            with memory.batch():
                chat.append("user", "one", tokens=1, request_id="r")
                with pytest.raises(InvalidInput, match="used for another request"):
                    chat.append("user", "two", tokens=1, request_id="r")
            assert [message.content for message in chat.window()] == ["one"]

    def test_two_tasks_with_one_request_are_answered_alike(self) -> None:
        async def both(memory: Memory) -> list[Message]:
            chat = memory.aio.conversation("chat")
            return await asyncio.gather(*(chat.append("user", "one", tokens=1, request_id="r") for _ in range(2)))

        with remembering() as memory:
            first, second = asyncio.run(both(memory))
            assert first == second
            assert memory.head == 2

    def test_of_a_discarded_batch_are_forgotten(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            with pytest.raises(ZeroDivisionError):
                in_batch(memory, lambda: chat.append("user", "one", tokens=1, request_id="r"), interrupt)
            chat.append("user", "another", tokens=1, request_id="r")
            assert [message.content for message in chat.window()] == ["another"]

    def test_of_what_changed_nothing_are_remembered(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        with memory.batch():
            assert chat.scratchpad.delete("k", request_id="r") is False
        chat.scratchpad.set("k", "v")
        assert chat.scratchpad.delete("k", request_id="r") is False
        assert chat.scratchpad.get("k") == "v"


def test_a_request_that_another_thread_is_folding_is_answered_once_it_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_durable, may_fold, write = threading.Event(), threading.Event(), LmdbTurn.write

    def write_and_wait(*arguments: Any, **options: Any) -> int:
        number = write(*arguments, **options)
        is_durable.set()
        may_fold.wait(60)
        return number

    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        chat.append("user", "open")
        monkeypatch.setattr(LmdbTurn, "write", write_and_wait)
        with ThreadPoolExecutor() as pool:
            other = pool.submit(chat.append, "user", "once", request_id="one")
            is_durable.wait(60)
            threading.Timer(0.1, may_fold.set).start()
            with memory.batch():
                chat.append("user", "once", request_id="one")
                assert [message.content for message in chat.window()] == ["open", "once"]
            assert other.result(60).seq == chat.window()[-1].seq


def test_a_conversation_that_a_batch_opens_to_cite_it_is_written_to_there(memory: Memory) -> None:
    with memory.batch():
        chat = memory.conversation("new")
        memory.profile().set("theme", "dark", sources=chat.session.provenance())
        chat.append("user", "I like it dark.")
    assert [message.content for message in chat.window()] == ["I like it dark."]
    assert memory.profile().get("theme") == "dark"
    assert_sound(memory)


def drops(memory: Memory) -> None:
    memory.conversation("fork").close(drop=True)


def erases(memory: Memory) -> None:
    memory.conversation("fork").erase()


def keeps(memory: Memory) -> None:
    memory.conversation("another").append("user", "said meanwhile")


WRITES: list[Callable[[Conversation], object]] = [
    lambda chat: chat.append("user", "late"),
    lambda chat: chat.scratchpad.set("key", "late"),
    lambda chat: chat.state.set("key", "late"),
]
READS: list[Callable[[Conversation], object]] = [
    lambda chat: chat.version,
    lambda chat: chat.window(),
    lambda chat: chat.session.provenance(),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("meanwhile", [drops, erases, keeps])
def test_what_was_closed_behind_a_blind_write_is_not_written_to(
    memory: Memory,
    meanwhile: Callable[[Memory], None],
    write: Callable[[Conversation], object],
    read: Callable[[Conversation], object],
) -> None:
    memory.conversation("chat").append("user", "hello")
    fork = memory.conversation("chat").fork("fork")
    fork.append("user", "b")

    def run() -> None:
        with memory.batch():
            write(fork)
            elsewhere(lambda: meanwhile(memory))
            read(fork)

    if meanwhile is keeps:
        run()
    else:
        with pytest.raises(WrongVersion):
            run()
    assert_sound(memory)
    assert ("fork" in memory.conversations()) is (meanwhile is keeps)
    assert "late" not in repr(list(memory.events())) or meanwhile is keeps


def test_a_conversation_that_a_batch_restores_is_written_to_there(memory: Memory) -> None:
    memory.conversation("chat").append("user", "hello")
    snapshot = memory.conversation("chat").snapshot()
    with memory.batch():
        new = memory.conversation("new")
        new.restore(snapshot)
        new.append("user", "Where were we?")
    assert [message.content for message in new.window()] == ["hello", "Where were we?"]
    assert_sound(memory)


def test_a_batch_that_was_interrupted_as_it_began_takes_no_writes() -> None:
    with remembering() as memory:
        # The state that an interrupt leaves right after the batch became known to its context.
        token = batches.OPEN.set((memory.batch(),))
        memory.profile().set("k", "v")
        assert memory.head == 1
        with memory.batch():
            memory.profile().set("k", "w")
        batches.OPEN.reset(token)
        assert memory.profile().get("k") == "w"
