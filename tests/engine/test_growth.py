"""What one call costs does not grow with what it does not concern: forks, conversations, other events."""

from functools import partial
from pathlib import Path

import pytest

from refold import Memory
from refold.memory import store as memories
from tests.support.memories import assert_sound
from tests.support.seams import counted_reads
from tests.support.steps import steps_of

SMALL, LARGE = 60, 240
STEPS_OF_A_WORD = 1_500
"""How many instructions one word of a new memory may take: its pieces are hashed and its postings are made."""


def with_forks(path: Path, count: int) -> Memory:
    memory = Memory(path, durability="delayed")
    for number in range(5):
        memory.conversation(f"chat-{number}").append("user", "hello")
    for number in range(count):
        memory.fork(f"fork-{number}")
    return memory


def test_a_fork_of_the_memory_looks_at_no_other_one(tmp_path: Path) -> None:
    steps = list[int]()
    for count in (SMALL, LARGE):
        with with_forks(tmp_path / str(count), count) as memory:
            memory.fork("first")
            steps.append(min(steps_of(partial(memory.fork, name)) for name in ("second", "third", "fourth")))
    assert steps[1] < 1.2 * steps[0]


def test_erasing_an_event_reads_nothing_for_the_forks_that_only_inherit_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[int]()
    for count in (SMALL, LARGE):
        with with_forks(tmp_path / str(count), count) as memory:
            said = memory.conversation("chat-1").append("user", "a secret of some length")
            changed = memory.fork("fork-3").conversation("chat-1")
            changed.append("user", "its own")
            with monkeypatch.context() as patch:
                reads = counted_reads(memory, patch)
                assert memory.erase([said]).seqs == (said.seq,)
                read.append(len(reads))
            assert_sound(memory)
    assert read[1] < 1.5 * read[0]


def test_erasing_a_conversation_reads_the_forks_of_the_memory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[int]()
    for count in (SMALL, LARGE):
        with with_forks(tmp_path / str(count), count) as memory:
            memory.conversation("late").append("user", "a secret of some length")
            with monkeypatch.context() as patch:
                reads = counted_reads(memory, patch)
                memory.conversation("late").erase()
                read.append(sum(reads))
            assert_sound(memory)
    assert read[1] < 2 * LARGE / SMALL * read[0]


def test_the_repr_of_a_memory_counts_no_more_than_a_thousand_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "_COUNTED_MAX", 10)
    steps = list[int]()
    for count in (300, 1_200):  # More than a page of names.
        with Memory(tmp_path / str(count), durability="delayed") as memory:
            with memory.batch():
                for number in range(count):
                    memory.conversation(f"chat-{number}").append("user", "hello")
            fork = memory.fork("fork")
            memory.flush()
            assert "conversations=more than 10" in repr(fork)
            steps.append(steps_of(partial(repr, fork)))
    assert steps[1] < 1.2 * steps[0]


def test_the_conversations_of_a_past_moment_cost_their_number_and_a_page_of_them_its_size(tmp_path: Path) -> None:
    whole, paged = list[int](), list[int]()
    for count in (300, 1_200):
        with Memory(tmp_path / str(count), durability="delayed") as memory:
            with memory.batch():
                for number in range(count):
                    memory.conversation(f"chat-{number}").append("user", "hello")
            memory.flush()  # What waits to be written is looked through at each read.
            for past in (memory.at(memory.head - 1), memory.fork("fork").at(memory.head - 2)):
                assert len(past.conversations()) >= count - 1
                whole.append(steps_of(past.conversations))
                paged.append(steps_of(partial(past.conversations, limit=10)))
    for here in (0, 1):
        assert whole[here + 2] < 1.3 * 1_200 / 300 * whole[here]
        assert paged[here + 2] < 1.2 * paged[here]


def test_a_memory_of_many_words_costs_their_number(tmp_path: Path) -> None:
    steps = list[int]()
    for count in (1_000, 4_000):
        with Memory(tmp_path / str(count), durability="delayed") as memory:
            memory.add("What comes first loads numpy.")
            steps.append(steps_of(partial(memory.add, " ".join(f"word{count}x{number}" for number in range(count)))))
    assert steps[1] < 1.2 * 4_000 / 1_000 * steps[0]
    assert steps[1] < 4_000 * STEPS_OF_A_WORD


def test_snapshots_are_paged() -> None:
    with Memory() as memory:
        names = list[str]()
        for number in range(5):
            memory.conversation(f"chat-{number}").append("user", "hello")
            memory.snapshot(f"whole-{number}")
            memory.conversation(f"chat-{number}").snapshot(f"one-{number}")
            names += [f"whole-{number}", f"one-{number}"]
        found, page = list[str | None](), memory.snapshots(limit=3)
        while page:
            assert len(page) <= 3
            found += [snapshot.name for snapshot in page]
            page = memory.snapshots(after=page[-1], limit=3)
        assert found == [snapshot.name for snapshot in memory.snapshots()]
        assert sorted(names) == sorted(map(str, found))
        assert memory.snapshots(limit=0) == []
