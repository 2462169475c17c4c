"""A project's rows as one block of bytes, which a process reads instead of the log before its first search. Pure.

The block holds columns of numbers in the form in which they are searched, and the rows of each term. It is a cache: a
block that is damaged, of another version or of other vectors is refused, and the rows are filled from the log.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn
from zlib import crc32

import msgspec
import numpy as np

from refold.index.columns import Array

_MAGIC: Final = b"refoldI\x01"
_CHECKSUM_BYTES: Final = 4
_LENGTH_BYTES: Final = 4
_ALIGNED_BYTES: Final = 64  # The alignment of arrays, with which numpy computes faster.


class UnfitRows(Exception):
    """A block of bytes that does not hold the rows of a project as it is now."""


class _Array(msgspec.Struct, frozen=True, array_like=True):
    name: str
    kind: str
    shape: tuple[int, ...]


class _BlockHead(msgspec.Struct, frozen=True, array_like=True):
    values: dict[str, Any]
    arrays: list[_Array]


class PackedArrays(msgspec.Struct, frozen=True):
    """Small values and unshared arrays, both by name."""

    values: dict[str, Any]
    arrays: dict[str, Array]


_DECODE: Final = msgspec.msgpack.Decoder(_BlockHead).decode
_KINDS: Final = frozenset(("<f4", "<f8", "<i4", "<i8", "<u2", "<u4", "|b1", "|u1"))


def pack(values: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Pack small values and arrays, with a checksum."""
    little = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    head = _BlockHead(dict(values), [_Array(name, array.dtype.str, array.shape) for name, array in little.items()])
    packed = msgspec.msgpack.encode(head)
    begin = _align(len(_MAGIC) + _CHECKSUM_BYTES + _LENGTH_BYTES + len(packed))
    parts: list[Any] = [len(packed).to_bytes(_LENGTH_BYTES, "little"), packed]
    parts.append(bytes(begin - len(_MAGIC) - _CHECKSUM_BYTES - _LENGTH_BYTES - len(packed)))
    for array in little.values():
        parts += [array.data, bytes(_align(array.nbytes) - array.nbytes)]
    body = b"".join(parts)
    return b"".join((_MAGIC, crc32(body).to_bytes(_CHECKSUM_BYTES, "little"), body))


def unpack(block: bytes | memoryview) -> PackedArrays:
    """Decode the result of `pack` into new arrays; raises `UnfitRows` for anything else."""
    begin = len(_MAGIC) + _CHECKSUM_BYTES
    if not is_intact(block):
        refuse("it is damaged, or of another version")
    try:
        length = int.from_bytes(block[begin : begin + _LENGTH_BYTES], "little")
        head = _DECODE(block[begin + _LENGTH_BYTES : begin + _LENGTH_BYTES + length])
        place = _align(begin + _LENGTH_BYTES + length)
        arrays: dict[str, Array] = {}
        for name, kind, shape in map(msgspec.structs.astuple, head.arrays):
            if kind not in _KINDS:
                refuse(f"its column {name} is of the kind {kind}")
            array = np.frombuffer(block, kind, int(np.prod(shape, dtype=np.int64)), place).reshape(shape)
            arrays[name] = array.copy()  # Into memory for which numpy requests large pages, unlike a bytes object.
            place += _align(array.nbytes)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnfitRows(f"it cannot be read ({error})") from error
    return PackedArrays(head.values, arrays)


def is_intact(block: bytes | memoryview) -> bool:
    """Return whether a block is of this version and its checksum is right."""
    begin = len(_MAGIC) + _CHECKSUM_BYTES
    checksum = int.from_bytes(block[len(_MAGIC) : begin], "little")
    return block[: len(_MAGIC)] == _MAGIC and len(block) > begin and crc32(memoryview(block)[begin:]) == checksum


def refuse(problem: str) -> NoReturn:
    """Raise `UnfitRows`."""
    raise UnfitRows(problem)


def _align(count: int) -> int:
    return -(-count // _ALIGNED_BYTES) * _ALIGNED_BYTES


class PackedTerms:
    """The packed rows of many terms; rows that have changed since are left out."""

    def __init__(self, terms: bytes, ends: Array, rows: Array, repeats: Array, live: Array) -> None:
        self._terms = terms
        self._ends = ends
        self._rows = rows
        self._repeats = repeats
        self._live = live
        """By row, whether it was packed and has not changed since."""
        self._is_changed = False
        self._found: dict[str, tuple[Array, Array] | None] = {}

    @staticmethod
    def of(postings: Mapping[str, tuple[Array, Array]]) -> "dict[str, Array]":
        """Pack postings into arrays: the rows of each term, and how often each row has it."""
        terms = sorted(postings)
        found = [postings[term] for term in terms]
        blob = "\n".join(["", *terms, ""]).encode("utf-8", "surrogatepass")
        return {
            "terms": np.frombuffer(blob, np.uint8),
            "term_ends": np.cumsum([len(rows) for rows, _ in found], dtype=np.int64).astype(np.uint32),
            "term_rows": np.concatenate([np.empty(0, np.uint32), *(rows for rows, _ in found)]).astype(np.uint32),
            "term_repeats": np.concatenate([np.empty(0, np.uint16), *(many for _, many in found)]).astype(np.uint16),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "PackedTerms":
        """Restore terms from their arrays, with the mask `live` of the rows; raises `UnfitRows` if they do not fit."""
        ends, rows, repeats, live = (arrays[name] for name in ("term_ends", "term_rows", "term_repeats", "live"))
        terms = arrays["terms"].tobytes()
        is_whole = len(rows) == len(repeats) == (int(ends[-1]) if len(ends) else 0)
        if not is_whole or terms.count(b"\n") != len(ends) + 1 or (np.diff(ends.astype(np.int64)) < 0).any():
            refuse("its terms have other rows")
        if len(rows) and int(rows.max()) >= len(live):
            refuse("its terms are of rows that it has not")
        return cls(terms, ends, rows, repeats, live)

    def find(self, term: str) -> tuple[Array, Array] | None:
        """Return the unchanged rows that have a term, in order, and how often each has it."""
        if term not in self._found:
            self._found[term] = self._read(term)
        return self._found[term]

    def _read(self, term: str) -> tuple[Array, Array] | None:
        place = self._terms.find(b"\n" + term.encode("utf-8", "surrogatepass") + b"\n")
        if place < 0:
            return None
        return self._read_at(self._terms.count(b"\n", 0, place))

    def _read_at(self, number: int) -> tuple[Array, Array] | None:
        begin, end = int(self._ends[number - 1]) if number else 0, int(self._ends[number])
        rows, repeats = self._rows[begin:end].astype(np.intp), self._repeats[begin:end]
        if self._is_changed:
            stays = self._live[rows]
            rows, repeats = rows[stays], repeats[stays]
        return (rows, repeats) if len(rows) else None

    def all(self) -> dict[str, tuple[Array, Array]]:
        """Return all terms of unchanged rows, each with the result of `find`."""
        terms = self._terms.decode("utf-8", "surrogatepass").split("\n")[1:-1]
        found = ((term, self._read_at(number)) for number, term in enumerate(terms))
        return {term: posting for term, posting in found if posting is not None}

    def has(self, row: int) -> bool:
        """Return whether a row was packed and has not changed since."""
        return row < len(self._live) and bool(self._live[row])

    def remove(self, row: int) -> None:
        """Leave a row out from now on."""
        self._live[row], self._is_changed = False, True
        self._found.clear()


def strings(texts: Sequence[str]) -> Array:
    """Pack texts without line breaks into an array."""
    return np.frombuffer("\n".join(texts).encode("utf-8", "surrogatepass"), np.uint8)


def texts_of(array: Array, count: int) -> list[str]:
    """Return the texts that `strings` packed; raises `UnfitRows` unless there are `count` of them."""
    try:
        texts = array.tobytes().decode("utf-8", "surrogatepass").split("\n") if count else []
    except UnicodeError as error:
        raise UnfitRows(f"its texts cannot be read ({error})") from error
    if len(texts) != count:
        refuse(f"it has {len(texts)} texts for {count} rows")
    return texts
