"""A bounded cache of indexes in RAM: the least recently used index is evicted, and refilled when it is needed again."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from refold.threads import enter_once

# An index is weighed again when it has grown by one row in this many, or when the number of its parts has changed.
_WEIGHED_SHARE: Final = 16


class _Index(Protocol):
    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def parts_count(self) -> int: ...

    def close(self) -> None: ...


S = TypeVar("S", bound=_Index)


class _CachedIndex(Generic[S]):
    """An index in RAM, with its bytes, rows and parts when it was last weighed."""

    __slots__ = ("index", "nbytes", "parts", "rows")

    def __init__(self, index: S) -> None:
        self.index = index
        self.weigh()

    def weigh(self) -> None:
        self.nbytes, self.rows, self.parts = self.index.nbytes, len(self.index), self.index.parts_count

    @property
    def has_grown(self) -> bool:
        grown = (len(self.index) - self.rows) * _WEIGHED_SHARE > self.rows
        return grown or self.index.parts_count != self.parts


class IndexCache(Generic[S]):
    """Indexes by key, up to `bytes_max` in total. A caller that holds an evicted index can still use it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.RLock()
        self._cached: OrderedDict[Hashable, _CachedIndex[S]] = OrderedDict()
        self._locks: dict[Hashable, threading.RLock] = {}  # The locks of indexes that are being filled.
        self.nbytes = 0  # Approximate bytes of the indexes in RAM, each as of its last use.

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, key: Hashable, fill: Callable[[], S]) -> S:
        """Return the index of a key; if it is not in RAM, fill it by `fill`, once for all threads that ask for it.

        Evicts the least recently used indexes until the rest fit, but never the one that it returns.
        """
        while True:
            index = self.find(key)
            if index is not None:
                return index
            with enter_once(self._lock):
                lock = self._locks.setdefault(key, threading.RLock())
            with enter_once(lock):
                if self._locks.get(key) is not lock:  # Another thread has filled the index meanwhile, or failed to.
                    continue
                try:
                    index = fill()
                    leaving = self._keep(key, index)
                finally:
                    with enter_once(self._lock):
                        self._locks.pop(key, None)
            _close(leaving)  # Outside the lock, because closing an index can take other locks.
            return index

    def put(self, key: Hashable, index: S) -> None:
        """Keep an index in RAM in place of the key's present one, without waiting for a thread that fills one."""
        _close(self._keep(key, index))

    def _keep(self, key: Hashable, index: S) -> list[S]:
        """Keep an index, and return the replaced and the evicted ones."""
        cached = _CachedIndex(index)
        with enter_once(self._lock):
            old = self._remove(key) if key in self._cached else index
            self._cached[key] = cached
            return [*([] if old is index else [old]), *self._evict()]

    def find(self, key: Hashable) -> S | None:
        """Return the index of a key if it is in RAM, and count it as used."""
        with enter_once(self._lock):
            cached = self._cached.get(key)
            if cached is None:
                return None
            self._cached.move_to_end(key)
            if not cached.has_grown:
                return cached.index
            cached.weigh()
            leaving = self._evict()
        _close(leaving)
        return cached.index

    def _evict(self) -> list[S]:
        """Evict indexes until the rest fit, and return the evicted ones."""
        # Summed from scratch, so that an interruption here cannot leave a wrong total behind.
        self.nbytes = sum(cached.nbytes for cached in self._cached.values())
        leaving: list[S] = []
        while self.nbytes > self._bytes_max and len(self._cached) > 1:
            leaving.append(self._remove(next(iter(self._cached))))
        return leaving

    def _remove(self, key: Hashable) -> S:
        cached = self._cached.pop(key)
        self.nbytes -= cached.nbytes
        return cached.index

    def touch(self, key: Hashable, index: S) -> None:
        """Mark an index as just used, if it is the one in RAM."""
        if self.peek(key) is index:
            self.find(key)

    def peek(self, key: Hashable) -> S | None:
        """Return the index of a key if it is in RAM, without counting it as used."""
        cached = self._cached.get(key)
        return None if cached is None else cached.index

    def all(self) -> list[S]:
        """Return all indexes that are in RAM."""
        with enter_once(self._lock):
            return [cached.index for cached in self._cached.values()]

    def drop(self, key: Hashable, only: S) -> None:
        """Remove the index of a key, but only if it is `only`; the caller fills another one."""
        with enter_once(self._lock):
            leaving = [self._remove(key)] if self.peek(key) is only else []
        _close(leaving)

    def close(self) -> None:
        """Remove and close all indexes, which ends their threads."""
        with enter_once(self._lock):
            leaving = [self._remove(key) for key in list(self._cached)]
        _close(leaving)


def _close(indexes: Sequence[_Index]) -> None:
    for index in indexes:
        index.close()
