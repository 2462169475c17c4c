"""The shelves of many projects within a bound of RAM: what was not used for longest leaves, and is filled again."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from refold.limits import SHELVES_BYTES_DEFAULT

_WEIGHED_SHARE: Final = 16
"""A shelf is weighed anew when it has grown by one row for so many, and when it has more parts than rows."""


class Weighed(Protocol):
    """A shelf, or what holds one."""

    def __len__(self) -> int:
        """Return how many rows there are."""
        ...

    @property
    def nbytes(self) -> int:
        """Return about what it takes in RAM."""
        ...

    @property
    def parts_count(self) -> int:
        """Return how much has come to it beside rows; another number says that it has to be weighed."""
        ...

    def close(self) -> None:
        """End its threads."""


S = TypeVar("S", bound=Weighed)


class _Held(Generic[S]):
    """A shelf in RAM, with its bytes, rows and parts as they were when it was last weighed."""

    __slots__ = ("nbytes", "parts", "rows", "shelf")

    def __init__(self, shelf: S) -> None:
        self.shelf = shelf
        self.weigh()

    def weigh(self) -> None:
        self.nbytes, self.rows, self.parts = self.shelf.nbytes, len(self.shelf), self.shelf.parts_count

    @property
    def has_grown(self) -> bool:
        grown = (len(self.shelf) - self.rows) * _WEIGHED_SHARE > self.rows
        return grown or self.shelf.parts_count != self.parts


class Shelves(Generic[S]):
    """Shelves by key. Who has one in hand may go on with it after it has left; it only is not given out again."""

    def __init__(self, bytes_max: int = SHELVES_BYTES_DEFAULT) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._shelves: OrderedDict[Hashable, _Held[S]] = OrderedDict()
        self._filling: dict[Hashable, threading.Lock] = {}
        self._sum_bytes = 0

    def __len__(self) -> int:
        """Return how many shelves are in RAM."""
        return len(self._shelves)

    @property
    def nbytes(self) -> int:
        """Return about what the shelves take in RAM, as they were when each was last asked for."""
        return self._sum_bytes

    def get(self, key: Hashable, fill: Callable[[], S]) -> S:
        """Return the shelf of a key, filled if it is not in RAM: once, however many threads ask for it.

        Shelves that were not asked for longest leave until the others fit; the one that is returned stays.
        """
        shelf = self._found(key)
        if shelf is not None:
            return shelf
        with self._lock:
            filling = self._filling.setdefault(key, threading.Lock())
        leaving: list[S] = []
        with filling:
            shelf = self._found(key)
            if shelf is None:
                shelf = fill()
                leaving = self._put(key, shelf)
        _close(leaving)  # Without that lock: closing may take others.
        return shelf

    def _found(self, key: Hashable) -> S | None:
        with self._lock:
            held = self._shelves.get(key)
            if held is None:
                return None
            self._shelves.move_to_end(key)
            if not held.has_grown:
                return held.shelf
            held.weigh()
            leaving = self._leaving()
        _close(leaving)
        return held.shelf

    def _put(self, key: Hashable, shelf: S) -> list[S]:
        """Hold a shelf, and return those that leave for it."""
        held = _Held(shelf)
        with self._lock:
            self._shelves[key] = held
            self._filling.pop(key, None)
            return self._leaving()

    def _leaving(self) -> list[S]:
        """Return the shelves that leave until the others fit."""
        # Summed anew, so that nothing that cuts this off leaves a sum that is wrong for good.
        self._sum_bytes = sum(held.nbytes for held in self._shelves.values())
        leaving: list[S] = []
        while self._sum_bytes > self._bytes_max and len(self._shelves) > 1:
            leaving.append(self._remove(next(iter(self._shelves))))
        return leaving

    def _remove(self, key: Hashable) -> S:
        held = self._shelves.pop(key)
        self._sum_bytes -= held.nbytes
        return held.shelf

    def touch(self, key: Hashable, shelf: S) -> None:
        """Take note that a shelf was asked for, if it is the one in RAM; it is weighed anew if it has grown."""
        if self.peek(key) is shelf:
            self._found(key)

    def peek(self, key: Hashable) -> S | None:
        """Return the shelf of a key if it is in RAM; it does not count as asked for."""
        held = self._shelves.get(key)
        return None if held is None else held.shelf

    def all(self) -> list[tuple[Hashable, S]]:
        """Return all shelves that are in RAM, with their keys."""
        with self._lock:
            return [(key, held.shelf) for key, held in self._shelves.items()]

    def drop(self, key: Hashable, only: S | None = None) -> None:
        """Let the shelf of a key go, if it is in RAM, and if it is that one: after an error in writing to it."""
        with self._lock:
            held = self._shelves.get(key)
            leaving = [self._remove(key)] if held is not None and only in (None, held.shelf) else []
        _close(leaving)

    def close(self) -> None:
        """Let all shelves go, and end their threads."""
        with self._lock:
            leaving = [self._remove(key) for key in list(self._shelves)]
        _close(leaving)


def _close(shelves: Sequence[Weighed]) -> None:
    for shelf in shelves:
        shelf.close()
