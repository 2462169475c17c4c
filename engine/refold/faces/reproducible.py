"""Opening stores for the command line, on a fixed clock and random source where REFOLD_CLOCK_NS asks for them."""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from refold.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from refold import Memory, Recovered

CLOCK_VARIABLE: Final = "REFOLD_CLOCK_NS"
_STEP_NS: Final = 1_000_000
_START_NS_MAX: Final = 2**62


class Doors:
    """A clock that advances a millisecond at each reading, and bytes that are a hash of where they are drawn."""

    def __init__(self, start_ns: int) -> None:
        self._time_ns = start_ns
        self._seed = str(start_ns)
        self._blocks = 0

    def clock_ns(self) -> int:
        """Return the next moment."""
        self._time_ns += _STEP_NS
        return self._time_ns

    def random_bytes(self, count: int) -> bytes:
        """Return the next bytes of the stream: SHA-256 of a seed and a counter."""
        drawn = b""
        while len(drawn) < count:
            drawn += sha256(f"{self._seed}/{self._blocks}".encode()).digest()
            self._blocks += 1
        return drawn[:count]

    def reseed(self, head: int) -> None:
        """Go on with bytes of their own for this head: commands on one store would else draw the same ids again."""
        self._seed, self._blocks = f"{self._seed}@{head}", 0


def _doors() -> Doors | None:
    start = os.environ.get(CLOCK_VARIABLE)
    if not start:
        return None
    if not start.isdecimal() or int(start) > _START_NS_MAX:
        message = f"{CLOCK_VARIABLE} is {start!r}; give nanoseconds from 0 to {_START_NS_MAX}, or unset it"
        raise InvalidInput(message)
    return Doors(int(start))


def opened(
    path: str, *, clock_ns: Callable[[Callable[[], int]], Callable[[], int]] | None = None, **options: Any
) -> "Memory":
    """Return the memory of a store; ``clock_ns`` may wrap the clock."""
    from refold import Memory

    doors = _doors()
    clock = time.time_ns if doors is None else doors.clock_ns  # noqa: TID251 - the clock of who runs the command
    if doors is not None:
        options["random_bytes"] = doors.random_bytes
    memory = Memory(path, clock_ns=clock if clock_ns is None else clock_ns(clock), **options)
    if doors is not None:
        doors.reseed(memory.head)
    return memory


def drawn(count: int) -> bytes:
    """Return random bytes for what a command makes itself."""
    doors = _doors()
    return os.urandom(count) if doors is None else doors.random_bytes(count)


def recovered(backup: str, new: str, **options: Any) -> "Recovered":
    """Return what ``recover`` made of a backup."""
    from refold import recover

    doors = _doors()
    if doors is not None:
        options |= {"clock_ns": doors.clock_ns, "random_bytes": doors.random_bytes}
    return recover(backup, new, **options)


@contextmanager
def reading(path: str, **options: Any) -> "Generator[Memory]":
    """Open a store to read it; it must exist."""
    try:
        memory = opened(path, readonly=True, **options)
    except NotFound as error:
        message = f"there is no store at {path}; `refold import FILE --db {path}` creates one"
        raise NotFound(message) from error
    with memory:
        yield memory


@contextmanager
def writing(path: str, **options: Any) -> "Generator[Memory]":
    """Open a store to append to it; it must exist, so that a mistyped path creates nothing."""
    with reading(path):
        pass
    with opened(path, **options) as memory:
        yield memory
