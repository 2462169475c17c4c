"""Two processes keep checkpoint rows of the same streams, each from what it knows, and neither spoils the other's."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.log.lmdb_log import LmdbLog, LmdbTurn
from tests.support.bounds import Clock, lowered
from tests.support.memories import assert_sound
from tests.support.other_process import Elsewhere, LengthCounter
from tests.support.seams import reader_of

EVERY_EVENT = {"CHECKPOINT_EVENTS": 1, "TAIL_EVENTS_MAX": 2, "PAGE_EVENTS": 1}
SELDOM = {"CHECKPOINT_EVENTS": 1_000, "TAIL_EVENTS_MAX": 3, "PACKED_COUNT_MIN": 1}


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere(Clock()) as worker:
        yield worker


def opened(path: Path) -> Memory:
    return Memory(path, token_counter=LengthCounter(), window_tokens=128_000)


def assert_left_sound(path: Path, tmp_path: Path) -> None:
    """What lies on disk is sound for whoever opens it next."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    shutil.copyfile(path / "data.mdb", copy / "data.mdb")
    with opened(copy) as memory:
        assert_sound(memory)


@pytest.mark.parametrize("bounds", [EVERY_EVENT, SELDOM], ids=["every event", "seldom"])
def test_a_kept_row_is_never_taken_away(tmp_path: Path, elsewhere: Elsewhere, bounds: dict[str, int]) -> None:
    path = tmp_path / "store"
    with lowered(**bounds), opened(path) as memory:
        memory.profile().set("k", "")
        other: Any = elsewhere.opened(path, bounds, 2, window_tokens=128_000)
        other.conversation("a").append("user", "there")
        memory.restore(memory.at(0).snapshot())
        memory.conversation("a").snapshot("one")
        for text in ("one", "two", "three"):
            other.conversation("a").append("user", text)
            assert_left_sound(path, tmp_path)
            memory.conversation("a").append("user", text)
            memory.flush()
            assert_left_sound(path, tmp_path)
        other.flush()
        assert other.state_hash() == assert_sound(memory)
        elsewhere.shut()
    assert_left_sound(path, tmp_path)


def test_a_row_of_what_is_not_known_yet_is_caught_up_with(
    tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look for foreign commits and the load of a stream another process may write both: here it does."""
    path = tmp_path / "store"
    with lowered(**EVERY_EVENT), opened(path) as memory:
        other: Any = elsewhere.opened(path, EVERY_EVENT, 2, window_tokens=128_000)
        other.conversation("a").append("user", "message 0")
        assert memory.head == 2
        for number in range(1, 8):
            other.conversation("a").append("user", f"message {number}")
        with monkeypatch.context() as patch:
            known = reader_of(memory).last_commit
            patch.setattr(LmdbLog, "last_commit", lambda _: known)
            window = memory.conversation("a").window()
        assert [message.content for message in window] == [f"message {number}" for number in range(8)]
        other.conversation("a").append("user", "the last")
        assert len(memory.conversation("a").window()) == 9
        assert other.state_hash() == assert_sound(memory)
        elsewhere.shut()


def test_a_commit_that_a_read_has_found_in_the_log_is_not_folded_twice(
    tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a commit that is durable and not folded yet, another process writes a row; a read has to catch up."""
    path = tmp_path / "store"
    with lowered(**EVERY_EVENT), opened(path) as memory:
        other: Any = elsewhere.opened(path, EVERY_EVENT, 2, window_tokens=128_000)
        memory.conversation("mine").append("user", "message 0")
        other.conversation("theirs").append("user", "message 0")
        assert memory.head == 4
        write = LmdbTurn.write

        def write_and_be_overtaken(turn: LmdbTurn, *arguments: Any) -> int:
            commit = write(turn, *arguments)
            for number in range(1, 4):
                other.conversation("theirs").append("user", f"message {number}")
            assert len(memory.conversation("theirs").window()) == 4
            return commit

        with monkeypatch.context() as patch:
            patch.setattr(LmdbTurn, "write", write_and_be_overtaken)
            memory.conversation("mine").append("user", "message 1")
        assert [message.content for message in memory.conversation("mine").window()] == ["message 0", "message 1"]
        assert len(memory.conversation("theirs").window()) == 4
        assert other.state_hash() == assert_sound(memory)
        elsewhere.shut()


def test_a_source_may_be_what_another_process_has_just_written(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with opened(tmp_path / "store") as memory:
        other: Any = elsewhere.opened(tmp_path / "store", {}, 2, window_tokens=128_000)
        seq = memory.conversation("a").append("user", "hello").seq
        assert other.conversation("b").append("assistant", "hi", sources=[seq]).seq > seq


@pytest.mark.parametrize("count", [3, 4, 5, 8])
def test_a_past_moment_is_read_beside_rows_of_both(tmp_path: Path, elsewhere: Elsewhere, count: int) -> None:
    """A row that waits here for the next commit may be older than one that the other process has written since."""
    path, bounds = tmp_path / "store", {"CHECKPOINT_EVENTS": 4}
    with lowered(**bounds), opened(path) as memory:
        chat = memory.conversation("a")
        for number in range(count - 1):  # Behind the event that opens it.
            chat.append("user", f"here {number}")
        other: Any = elsewhere.opened(path, bounds, 2, window_tokens=128_000)
        for number in range(12):
            other.conversation("a").append("user", f"there {number}")
        memory.refresh()
        for seq in range(memory.head + 1):
            past = memory.at(seq)
            assert past.state_hash() == past.replay_hash()
            assert len(past.conversation("a").window()) == max(seq - 1, 0)
        assert_sound(memory)
        elsewhere.shut()
    assert_left_sound(path, tmp_path)
