"""What a store takes on disk, and what writing takes, grows with the events alone, whatever kind of memory they change.

Each way of writing adds one thing after another to one handle: keys, notes, messages, memories, files, skills, parts
of a board, snapshots, forks. Four times as many may take little more than four times the room and the work.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from refold import Memory
from refold import fold as folding
from refold.engine.streams import Checkpoints
from refold.limits import BASE_DEPTH_MAX
from tests.support.bounds import lowered

Write = Callable[[int], Any]

DIMENSIONS: Final = 8


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
    "files": lambda memory: lambda number: memory.files().create(f"/memories/{number}.txt", f"text {number}\n"),
    "skills": lambda memory: (
        lambda number: memory.skills.library.learn(f"skill-{number}", f"What skill {number} is for.", "Do it.\n")
    ),
    "skills used": lambda memory: lambda number: memory.skills.library.use(f"skill-{number}", succeeded=True),
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


def _acted(memory: Memory, number: int) -> None:
    with memory.acting(f"tool:{number}"):
        memory.profile("actors").set("name", f"{number}")


def write(path: Path, name: str, count: int, each: int) -> tuple[int, float]:
    """Writes so many things, and returns the bytes on disk, and the seconds it took until the store was closed."""
    begin = time.perf_counter()
    with Memory(path) as memory:
        one = WAYS[name](memory)
        for first in range(0, count, each):
            numbers = range(first, min(first + each, count))
            if name in TOGETHER:
                with memory.batch():
                    for number in numbers:
                        one(number)
            else:
                for number in numbers:
                    one(number)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()), time.perf_counter() - begin


class Work:
    """Counts the bytes of checkpoint rows that are made, and the events that are folded."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.row_bytes = self.folded = 0
        put, fold = Checkpoints.put, folding.fold

        def noted(checkpoints: Any, number: int, row: Any, **options: Any) -> None:
            self.row_bytes += len(row.inline) + 8 * len(row.pointed)
            put(checkpoints, number, row, **options)

        def counted(*given: Any) -> None:
            self.folded += 1
            fold(*given)

        patch.setattr(Checkpoints, "put", noted)
        patch.setattr(folding, "fold", counted)


@pytest.mark.parametrize("name", WAYS)
def test_rows_and_folds_grow_with_the_events(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    taken: list[tuple[int, int]] = []
    with lowered(CHECKPOINT_EVENTS=8):
        for count in (100, 400):
            before = work.row_bytes, work.folded
            write(tmp_path / str(count), name, count, 10)
            taken.append((work.row_bytes - before[0], work.folded - before[1]))
    (few_bytes, few_folds), (many_bytes, many_folds) = taken
    assert many_bytes <= 6.5 * few_bytes + 4_096, taken
    assert many_folds <= 5 * few_folds, taken


SLOW_SIZES: Final = (5_000, 20_000, 80_000)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", WAYS)
def test_stores_and_times_grow_with_the_events(name: str, tmp_path: Path) -> None:
    sizes = SLOW_SIZES if name in TOGETHER else tuple(size // 10 for size in SLOW_SIZES)
    taken = [write(tmp_path / str(count), name, count, 100) for count in sizes]
    for (few_bytes, few_seconds), (many_bytes, many_seconds) in pairwise(taken):
        assert many_bytes <= 5.5 * few_bytes, taken
        assert many_seconds <= 7 * few_seconds + 1.0, taken
