"""LMDB's offline verifier, with the pages that hold plain rows, which are most, checked by code in C.

It reads the file as bytes, so nothing in the file can bring the process down. What it finds, and how it says so, is the
verifier's own: a page that is not plain, or in which anything is off, is left to it.
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
def _verifier() -> Any:
    """Return LMDB's verifier, quicker on plain pages."""
    offline = _offline()
    # The verifier has no other door; a test holds the two against each other.
    verifier: Any = offline._Verifier  # noqa: SLF001
    lexical = offline._cmp_lexical  # noqa: SLF001
    slowly = verifier._walk_leaf  # noqa: SLF001

    class Quicker(verifier):  # type: ignore[misc]
        def _walk_leaf(self, ctx: dict[str, Any], pgno: int, buf: bytes) -> None:
            if ctx["key_cmp"] is not lexical or ctx["is_free"] or self.hdrsz != LMDB_HEADER_BYTES:
                keys = None
            else:
                keys = plain_keys(buf, ctx["last_key"])
            if keys is None:
                slowly(self, ctx, pgno, buf)
            else:
                ctx["last_key"] = keys[-1]
                ctx["entries"] += len(keys)

    return Quicker


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
