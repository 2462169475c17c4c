"""Rows of a large state as one msgpack array, encoded slice by slice: who packs it keeps nobody waiting for all."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from refold.limits import PACKED_SLICE_COUNT

T = TypeVar("T")

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_SHORT_COUNT: Final = 2**4
_MIDDLE_COUNT: Final = 2**16


class Cut(Generic[T]):
    """What a view packs of a state, as that was when this was made: no event folded since changes it.

    It is one array, encoded at once but for the table between ``before`` and ``after``, whose rows are encoded slice by
    slice. The rows are a list of its own, of values that nothing changes in place; ``row_of`` gives what is packed of
    one, ``seq_of`` the seq of the event with the rest.
    """

    def __init__(
        self,
        before: Sequence[Any],
        rows: Iterable[T],
        after: Sequence[Any],
        *,
        row_of: Callable[[T], Any],
        seq_of: Callable[[T], int],
    ) -> None:
        self._rows = list(rows)
        self._row_of, self._seq_of = row_of, seq_of
        self._after = _elements(after)
        opening = _array_header(len(before) + 1 + len(after)) + _elements(before) + _array_header(len(self._rows))
        self._parts = [opening]
        """What is encoded so far: the first part, then one for each slice."""

    @property
    def _done_count(self) -> int:
        return (len(self._parts) - 1) * PACKED_SLICE_COUNT

    @property
    def is_done(self) -> bool:
        """Whether all of it is encoded."""
        return self._done_count >= len(self._rows)

    def step(self) -> None:
        """Encode the next slice."""
        begin = self._done_count
        rows = self._rows[begin : begin + PACKED_SLICE_COUNT]
        self._parts.append(_elements(list(map(self._row_of, rows))))

    def result(self) -> tuple[bytes, list[int]]:
        """Return the array and the seqs of the events with the rest of each row; all of it is encoded."""
        assert self.is_done, f"{self._done_count} of {len(self._rows)} rows are encoded; step() until is_done"
        return b"".join((*self._parts, self._after)), list(map(self._seq_of, self._rows))


def _elements(values: Sequence[Any]) -> bytes:
    """Encode values as they stand inside an array."""
    return _ENCODE(values)[len(_array_header(len(values))) :]


def _array_header(count: int) -> bytes:
    """Return how msgpack begins an array of so many elements."""
    if count < _SHORT_COUNT:
        return bytes([0x90 | count])
    if count < _MIDDLE_COUNT:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")
