"""Random ids, drawn from the memory's random source in large pools: one draw serves two hundred ids."""

from collections.abc import Callable
from threading import Lock
from typing import Final

from refold.limits import ID_HEX_CHARS

_POOL_BYTES: Final = ID_HEX_CHARS // 2 * 200


class Ids:
    """A source of ids of 20 hexadecimal digits."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._lock = Lock()
        self._pool: list[str] = []

    def new(self) -> str:
        """Return an id that was never returned before."""
        try:
            return self._pool.pop()
        except IndexError:
            return self._refilled()

    def _refilled(self) -> str:
        with self._lock:
            drawn = self._random_bytes(_POOL_BYTES).hex()
            fresh = [drawn[begin : begin + ID_HEX_CHARS] for begin in range(0, len(drawn), ID_HEX_CHARS)]
            first = fresh.pop()
            self._pool.extend(fresh)
            return first
