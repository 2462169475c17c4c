"""What an operation costs as the store grows: a store for each size, all asked in turns, and the slope of it.

The slope is that of a line through the logarithms of size and cost: 0 is a cost that does not grow, 1 one that grows as
the store does. It is taken from the processor time of the calling thread, which does not see the disk or a neighbour.
"""

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, cycle
from typing import Any, NamedTuple

import workloads
from rounds import quantile
from rows.search import vectors
from rows.table import Options, Row

from refold import Memory

CONVERSATIONS = 2
"""Few, so that a conversation of the smallest store, too, has a full window and several checkpoints behind it."""

SLOPE_MAX = 0.05
FLAT = ("append", "window", "at", "fork")
"""Operations that may not grow with the events of a store."""

OPERATIONS = 10
BATCH = 1_000
ROUNDS_MAX = 20
"""Rounds over memories: a search of a hundred thousand takes milliseconds, ten times in each."""

ROOM_BYTES = 8 * 1024**3
"""What a store of memories may hold in RAM: far more than the vectors of the largest take."""

Call = Callable[[], object]


class Point(NamedTuple):
    """What an operation costs at a size, in nanoseconds: of the processor, and on the clock."""

    size: int
    processor_ns: float
    wall_ns: float


class Events:
    """A store of so many events, and operations on it."""

    def __init__(self, memory: Memory, events: int) -> None:
        self.memory = memory
        seqs = list(range(events * 11 // 20, events))
        random.Random(workloads.SEED).shuffle(seqs)
        self._seqs = cycle(seqs)
        """No seq is asked for twice, as long as there are enough, so that no state that is kept is ever found."""

        self._texts = workloads.texts()
        self._forks = count()
        self._turn = count()

    def calls(self) -> dict[str, Call]:
        """Return the operations by their names."""
        return {"append": self.append, "window": self.window, "at": self.at, "fork": self.fork}

    def _chat(self) -> Any:
        return self.memory.conversation(f"chat-{next(self._turn) % CONVERSATIONS:04d}")

    def append(self) -> object:
        """Append a message, durable when it returns."""
        content, tokens = self._texts[next(self._turn) % len(self._texts)]
        return self._chat().append("user", content, tokens=tokens)

    def window(self) -> object:
        """Read a window."""
        return self._chat().window()

    def at(self) -> object:
        """Read a window as of any seq behind the first full windows."""
        return self._chat().at(next(self._seqs)).window()

    def fork(self) -> object:
        """Fork a conversation as of any such seq."""
        return self._chat().fork(f"fork-{next(self._forks)}", at=next(self._seqs))


class Memories:
    """A store of so many memories in one project, and operations on it."""

    def __init__(self, memory: Memory, memories: int) -> None:
        self.memory = memory
        self._project = memory.project()
        self._places = count(memories)
        self._vectors = vectors(256, 2)
        drawn = vectors(memories, 1)
        for begin in range(0, memories, BATCH):
            with memory.batch():
                for place in range(begin, min(begin + BATCH, memories)):
                    self._project.add(f"memory {place}", vector=drawn[place], keywords=())
        self.search()

    def calls(self) -> dict[str, Call]:
        """Return the operations by their names."""
        return {"add": self.add, "search": self.search}

    def add(self) -> object:
        """Add a memory whose vector is given."""
        place = next(self._places)
        return self._project.add(f"memory {place}", vector=self._vectors[place % 256], keywords=())

    def search(self) -> object:
        """Find the ten best."""
        return self._project.search("memory", ranking="seed", vector=self._vectors[next(self._places) % 256])


def slope(points: list[Point]) -> float:
    """Return the slope of the processor's time over the size, both as logarithms: least squares."""
    across = [math.log(point.size) for point in points]
    up = [math.log(point.processor_ns) for point in points]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    spread = sum((each - middle) ** 2 for each in across)
    return sum((one - middle) * (two - height) for one, two in zip(across, up, strict=True)) / spread


def measured(calls: dict[int, dict[str, Call]], rounds: int) -> dict[str, list[Point]]:
    """Return what each operation costs at each size: all sizes in turns, the fastest quarter of the rounds."""
    points: dict[str, list[Point]] = {}
    for name in next(iter(calls.values())):
        samples: dict[int, list[tuple[float, float]]] = {size: [] for size in calls}
        sizes = list(calls)
        for place in range(rounds + 1):
            shift = place % len(sizes)
            for size in sizes[shift:] + sizes[:shift]:
                sample = _timed(calls[size][name])
                if place:
                    samples[size].append(sample)
        points[name] = [_point(size, samples[size]) for size in sizes]
    return points


def _timed(call: Call) -> tuple[float, float]:
    wall, processor = time.perf_counter_ns(), time.thread_time_ns()
    for _ in range(OPERATIONS):
        call()
    processor, wall = time.thread_time_ns() - processor, time.perf_counter_ns() - wall
    return processor / OPERATIONS, wall / OPERATIONS


def _point(size: int, samples: list[tuple[float, float]]) -> Point:
    processor, wall = zip(*samples, strict=True)
    return Point(size, quantile(processor, 2), quantile(wall, 2))


def events_grown(options: Options) -> dict[str, list[Point]]:
    """Return the costs over stores of events."""
    with ExitStack() as closing:
        calls: dict[int, dict[str, Call]] = {}
        for size in options.sizes.growth_events:
            path = options.directory / f"growth-{size}"
            memory = closing.enter_context(workloads.fill(path, size, CONVERSATIONS))
            calls[size] = Events(memory, size).calls()
        return measured(calls, options.rounds)


def memories_grown(options: Options) -> dict[str, list[Point]]:
    """Return the costs over stores of memories."""
    with ExitStack() as closing:
        calls: dict[int, dict[str, Call]] = {}
        for size in options.sizes.growth_memories:
            memory = closing.enter_context(Memory(options.directory / f"grown-{size}", memory_bytes=ROOM_BYTES))
            calls[size] = Memories(memory, size).calls()
        return measured(calls, min(options.rounds, ROUNDS_MAX))


def rows(options: Options) -> Iterator[Row]:
    """Measure how costs grow with events and with memories."""
    for what, grown in (("events", events_grown(options)), ("memories", memories_grown(options))):
        for name, points in grown.items():
            yield _row(f"{name}, {what}", points, name in FLAT and what == "events")


def _row(job: str, points: list[Point], is_flat: bool) -> Row:
    found = slope(points)
    costs = ", ".join(f"{point.size:,}: {point.wall_ns / 1_000:,.0f} us" for point in points)
    note = f"slope {found:+.3f}; {costs}"
    target = f"slope at most {SLOPE_MAX:g}" if is_flat else ""
    met = found <= SLOPE_MAX if is_flat else None
    return Row(f"growth of {job}", points[-1].wall_ns, "-", target=target, is_met=met, note=note, points=points)
