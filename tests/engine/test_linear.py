"""What a store takes on disk, and what writing takes, grows with the events alone, whatever kind of memory they change.

Each way of writing adds one thing after another to one handle: keys, notes, messages, memories, files, skills, parts
of a board, snapshots, forks. Four times as many may take little more than four times the room and the work, which is
counted: bytes of checkpoint rows, events that are folded or read again, and instructions of one more write.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from refold import Memory
from refold import fold as folding
from refold.engine.streams import Checkpoints
from refold.limits import BASE_DEPTH_MAX
from refold.log.lmdb_file import DATA_FILE
from refold.log.lmdb_log import LmdbLog
from tests.support.bounds import lowered
from tests.support.steps import steps_of

Write = Callable[[int], Any]

DIMENSIONS: Final = 8
FILES: Final = 500


def vector(number: int) -> Any:
    return np.random.default_rng(number).standard_normal(DIMENSIONS)


def chain(memory: Memory) -> Write:
    """Forks of forks, as deep as they may be, then from the first one again."""
    first = memory.conversation("c")
    first.append("user", "the first")
    last = [first]

    def write(number: int) -> None:
        last[0] = (last[0] if number % BASE_DEPTH_MAX else first).fork(f"fork {number}")
        last[0].append("user", "one more")

    return write


def snapshots(memory: Memory) -> Write:
    def write(number: int) -> None:
        memory.conversation("c").append("user", "hello")
        memory.conversation("c").snapshot(f"snapshot {number}")

    return write


def calls(memory: Memory) -> Write:
    """Calls of tools with their answers, in a large window."""
    chat = memory.conversation("c", window_tokens=10_000_000)

    def write(number: int) -> None:
        call = {"id": f"call{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        chat.append("assistant", f"look {number}", tool_calls=[call])
        chat.append("tool", "seen", tool_call_id=f"call{number}")

    return write


TOGETHER: Final[dict[str, Callable[[Memory], Write]]] = {
    "scratchpad": lambda memory: lambda number: memory.conversation("c").scratchpad.set(f"key {number}", "a value"),
    "notes": lambda memory: lambda number: memory.conversation("c").scratchpad.note(f"note {number}"),
    "session state": lambda memory: lambda number: memory.conversation("c").state.set(f"key{number}", number),
    "project state": lambda memory: (
        lambda number: memory.conversation("c", project="p").state.set(f"project:key{number}", number)
    ),
    "long values": lambda memory: lambda number: memory.conversation("c").scratchpad.set(f"key {number}", 300 * "x"),
    "profile": lambda memory: lambda number: memory.profile().set(f"key {number}", f"value {number}"),
    "journal": lambda memory: lambda number: memory.journal().append(f"note {number}"),
    "messages": lambda memory: lambda number: memory.conversation("c").append("user", f"message {number}"),
    "live messages": lambda memory: (
        lambda number: memory.conversation("c", window_tokens=10_000_000).append("user", f"message {number}")
    ),
    "pinned messages": lambda memory: (
        lambda number: memory.conversation("c", window_tokens=10_000_000).append("user", f"{number}", pinned=True)
    ),
    "calls of tools": calls,
    "findings": lambda memory: lambda number: memory.conversation("c").session.note_finding(f"finding {number}"),
    "files read": lambda memory: (
        lambda number: memory.conversation("c").session.note_file(f"{number}.txt", lines=1, size_bytes=2)
    ),
    "calls recorded": lambda memory: (
        lambda number: memory.conversation("c").session.record_call(f"tool{number}", {"path": "a"}, "text")
    ),
    "memories": lambda memory: (
        lambda number: memory.project("p").add(f"fact {number}", vector=vector(number), keywords=["fact", f"w{number}"])
    ),
    "episodes": lambda memory: (
        lambda number: memory.project("p").record_episode("success", task=f"task {number}", vector=vector(number))
    ),
    "files": lambda memory: lambda number: _wrote(memory, number),
    "skills": lambda memory: (
        lambda number: memory.skills.library.learn(f"skill-{number}", f"What skill {number} is for.", "Do it.\n")
    ),
    "skills used": lambda memory: lambda number: memory.skills.library.use(f"skill-{number}", succeeded=True),
    "skills noted": lambda memory: lambda number: memory.skills.library.note(f"skill-{number}", "Ask first."),
    "messages of a board": lambda memory: (
        lambda number: memory.board(session="s").append_message({"role": "user", "content": f"message {number}"})
    ),
    "conversations": lambda memory: lambda number: memory.conversation(f"c{number}").append("user", "hello"),
    "usage": lambda memory: lambda _: memory.settings.count_usage("memory_injected"),
}
"""Ways to write that a batch takes together."""

ALONE: Final[dict[str, Callable[[Memory], Write]]] = {
    "snapshots": snapshots,
    "forks in a chain": chain,
    "nodes of a board": lambda memory: (
        lambda number: memory.board(session="s").set_node_context({"id": f"n{number}", "meta": {"number": number}})
    ),
    "forks of the memory": lambda memory: lambda number: memory.fork(f"fork {number}"),
    "actors": lambda memory: lambda number: _acted(memory, number),
}
"""Ways to write that are commits of their own."""

WAYS: Final = {**TOGETHER, **ALONE}

LARGEST: Final = {"messages": (1_000_000,), "conversations": (1_000_000,), "snapshots": (100_000,)}


def _acted(memory: Memory, number: int) -> None:
    with memory.acting(f"tool:{number}"):
        memory.profile("actors").set("name", f"{number}")


def _wrote(memory: Memory, number: int) -> None:
    """Create a file, or edit one once there are as many as this test wants, for a tree of files is bounded."""
    path, text = f"/memories/{number % FILES}.txt", f"text {number}"
    if number < FILES:
        memory.files().create(path, text)
    else:
        memory.files().str_replace(path, f"text {number - FILES}", text)


class Work(NamedTuple):
    """What so many writes took: on disk, and on the way."""

    disk_bytes: int
    row_bytes: int
    folds: int
    reads: int
    steps: int
    """What the cheapest of the last few writes executed, in instructions of Python."""


class Counter:
    """Counts the bytes of checkpoint rows that are made, the events that are folded, and those that are read again."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.row_bytes = self.folds = self.reads = 0
        put, fold, read, events_at = Checkpoints.put, folding.fold, LmdbLog.read, LmdbLog.events_at

        def noted(checkpoints: Any, number: int, row: Any, **options: Any) -> None:
            self.row_bytes += len(row.inline) + 8 * (len(row.pointed) + len(row.since))
            put(checkpoints, number, row, **options)

        def counted(*given: Any) -> None:
            self.folds += 1
            fold(*given)

        def counting_records(log: Any, after: int, until: int) -> Any:
            found = read(log, after, until)
            self.reads += min(until, found[-1][0]) - after if found else 0
            return found

        def counting_events(log: Any, seqs: Any) -> Any:
            self.reads += len(seqs)
            return events_at(log, seqs)

        patch.setattr(Checkpoints, "put", noted)
        patch.setattr(folding, "fold", counted)
        patch.setattr(LmdbLog, "read", counting_records)
        patch.setattr(LmdbLog, "events_at", counting_events)

    def work(self, path: Path, name: str, count: int, each: int) -> Work:
        """Write so many things, close the store, and return what it took."""
        self.row_bytes = self.folds = self.reads = 0
        with Memory(path, durability="delayed") as memory:
            one = WAYS[name](memory)
            for first in range(0, count, each):
                with memory.batch() if name in TOGETHER else nullcontext():
                    for number in range(first, min(first + each, count)):
                        one(number)
            # A fork executes more the deeper it is: among so many there is one of each depth.
            # Each is counted with nothing to flush: what is read from the tail takes other steps than from the disk.
            steps = min(steps_flushed(memory, partial(one, number)) for number in range(count, count + BASE_DEPTH_MAX))
        disk_bytes = (path / DATA_FILE).stat().st_size
        return Work(disk_bytes, self.row_bytes, self.folds, self.reads, steps)


def steps_flushed(memory: Memory, work: Callable[[], object]) -> int:
    memory.flush()
    return steps_of(work)


def assert_linear(taken: Sequence[tuple[int, Work]]) -> None:
    for (few, less), (many, more) in pairwise(taken):
        times = many / few
        assert more.disk_bytes <= 1.3 * times * less.disk_bytes, taken
        assert more.row_bytes <= 1.6 * times * less.row_bytes + 16_384, taken
        assert more.folds <= 1.25 * times * less.folds, taken
        assert more.reads <= BASE_DEPTH_MAX * many, taken  # A fork reads what it inherits, which is so deep at most.
        assert more.steps <= 1.2 * less.steps, taken


@pytest.mark.parametrize("name", WAYS)
def test_a_store_and_what_it_takes_grow_with_the_events(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)
    with lowered(CHECKPOINT_EVENTS=8):
        assert_linear([(count, counter.work(tmp_path / str(count), name, count, 50)) for count in (500, 4_000)])


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", WAYS)
def test_large_stores_grow_with_the_events(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter, sizes = Counter(monkeypatch), (5_000, 20_000, 80_000, *LARGEST.get(name, ()))
    assert_linear([(count, counter.work(tmp_path / str(count), name, count, 100)) for count in sizes])
