"""The keyed map that scratchpad, state scopes and profile share: values with the seq that set them.

An erased event carries no key, only ``prior``: the seq that holds the value it replaced. Removing that value is what
keeps a deleted or overwritten text from coming back when its successor is erased.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from refold.limits import INLINE_BYTES_MAX

V = TypeVar("V", str, bytes)


class Keyed(Generic[V]):
    """A map from key to value that remembers, for each value, the seq of the event that set it."""

    __slots__ = ("seqs", "values")

    def __init__(self) -> None:
        self.values: dict[str, V] = {}
        self.seqs: dict[str, int] = {}

    def put(self, seq: int, key: str, value: V) -> None:
        """Set a value; a key that exists keeps its place in the order."""
        self.values[key] = value
        self.seqs[key] = seq

    def drop(self, key: str) -> None:
        """Remove a key if it is there."""
        if key in self.values:
            del self.values[key]
            del self.seqs[key]

    def drop_seq(self, seq: int) -> None:
        """Remove the key whose value was set at ``seq``, if it still is the value."""
        for key, held in self.seqs.items():
            if held == seq:
                self.drop(key)
                return

    def drop_where(self, unwanted: Callable[[str], bool]) -> None:
        """Remove every key for which ``unwanted`` is true."""
        for key in [key for key in self.values if unwanted(key)]:
            self.drop(key)

    def clear(self) -> None:
        """Remove every key."""
        self.values.clear()
        self.seqs.clear()

    def replace(self, seq: int, items: Iterable[tuple[str, V]]) -> None:
        """Hold exactly ``items``, all of them set at ``seq``."""
        self.clear()
        for key, value in items:
            self.put(seq, key, value)

    def prior(self, key: str) -> int:
        """Return the seq that holds the key's value, 0 where there is none."""
        return self.seqs.get(key, 0)

    def pack(self) -> tuple[list[list[Any]], list[int]]:
        """Return ``[key, seq, value]`` rows in order, large values as ``None``, and the seqs that hold those."""
        rows: list[list[Any]] = []
        pointed: list[int] = []
        for key, value in self.values.items():
            seq = self.seqs[key]
            if len(value) <= INLINE_BYTES_MAX:
                rows.append([key, seq, value])
            else:
                rows.append([key, seq, None])
                pointed.append(seq)
        return rows, pointed

    def unpack(self, rows: Iterable[list[Any]], next_value: Callable[[str], V]) -> None:
        """Fill from rows that ``pack`` gave; ``next_value(key)`` is called, in order, for what was pointed at."""
        for key, seq, value in rows:
            self.put(seq, key, next_value(key) if value is None else value)
