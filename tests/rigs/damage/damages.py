"""The classes of damage: what is done to the bytes of a data file, or below refold to the value of one row."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import lmdb

from refold.log.lmdb_file import NAMES

PAGE_BYTES: Final = 4_096
SECTOR_BYTES: Final = 512
FRONT_BYTES: Final = 64
"""The head of a page and the places of its first rows: where a flip turns LMDB itself astray."""

Damage: TypeAlias = Callable[[Path, Random], str]
"""Damages the store at a path; says what it did."""


def _flipped(content: bytearray, place: int, chance: Random) -> str:
    bit = chance.randrange(8)
    content[place] ^= 1 << bit
    return f"bit {bit} of byte {place} (page {place // PAGE_BYTES} + {place % PAGE_BYTES})"


def flip_bit(content: bytearray, chance: Random) -> str:
    """Flip one bit anywhere."""
    return _flipped(content, chance.randrange(len(content)), chance)


def flip_meta(content: bytearray, chance: Random) -> str:
    """Flip one bit of what LMDB's two first pages hold."""
    return _flipped(content, chance.randrange(2) * PAGE_BYTES + chance.randrange(168), chance)


def flip_front(content: bytearray, chance: Random) -> str:
    """Flip one bit at the front of a page, where LMDB keeps its structure."""
    page = chance.randrange(2, len(content) // PAGE_BYTES)
    return _flipped(content, page * PAGE_BYTES + chance.randrange(FRONT_BYTES), chance)


def change_bytes(content: bytearray, chance: Random) -> str:
    """Overwrite some neighbouring bytes."""
    size = chance.choice((1, 2, 4, 8, 40))
    place = chance.randrange(len(content) - size)
    content[place : place + size] = chance.randbytes(size)
    return f"{size} bytes at {place} (page {place // PAGE_BYTES} + {place % PAGE_BYTES})"


def flip_many(content: bytearray, chance: Random) -> str:
    """Flip several bits anywhere."""
    return ", ".join(flip_bit(content, chance) for _ in range(chance.randrange(2, 30)))


def _sector(content: bytearray, chance: Random, size: int) -> int:
    return chance.randrange(len(content) // size) * size


def zero_sector(content: bytearray, chance: Random) -> str:
    """Overwrite a sector, or a page, with zeros."""
    size = chance.choice((SECTOR_BYTES, PAGE_BYTES))
    place = _sector(content, chance, size)
    content[place : place + size] = bytes(size)
    return f"{size} zeros at {place} (page {place // PAGE_BYTES})"


def copy_sector(content: bytearray, chance: Random) -> str:
    """Overwrite a sector, or a page, with another one of the file: a write that went astray, or an old page."""
    size = chance.choice((SECTOR_BYTES, PAGE_BYTES))
    place, source = _sector(content, chance, size), _sector(content, chance, size)
    content[place : place + size] = content[source : source + size]
    return f"{size} bytes of {source} at {place} (page {place // PAGE_BYTES})"


def truncate(content: bytearray, chance: Random) -> str:
    """Cut the file off, at the end of a page or anywhere."""
    size = chance.randrange(len(content))
    size = size // PAGE_BYTES * PAGE_BYTES if chance.getrandbits(1) else size
    del content[size:]
    return f"cut to {size} bytes"


def change_row(path: Path, chance: Random) -> str:
    """Change one row through LMDB, so that its tree stays whole and the value is wrong."""
    with lmdb.open(str(path), max_dbs=16) as env:
        databases = {name: env.open_db(name.encode(), create=False) for name in NAMES}
        with env.begin() as txn:
            filled = [name for name, database in databases.items() if txn.stat(database)["entries"]]
        table = chance.choice(filled)
        with env.begin(write=True, db=databases[table]) as txn:
            rows = list(txn.cursor())
            key, value = chance.choice(rows)
            return f"{table} {key.hex()}: {_changed(txn, rows, key, value, chance)}"


def _changed(
    txn: "lmdb.Transaction[bytes]", rows: list[tuple[bytes, bytes]], key: bytes, value: bytes, chance: Random
) -> str:
    what = chance.choice(("flipped", "flipped", "flipped", "cut", "zeroed", "another's", "gone", "elsewhere"))
    place = chance.randrange(len(value)) if value else 0
    bit = 1 << chance.randrange(8)
    changed = {
        "flipped": value[:place] + bytes([value[place] ^ bit]) + value[place + 1 :] if value else b"x",
        "cut": value[:place],
        "zeroed": bytes(len(value)),
        "another's": chance.choice(rows)[1],
    }
    if what in changed:
        txn.put(key, changed[what])
    else:
        txn.delete(key)
    if what == "elsewhere":
        at = chance.randrange(len(key))
        txn.put(key[:at] + bytes([key[at] ^ bit]) + key[at + 1 :], value)
    return f"{what} at {place}"


def _of_file(change: Callable[[bytearray, Random], str]) -> Damage:
    def damage(path: Path, chance: Random) -> str:
        file = path / "data.mdb"
        content = bytearray(file.read_bytes())
        said = change(content, chance)
        file.write_bytes(content)
        return said

    return damage


CLASSES: Final[Mapping[str, Damage]] = {
    "bit": _of_file(flip_bit),
    "bit of a front": _of_file(flip_front),
    "bit of a meta page": _of_file(flip_meta),
    "bytes": _of_file(change_bytes),
    "many bits": _of_file(flip_many),
    "zeroed sector": _of_file(zero_sector),
    "copied sector": _of_file(copy_sector),
    "cut off": _of_file(truncate),
    "row": change_row,
}
