"""What a writing thread does next: drawn from a seed, on streams of its own and on one that all threads share."""

import time
from collections.abc import Callable
from random import Random
from typing import Final

from refold import Memory
from tests.rigs.history.record import Call, Look, Write

SHARED: Final = "shared"
KEYS: Final = ("plan", "result")
PADDINGS_BYTES: Final = (0, 0, 0, 100, 1_500, 6_000)
"""Most messages are short; some fill a page of the file, and some do not fit into one."""

LOOK_AFTER_WRITE_PROBABILITY: Final = 0.5
STALE_PROBABILITY: Final = 0.2


class Planner:
    """The calls of one thread of one process, one after the other."""

    def __init__(self, name: str, process: int, random: Random, memory: Memory) -> None:
        self._name = name
        self._process = process
        self._random = random
        self._memory = memory
        self._streams = (SHARED, f"own-{name.partition('.')[2]}")
        self._count = 0
        self._last: Call | None = None

    def next(self) -> Call:
        """Return the next call; it is invoked now."""
        last = self._last
        if last is not None and last.writes and self._random.random() < LOOK_AFTER_WRITE_PROBABILITY:
            write = self._random.choice(last.writes)
            return self._call(look=Look(write.stream, write.key))
        kinds = list(KINDS)
        (kind,) = self._random.choices(kinds, weights=[KINDS[kind] for kind in kinds])
        return kind(self)

    def append(self) -> Call:
        """A message, sometimes at an expected version."""
        stream = self._random.choice(self._streams)
        expected = self._version(stream) if self._random.random() < STALE_PROBABILITY else None
        return self._call(self._message(stream, 0, expected))

    def batch(self) -> Call:
        """Messages to both streams, all or none; sometimes at an expected version of the shared one."""
        expected = self._version(SHARED) if self._random.random() < STALE_PROBABILITY else None
        own = self._message(self._streams[1], 0, None)
        return self._call(own, self._message(SHARED, 1, expected), self._message(self._streams[1], 2, None))

    def set(self) -> Call:
        """A scratchpad key at the version that its stream was just seen at, or at an older one."""
        stream = self._random.choice(self._streams)
        return self._call(Write(stream, self._mark(0), self._random.choice(KEYS), self._version(stream)))

    def look(self) -> Call:
        """A look at what somebody else may have written."""
        return self._call(look=Look(self._random.choice(self._streams), self._random.choice(("", *KEYS))))

    def again(self) -> Call:
        """The last call once more, under its name: a write is not done twice."""
        last = self._last
        if last is None or not last.writes:
            return self.append()
        self._last = Call(last.name, last.process, time.monotonic_ns(), last.writes, last.look)
        return self._last

    def _version(self, stream: str) -> int:
        stale = 1 if self._random.random() < STALE_PROBABILITY else 0
        return max(self._memory.conversation(stream).version - stale, 0)

    def _mark(self, place: int) -> str:
        return f"{self._name}.{self._count}.{place}"

    def _message(self, stream: str, place: int, expected: int | None) -> Write:
        padding_bytes = self._random.choice(PADDINGS_BYTES)
        return Write(stream, self._mark(place), expected=expected, padding_bytes=padding_bytes)

    def _call(self, *writes: Write, look: Look | None = None) -> Call:
        name = f"{self._name}.{self._count}"
        self._count += 1
        self._last = Call(name, self._process, time.monotonic_ns(), writes, look)
        return self._last


KINDS: Final[dict[Callable[[Planner], Call], int]] = {
    Planner.append: 6,
    Planner.batch: 3,
    Planner.set: 3,
    Planner.look: 3,
    Planner.again: 1,
}
"""How often each kind of call is drawn."""
