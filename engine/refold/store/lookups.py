"""What a read of the log does inside its transaction, which is given and ends with the call."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from refold.store.record import SEQ

if TYPE_CHECKING:
    import lmdb


def id_of(txn: "lmdb.Transaction[bytes]") -> int:
    """Return the number of a transaction: for one that reads, that of the last commit."""
    return txn.id()


def last_item(txn: "lmdb.Transaction[bytes]") -> tuple[bytes, bytes] | None:
    """Return the last row of the database, ``None`` in an empty one."""
    cursor = txn.cursor()
    return cursor.item() if cursor.last() else None


def value_of(txn: "lmdb.Transaction[bytes]", key: bytes) -> bytes | None:
    """Return the value of a row, ``None`` where there is none."""
    return txn.get(key)


def items_from(txn: "lmdb.Transaction[bytes]", first: bytes, limit: int) -> list[tuple[bytes, bytes]]:
    """Return up to ``limit`` rows with keys from ``first`` on."""
    cursor = txn.cursor()
    is_there = cursor.set_range(first) if first else cursor.first()
    return list(islice(cursor.iternext(), limit)) if is_there else []


def values_from(txn: "lmdb.Transaction[bytes]", first: bytes, limit: int) -> list[bytes]:
    """Return the values of up to ``limit`` rows with keys from ``first`` on."""
    cursor = txn.cursor()
    return list(islice(cursor.iternext(keys=False), limit)) if cursor.set_range(first) else []


def item_before(txn: "lmdb.Transaction[bytes]", key: bytes) -> tuple[bytes, bytes] | None:
    """Return the last row whose key is at most ``key``."""
    cursor = txn.cursor()
    if cursor.set_range(key):
        if cursor.key() == key:
            return key, cursor.value()
        is_there = cursor.prev()
    else:
        is_there = cursor.last()
    return cursor.item() if is_there else None


def looked_up(txn: "lmdb.Transaction[bytes]", seqs: Sequence[int]) -> list[bytes]:
    """Return the records of the seqs, none if one of them is missing."""
    records: list[Any] = list(map(txn.get, map(SEQ.pack, seqs)))
    return [] if None in records else records


def scanned(txn: "lmdb.Transaction[bytes]", seqs: Sequence[int]) -> list[bytes]:
    """Return the records of consecutive seqs, none if one of them is missing."""
    cursor = txn.cursor()
    if not cursor.set_key(SEQ.pack(seqs[0])):
        return []
    records = list(islice(cursor.iternext(keys=False), len(seqs)))
    is_gapless = len(records) == len(seqs) and cursor.key() == SEQ.pack(seqs[-1])
    return records if is_gapless else []
