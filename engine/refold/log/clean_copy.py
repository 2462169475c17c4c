"""A compact copy of a store's file without a trace of what was deleted, and its way into the file's place.

A file is replaced only by a handle that holds the store alone: whoever had the old one open would go on writing to a
file that is not there any more.
"""

import os
import shutil
import sys
from struct import Struct
from typing import Final

import lmdb

from refold.errors import StoreError, StoreFull
from refold.limits import RETRIES_COUNT_MAX
from refold.log.directory import Ballast
from refold.log.environment import Environment
from refold.log.lmdb_file import DATA_FILE, FULL, translated
from refold.log.site import flush

# Blanking what a compact copy still carries of the past: bytes behind values and between the nodes of pages.
#
# LMDB writes whole pages. The gap in the middle of a page, and the rest of the last page of a long value, hold
# whatever its memory held before, and that may be a value that is gone. Copying compactly leaves free pages out, and
# takes these along. The layout is that of LMDB 0.9; what does not look like it stays as it is, for ``verify`` to
# find.

_HEADER: Final = Struct("=QHHHH")
"""pgno, pad, flags, lower, upper; in the first page of a long value lower and upper are one number, of its pages."""
_PAGES: Final = Struct("=12xI")
_NODE: Final = Struct("=IHH")
"""Bytes of the value, flags, bytes of the key."""
_NUMBER: Final = Struct("=Q")

_LEAF: Final = 0x02
_TREE: Final = 0x01 | _LEAF
_OVERFLOW: Final = 0x04
_LONG_VALUE: Final = 0x01
_META_PAGES: Final = 2
_POINTER_BYTES: Final = 2
_BLOCK_PAGES: Final = 256


class Scrubbing:
    """One pass over a file that LMDB has copied compactly, which nobody has open."""

    def __init__(self, file: int, page_bytes: int) -> None:
        self._file = file
        self._page_bytes = page_bytes
        self._runs: dict[int, int] = {}
        """First page of each long value -> how many pages it takes."""
        self._values: list[tuple[int, int]] = []
        """First page and bytes of each long value, as the nodes that point at them say."""

    def scrub(self) -> None:
        """Fill with zeros whatever is no part of a node or of a value; the caller flushes."""
        pages = os.fstat(self._file).st_size // self._page_bytes
        page = _META_PAGES
        while page < pages:
            begin = page * self._page_bytes
            block = bytearray(os.pread(self._file, _BLOCK_PAGES * self._page_bytes, begin))
            page = self._scrub_block(block, page)
            os.pwrite(self._file, block, begin)
        for first, value_bytes in self._values:
            begin = first * self._page_bytes + _HEADER.size + value_bytes
            end = min(first + self._runs.get(first, 0), pages) * self._page_bytes  # Damage may tell of any number.
            if begin < end:
                os.pwrite(self._file, bytes(end - begin), begin)

    def _scrub_block(self, block: bytearray, page: int) -> int:
        """Scrub the pages of a block that begins with a page; return the page that follows them."""
        begin = 0
        while begin + self._page_bytes <= len(block):
            _, _, flags, lower, upper = _HEADER.unpack_from(block, begin)
            count = 1
            if flags == _OVERFLOW:
                count = max(_PAGES.unpack_from(block, begin)[0], 1)
                self._runs[page] = count
            elif flags & _TREE and _HEADER.size <= lower <= upper <= self._page_bytes:
                block[begin + lower : begin + upper] = bytes(upper - lower)
                if flags == _LEAF:
                    self._note_values(memoryview(block)[begin : begin + self._page_bytes], lower)
            page += count
            begin += count * self._page_bytes
        return page

    def _note_values(self, leaf: memoryview, lower: int) -> None:
        """Take note of the long values that the nodes of a leaf point at."""
        for pointer in range(_HEADER.size, lower, _POINTER_BYTES):
            node = int.from_bytes(leaf[pointer : pointer + _POINTER_BYTES], sys.byteorder)
            if node + _NODE.size > len(leaf):
                continue
            value_bytes, flags, key_bytes = _NODE.unpack_from(leaf, node)
            number = node + _NODE.size + key_bytes
            if flags & _LONG_VALUE and number + _NUMBER.size <= len(leaf):
                self._values.append((_NUMBER.unpack_from(leaf, number)[0], value_bytes))


# Copying a store's file while others write: compactly, scrubbed, and flushed before it gets its name.

_COPYING: Final = "copying"
"""What the file is called until it is whole, so that nobody takes a part of it for a store."""


def copy(environment: Environment, into: str) -> None:
    """Write everything that is committed to a new data file in a directory.

    One read transaction is open as long as LMDB copies, and nothing else runs inside of it; LMDB's binding lets nobody
    close or map the environment anew meanwhile. Raises ``StoreFull`` and ``StoreError``, and ``OSError`` of the file.
    """
    source = os.stat(os.path.join(environment.path, DATA_FILE))
    unnamed = os.path.join(into, _COPYING)
    file = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, source.st_mode & 0o777)
    try:
        _copy(environment, file, into)
        Scrubbing(file, environment.env.stat()["psize"]).scrub()
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(unnamed, os.path.join(into, DATA_FILE))


def _copy(environment: Environment, file: int, into: str) -> None:
    attempts = RETRIES_COUNT_MAX
    while True:
        try:
            environment.env.copyfd(file, compact=True)
        except lmdb.Error as error:
            attempts -= 1
            if not attempts or not environment.recover(error):
                raise translated(error, "copying the store", into) from error
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
        else:
            return


COPY: Final = "sweep"
"""The directory inside the store in which the copy is made; what a crash leaves of it is unused."""


def sweep(environment: Environment, ballast: Ballast) -> None:
    """Replace the data file by a clean copy; the caller holds the store alone and lets nobody read meanwhile.

    Where that fails the old file stays, whole: ``StoreFull`` where there is no room for the copy, with the ballast's.
    """
    environment.check_writing()
    while True:
        try:
            _sweep(environment)
        except StoreFull:
            if not ballast.give():
                raise
        else:
            return


def _sweep(environment: Environment) -> None:
    made = os.path.join(environment.path, COPY)
    shutil.rmtree(made, ignore_errors=True)
    try:
        os.mkdir(made, 0o700)
        copy(environment, made)
        environment.replace(made)
        shutil.rmtree(made)
        flush(environment.path)  # Before anybody says that nothing is left to be done.
    except OSError as error:
        kind = StoreFull if error.errno in FULL else StoreError
        raise kind(
            f"sweeping {environment.path}: {error}; check that the directory is writable and has space"
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
