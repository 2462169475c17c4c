"""Ballast: bytes of the disk that a store reserves, so that erasing, which makes room, has room when the disk is full.

It is a file next to the data. When erasing, or the clean copy that follows, meets a full disk, its bytes are given back
to the disk; they are taken again once the disk has room. No verb that only adds may have them: it would use them up,
and a full store could not be emptied any more. A disk without room for ballast is no reason to refuse a store.
"""

import os
from collections.abc import Callable
from typing import Final, TypeVar

from refold.limits import BALLAST_BYTES_MAX, BALLAST_BYTES_MIN
from refold.log.disk import FILE_FLAGS
from refold.log.lmdb_file import DATA_FILE

T = TypeVar("T")

BALLAST_FILE: Final = "ballast"
_BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``."""
_CHUNK: Final = bytes(64 * 1024)


def wanted_bytes(data_bytes: int) -> int:
    """Return how much a store with a data file of this size reserves: room to rewrite it and to copy it, in bounds."""
    return min(max(2 * data_bytes, BALLAST_BYTES_MIN), BALLAST_BYTES_MAX)


def reserved_bytes(path: str) -> int:
    """Return how many bytes of the disk are reserved in a store's directory."""
    try:
        status = os.stat(os.path.join(path, BALLAST_FILE))
    except OSError:
        return 0
    return min(status.st_size, status.st_blocks * _BLOCK_BYTES)


class Ballast:
    """The ballast of the store in a directory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = os.path.join(path, BALLAST_FILE)
        self._is_lent = self._is_given = False
        self.written_bytes = 0
        """The bytes written since it was last compared with the data: it is compared after ``BALLAST_BYTES_MIN``."""

    def _wanted_bytes(self) -> int:
        return wanted_bytes(os.stat(os.path.join(self._path, DATA_FILE)).st_size)

    def fill(self) -> bool:
        """Reserve what is missing, or the least of it, if the disk has twice as much; return whether all is there."""
        if self._is_lent:
            return False
        self.written_bytes = 0
        wanted, reserved = self._wanted_bytes(), reserved_bytes(self._path)
        for size_bytes in (wanted, BALLAST_BYTES_MIN):
            if reserved >= size_bytes:
                break
            try:
                if _free_bytes(self._path) >= 2 * (size_bytes - reserved):
                    _reserve(self._file, size_bytes)
                    return size_bytes == wanted
            except OSError:
                continue
        return reserved >= wanted

    def lend(self, use: Callable[[], T]) -> T:
        """Call ``use``, which may have the ballast's room if it asks for it; take the room again afterwards."""
        if self._is_lent:
            return use()
        self._is_lent = True
        try:
            return use()
        finally:
            self._is_lent, is_given, self._is_given = False, self._is_given, False
            if is_given:
                self._retake()
            self.fill()

    def give(self) -> bool:
        """Give the disk its bytes back, where the ballast is lent; return whether that is worth another try."""
        if not self._is_lent or not self._release():
            return False
        self._is_given = True
        return True

    def _release(self) -> bool:
        if not reserved_bytes(self._path):
            return False
        try:
            os.truncate(self._file, 0)
        except OSError:
            return False
        return True

    def _retake(self) -> None:
        """Reserve again what is left of the ballast, before verbs that only add find it."""
        size_bytes = self._wanted_bytes()
        while size_bytes >= len(_CHUNK):
            try:
                _reserve(self._file, size_bytes)
            except OSError:
                self._release()
                size_bytes //= 2
            else:
                return


def _free_bytes(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def _reserve(file: str, size_bytes: int) -> None:
    """Make the file so long, with blocks of the disk behind all of its bytes."""
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | FILE_FLAGS, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size_bytes)
        else:
            for begin in range(0, size_bytes, len(_CHUNK)):
                os.pwrite(descriptor, _CHUNK[: size_bytes - begin], begin)
    finally:
        os.close(descriptor)
