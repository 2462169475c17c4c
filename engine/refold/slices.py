"""Rows of a large state as one msgpack array, encoded slice by slice: who packs it keeps nobody waiting for all."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from refold.limits import PACKED_SLICE_COUNT

T = TypeVar("T")

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_SHORT_COUNT: Final = 2**4
_MIDDLE_COUNT: Final = 2**16


def sliced(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in slices of ``PACKED_SLICE_COUNT``; one that is empty where there are none."""
    for begin in range(0, max(len(items), 1), PACKED_SLICE_COUNT):
        yield items[begin : begin + PACKED_SLICE_COUNT]


class Table:
    """An array that is encoded as its rows come; its bytes are those of one that is encoded at once."""

    def __init__(self, count: int) -> None:
        self._parts = [_array_header(count)]

    def extend(self, rows: Sequence[Any]) -> None:
        """Encode some rows more."""
        self._parts.append(_ENCODE(rows)[len(_array_header(len(rows))) :])

    def packed(self) -> msgspec.Raw:
        """Return the array as it stands inside of another value."""
        return msgspec.Raw(b"".join(self._parts))


def _array_header(count: int) -> bytes:
    """Return how msgpack begins an array of so many elements."""
    if count < _SHORT_COUNT:
        return bytes([0x90 | count])
    if count < _MIDDLE_COUNT:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")
