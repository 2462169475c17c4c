"""Ballast: disk space that a store reserves, so that erasing, which frees space, can run when the disk is full.

The ballast is a file next to the data. If erasing, or the clean copy that follows, finds the disk full, the ballast's
bytes are released to the disk; they are reserved again once the disk has room. An operation that only adds data cannot
use them: it would consume them, and a full store could not be emptied any more. A store opens even if the disk has no
room for ballast.
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


def bytes_to_reserve(data_bytes: int) -> int:
    """Return the bytes to reserve for a data file of this size: room to rewrite it and to copy it, within bounds."""
    return min(max(2 * data_bytes, BALLAST_BYTES_MIN), BALLAST_BYTES_MAX)


def reserved_bytes(path: str) -> int:
    """Return the number of bytes reserved on disk in a store's directory."""
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
        """Bytes written since the ballast was last compared with the data; compared again at ``BALLAST_BYTES_MIN``."""

    def _target_bytes(self) -> int:
        return bytes_to_reserve(os.stat(os.path.join(self._path, DATA_FILE)).st_size)

    def fill(self) -> bool:
        """Reserve the missing bytes, and return whether the ballast is complete.

        Reserves only if the disk has twice as much free; if it does not, tries again with ``BALLAST_BYTES_MIN``.
        """
        if self._is_lent:
            return False
        self.written_bytes = 0
        wanted, reserved = self._target_bytes(), reserved_bytes(self._path)
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
        """Call ``use``, which can ``give`` the ballast's space to the disk; reserve the space again afterwards."""
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
        """Release the ballast's bytes to the disk if it is lent; return whether another attempt is worthwhile."""
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
        """Reserve as much as still fits, before operations that only add data can take the space."""
        size_bytes = self._target_bytes()
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
    """Extend the file to this size, with disk blocks allocated for all of its bytes."""
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | FILE_FLAGS, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size_bytes)
        else:
            for begin in range(0, size_bytes, len(_CHUNK)):
                os.pwrite(descriptor, _CHUNK[: size_bytes - begin], begin)
    finally:
        os.close(descriptor)
