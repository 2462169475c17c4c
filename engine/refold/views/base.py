"""The keyed map that scratchpad, state scopes and profile share: values with the event that set each.

An erased event carries no key, only ``prior``, the seq that holds the value it replaced, and the value's place in that
event, which is 0 except in an imported state. That value is removed, so that a deleted or overwritten text does not
come back when its successor is erased.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from refold.event import Stamp
from refold.limits import INLINE_BYTES_MAX

T = TypeVar("T")
V = TypeVar("V", str, bytes)

_ROWS: Final[dict[type, Any]] = {
    str: list[tuple[str, str | None, int, int]],
    bytes: list[tuple[str, bytes | None, int, int]],
}
"""Rows of a checkpoint, by the type of their values."""


def copy_slots(state: T) -> T:
    """Return an independent state, with copies of the containers in its slots."""
    other = object.__new__(type(state))
    for name in cast("tuple[str, ...]", cast("Any", state).__slots__):
        value = getattr(state, name)
        setattr(other, name, value.copy() if hasattr(value, "copy") else value)
    return other


class KeyedValues(Generic[V]):
    """A map from key to value that remembers, for each value, the seq of the event that set it."""

    __slots__ = ("places", "seqs", "values")

    def __init__(self) -> None:
        self.values: dict[str, V] = {}
        self.seqs: dict[str, int] = {}
        self.places: dict[str, int] = {}  # Places other than 0, of values that came with an imported state.

    copy = copy_slots

    def put(self, seq: int, key: str, value: V, place: int = 0) -> None:
        """Set a value; an existing key keeps its place in the order."""
        self.values[key] = value
        self.seqs[key] = seq
        if place:
            self.places[key] = place
        else:
            self.places.pop(key, None)

    def drop(self, key: str) -> None:
        if key in self.values:
            del self.values[key]
            del self.seqs[key]
            self.places.pop(key, None)

    def drop_at(self, seq: int, place: int) -> None:
        """Remove the key whose value was set at ``seq`` and ``place``, if it still has that value."""
        for key, value_seq in self.seqs.items():
            if value_seq == seq and self.places.get(key, 0) == place:
                self.drop(key)
                return

    def on_set(self, stamp: Stamp, event: Any, value: V) -> None:
        """Set the value of an event's key, or drop the value that an erased event had replaced."""
        if stamp.erased:
            self.drop_at(event.prior, getattr(event, "place", 0))
        else:
            self.put(stamp.seq, event.key, value)

    def on_delete(self, stamp: Stamp, event: Any) -> None:
        """Remove an event's key, or drop the value that an erased event had removed."""
        if stamp.erased:
            self.drop_at(event.prior, getattr(event, "place", 0))
        else:
            self.drop(event.key)

    def drop_where(self, unwanted: Callable[[str], bool]) -> None:
        for key in [key for key in self.values if unwanted(key)]:
            self.drop(key)

    def clear(self) -> None:
        self.values.clear()
        self.seqs.clear()
        self.places.clear()

    def replace(self, seq: int, items: Iterable[tuple[str, V]]) -> None:
        """Hold exactly ``items``, all set at ``seq``."""
        self.clear()
        for place, (key, value) in enumerate(items):
            self.put(seq, key, value, place)

    def prior(self, key: str) -> tuple[int, int]:
        """Return the seq and the place that hold the key's value, (0, 0) if there is none."""
        return self.seqs.get(key, 0), self.places.get(key, 0)

    def rows(self, keys: Iterable[str]) -> list[list[Any]]:
        """Return ``[key, value, seq, place]`` rows, in the form that a digest covers."""
        return [[key, self.values[key], self.seqs[key], self.places.get(key, 0)] for key in keys]

    def pack(self) -> tuple[list[list[Any]], list[int]]:
        """Return ``[key, value, seq, place]`` rows, with ``None`` for large values, and the seqs that hold those."""
        rows = self.rows(self.values)
        pointed: list[int] = []
        for row in rows:
            if len(row[1]) > INLINE_BYTES_MAX:
                row[1] = None
                pointed.append(row[2])
        return rows, pointed

    def unpack(self, rows: Any, kind: type[V], next_value: Callable[[str], V]) -> None:
        """Fill from rows that ``pack`` returned; ``next_value(key)`` returns each value that was not inline, in order.

        ``kind`` is the type of the values. Raises ``msgspec.ValidationError`` if a damaged row holds another type.
        """
        for key, value, seq, place in msgspec.convert(rows, _ROWS[kind]):
            self.put(seq, key, next_value(key) if value is None else value, place)
