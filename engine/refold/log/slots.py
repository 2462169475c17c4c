"""The last two commits once more, in slots of the data file, so that one flush makes a commit durable.

LMDB flushes the pages of a commit, and then the page that names them. Here the second flush is left to the next commit
(``metasync=False``): a loss of power may take the last commit back, and nothing else. So what a commit puts is written
beforehand into one of two slots, by turns; they lie in the same file, so that the flush of its pages makes the slot
durable with them. Whoever opens the store to write, and finds a commit in a slot that the file does not have, puts it
again. A slot that is torn, or of any other commit than the next one, counts for nothing.

The slots are one long value in a database of their own. LMDB keeps such a value on pages that follow each other, writes
them once, and leaves them in their place until the row is changed, which nobody does. The other way, a file beside it,
would be a second flush again.
"""

import errno
import io
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lmdb

from refold.errors import StoreCorrupt
from refold.log.disk import disk_error
from refold.log.record import SlotRow, rows_in
from refold.text import blake2b

if TYPE_CHECKING:
    from refold.log.environment import Environment

HEADER_BYTES: Final = 16
"""The head of a page of LMDB 0.9 on a machine of 64 bits."""

SLOTS: Final = "slots"
"""The database of the slots."""
SLOT_BYTES: Final = 32_768
_ROW_KEY: Final = b"slots"
_KEY_BYTES: Final = 16
_ALIGNED_BYTES: Final = 4_096
_VALUE_BYTES: Final = _ALIGNED_BYTES - HEADER_BYTES + 2 * SLOT_BYTES
"""Behind the key, room up to where the first slot begins with a page: no sector is of two slots."""

_LOOKED_BYTES: Final = 1024**2
"""The row is the first that is put into a file, so it is looked for at its beginning."""

_KIND_BEGIN: Final = 10
_LONG: Final = (4).to_bytes(2, sys.byteorder)
"""What the head of the first page of a long value says of its kind."""


_SESSION: Final = 2
"""Where the words of the turnstile's file have the session, two of them."""
_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_FILES: Final = "/proc/self/fdinfo"
_MOUNT: Final = b"mnt_id:"


def empty_row() -> tuple[bytes, bytes]:
    """Return the row of a new file, with a key of its own: what is in the slots of another file does not fit."""
    return _ROW_KEY, os.urandom(_KEY_BYTES) + bytes(_VALUE_BYTES - _KEY_BYTES)


def _session_of(file: int) -> tuple[int, int]:
    """Return two numbers that are others after each start of the system, and each mount; zeros where nobody knows."""
    try:
        boot = Path(_BOOT).read_bytes()
        mount = next(line for line in Path(f"{_FILES}/{file}").read_bytes().splitlines() if line.startswith(_MOUNT))
    except (OSError, StopIteration):
        return (0, 0)
    digest = blake2b(boot + mount, digest_size=_KEY_BYTES).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


class SlotError(lmdb.DiskError):
    """The system refused to write a slot, which is as if it had refused LMDB; ``code`` is the system's number."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.code = error.errno or errno.EIO  # type: ignore[misc]


class Slots:
    """The slots of an open data file, written and read beside LMDB; who writes has its turn.

    Raises ``StoreCorrupt`` where the file does not have them where they belong, and ``StoreError``.
    """

    def __init__(self, path: str, txn: "lmdb.Transaction[bytes]", database: Any, *, readonly: bool) -> None:
        self.key = (txn.get(_ROW_KEY, db=database) or b"")[:_KEY_BYTES]
        flags, mode = (os.O_RDONLY, "r") if readonly else (os.O_RDWR, "r+")
        try:
            self._file = io.FileIO(path, mode, opener=lambda name, _: os.open(name, flags | os.O_CLOEXEC))
            begin = self._find()
        except OSError as error:
            raise disk_error(error, f"opening {path}", "check who owns it, and open it again") from error
        if not begin:
            self.close()
            raise StoreCorrupt(f"{path} does not have its slots where they belong; restore a backup")
        self.file = self._file.fileno()
        self.session = _session_of(self.file)
        self.places = begin, begin + SLOT_BYTES
        """Where in the file commits of even and of odd number are."""

    def _find(self) -> int:
        """Return where the first slot begins, 0 where the row is not on pages of its own near the beginning."""
        size = min(_LOOKED_BYTES, os.fstat(self._file.fileno()).st_size)
        with mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ) as looked:
            begin = looked.find(self.key) - HEADER_BYTES if any(self.key) else -1
            is_long = begin >= 0 and looked[begin + _KIND_BEGIN : begin + HEADER_BYTES - 4] == _LONG
        return begin + _ALIGNED_BYTES if is_long and not begin % _ALIGNED_BYTES else 0

    def is_kept(self, words: "memoryview | Sequence[int]") -> bool:
        """Return whether the system has kept what was written since the store was last opened, by its turnstile."""
        return any(self.session) and (words[_SESSION], words[_SESSION + 1]) == self.session

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def clear(self, number: int) -> None:
        """Take a commit out of its slot; the caller sees to it that this is durable."""
        os.pwrite(self.file, bytes(HEADER_BYTES), self.places[number & 1])

    def rows(self, number: int) -> list[SlotRow] | None:
        """Return the rows of a commit, ``None`` where no slot holds it whole."""
        return rows_in(self.key, number, os.pread(self.file, SLOT_BYTES, self.places[number & 1]))


def put_again(environment: "Environment", databases: Mapping[str, Any], last: int) -> None:
    """Put the commits behind the last one again that a loss of power has left in their slots alone; in a turn.

    A writer that is killed between its slot and its commit leaves the same, and others may have seen since that there
    is no such commit. So it counts for nothing while the system has kept all that was written, since the store was last
    opened to write.
    """
    slots, words, begin = environment.slots, environment.turnstile.words, last
    assert slots is not None, "whoever writes has the slots open"
    if slots.is_kept(words):
        if slots.rows(last + 1) is not None:
            environment.take_back(last + 1)
        return
    while (rows := slots.rows(last + 1)) is not None:
        try:
            with environment.begin(write=True) as txn:
                for table, key, value in rows:
                    if value is None:
                        txn.delete(key, db=databases[table])
                    else:
                        txn.put(key, value, db=databases[table])
        except lmdb.Error as error:
            if not environment.makes_room(error):
                raise
        else:
            last += 1
    if last > begin:
        environment.flush_commit()
    words[_SESSION], words[_SESSION + 1] = slots.session
