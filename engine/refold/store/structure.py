"""LMDB's offline verifier, with the pages that hold plain rows, which are most, checked by code in C.

It reads the file as bytes, so nothing in the file can bring the process down. What it finds, and how it says so, is the
verifier's own: a page that is not plain, or in which anything is off, is left to it. Beyond that, flags have to be
those that refold sets, and a search has to turn to the page that holds what it is for.
"""

import os
from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Any, Final

from refold.errors import StoreCorrupt
from refold.limits import LMDB_HEADER_BYTES

_NODE: Final = Struct("=HHHH")
"""The head of a row: size of its value, low and high half, flags, size of its key."""

_FREE_FLAGS: Final = 0x08
"""What LMDB says of its list of free pages, that its keys are numbers; of all other databases here it says nothing."""

_BOUNDS: Final = Struct("=HH")


def problems(path: str) -> list[str]:
    """Return what is wrong with the structure of a store's data file, as it lies on the disk.

    Raises ``StoreCorrupt`` where it is no LMDB file of this machine at all.
    """
    offline = _offline()
    try:
        with open(os.path.join(path, "data.mdb"), "rb") as file:
            found: Sequence[str] = _verifier()(file, os.fstat(file.fileno()).st_size).verify()
    except offline.VerifyError as error:
        message = f"{path} holds no readable LMDB file ({error}); restore a backup"
        raise StoreCorrupt(message) from error
    return list(found)


def check_structure(path: str, bytes_max: int) -> None:
    """Raise ``StoreCorrupt`` where a data file of up to so many bytes would lead LMDB astray; nobody writes meanwhile.

    LMDB trusts what is in its file: a page of the wrong kind or a pointer out of its bounds ends the process.
    """
    if os.stat(os.path.join(path, "data.mdb")).st_size > bytes_max:
        return
    found = problems(path)
    if found:
        message = f"the data file of {path} is damaged ({found[0]}); restore a backup"
        raise StoreCorrupt(message)


@cache
def _places(count: int) -> Struct:
    return Struct(f"={count}H")


def _offline() -> Any:
    """Return the module of LMDB's verifier, which has no types."""
    import lmdb.verify as offline  # noqa: PLC0415 - loaded only by those who ask

    return offline


@cache
def _verifier() -> Any:  # noqa: C901 - a class in a function, of short methods
    """Return LMDB's verifier, quicker on plain pages, and stricter about separators and flags."""
    offline = _offline()
    # The verifier has no other door; a test holds the two against each other.
    verifier: Any = offline._Verifier  # noqa: SLF001
    walk_leaf, walk_branch, walk_page = verifier._walk_leaf, verifier._walk_branch, verifier._walk_page  # noqa: SLF001
    check_named = verifier._validate_named_subdb  # noqa: SLF001
    lexical = offline._cmp_lexical  # noqa: SLF001

    class Quicker(verifier):  # type: ignore[misc]
        def load_metas(self) -> None:
            verifier.load_metas(self)
            for page, size in ((0, 1), (1, self.psize)):
                meta = self._read_meta(page, size)
                if (meta.free.flags, meta.main.flags) != (_FREE_FLAGS, 0):
                    self.err(f"meta page {page} has flags {meta.free.flags:#x} and {meta.main.flags:#x}")

        def _validate_named_subdb(self, name: str, pgno: int, place: int, found: Any) -> None:
            check_named(self, name, pgno, place, found)
            if found.flags:
                self.err(f"{name} DB: page {pgno} node {place} named sub-DB has flags {found.flags:#x}")

        def _walk_branch(self, ctx: dict[str, Any], pgno: int, buf: bytes, depth: int) -> None:
            """Walk a page of branches, whose keys say where a search turns."""
            ctx.setdefault("turns", []).append(iter(_separators(buf)))
            walk_branch(self, ctx, pgno, buf, depth)
            ctx["turns"].pop()

        def _walk_page(self, ctx: dict[str, Any], pgno: int, depth: int) -> None:
            turns = ctx.get("turns")
            floor = next(turns[-1], b"") if turns and ctx["key_cmp"] is lexical else b""
            if floor:
                ctx["floor"] = floor
                if ctx["last_key"] is not None and ctx["last_key"] >= floor:
                    self.err(f"{ctx['name']} DB: a search does not turn to page {pgno} where it should")
            walk_page(self, ctx, pgno, depth)

        def _walk_leaf(self, ctx: dict[str, Any], pgno: int, buf: bytes) -> None:
            keys, floor = None, ctx.get("floor", b"")
            if ctx["key_cmp"] is lexical and not ctx["is_free"] and self.hdrsz == LMDB_HEADER_BYTES:
                keys = plain_keys(buf, ctx["last_key"])
            if keys is not None and keys[0] >= floor:
                ctx["last_key"] = keys[-1]
                ctx["entries"] += len(keys)
                return
            if _first_key(buf) < floor:
                self.err(f"{ctx['name']} DB: a search does not turn to page {pgno} where it should")
            walk_leaf(self, ctx, pgno, buf)

    return Quicker


def _separators(page: bytes) -> list[bytes]:
    """Return the keys of a page of branches as far as they lie within it, the first of which is empty."""
    (lower,) = _BOUNDS.unpack_from(page, LMDB_HEADER_BYTES - _BOUNDS.size)[:1]
    count = (min(lower, len(page)) - LMDB_HEADER_BYTES) // 2
    places = _places(max(count, 0)).unpack_from(page, LMDB_HEADER_BYTES)
    return [_key_at(page, place) for place in places]


def _key_at(page: bytes, place: int) -> bytes:
    if place + _NODE.size > len(page):
        return b""
    begin = place + _NODE.size
    return page[begin : begin + _NODE.unpack_from(page, place)[3]]


def _first_key(page: bytes) -> bytes:
    return _key_at(page, _places(1).unpack_from(page, LMDB_HEADER_BYTES)[0])


def plain_keys(page: bytes, before: bytes | None) -> list[bytes] | None:
    """Return the keys of a leaf page of plain rows behind the key ``before``; ``None`` where a closer look is due."""
    lower, upper = _BOUNDS.unpack_from(page, LMDB_HEADER_BYTES - _BOUNDS.size)
    size, unpack = len(page), _NODE.unpack_from
    count = (lower - LMDB_HEADER_BYTES) // 2
    if count < 1 or not lower <= upper <= size:
        return None
    places = _places(count).unpack_from(page, LMDB_HEADER_BYTES)
    if min(places) < upper or max(places) + _NODE.size > size:
        return None
    keys: list[bytes] = []
    last = b"" if before is None else before
    for place in places:
        low, high, flags, key_bytes = unpack(page, place)
        begin = place + _NODE.size
        end = begin + key_bytes
        key = page[begin:end]
        if flags or high or end + low > size or key <= last:
            return None
        keys.append(key)
        last = key
    return keys
