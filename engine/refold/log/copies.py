"""Copies of logs on servers, in directories: each process has one of its own, and a later process continues with it."""

import fcntl
import io
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Final

from refold.errors import NotFound, StoreBusy, StoreCorrupt, StoreError, StoreVersion, logger
from refold.limits import CACHES_COUNT_MAX, KEYED_HASH_BYTES
from refold.log.commits import POSITION_KEY, CopyPosition
from refold.log.directory import directory_at
from refold.log.disk import FILE_FLAGS, disk_error, remove
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import Row
from refold.text import blake2b

IN_RAM: Final = ":memory:"
"""The value of ``cache`` that keeps the copy in RAM instead of a directory."""

_NOT_REMOVED: Final = "copies in %s may hold erased data, and cannot be removed: %s"


def cache_root(cache: str | None) -> str:
    """Return the directory of all copies: ``cache``, by default a directory in the user's cache directory."""
    if cache is not None:
        return cache
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "refold")


def open_copy(root: str, name: str, seed: Sequence[Row]) -> "CopyLog":
    """Return the first copy of a log that no other process uses, or a new one."""
    values = {key: value for table, key, value in seed if table == "meta" and value is not None}
    # Id and name: a server may be restored under another address, and an address may be reused for another log.
    place = os.path.join(root, blake2b(values[b"store_id"] + name.encode(), digest_size=KEYED_HASH_BYTES).hexdigest())
    try:
        _make_private(os.path.abspath(place))
        for number in range(CACHES_COUNT_MAX):
            path = os.path.join(place, str(number))
            if (lock := _lock_copy(path)) is not None:
                return CopyLog(path, values, lock)
    except OSError as error:
        raise disk_error(error, f"making a copy of the log in {place}", "give another directory with cache=") from error
    raise StoreBusy(
        f"all CACHES_COUNT_MAX = {CACHES_COUNT_MAX} copies in {place} are in use; close some, or give cache="
    )


def _lock_copy(path: str) -> io.FileIO | None:
    """Reserve a copy for this process and return its lock, ``None`` if another process uses it."""
    lock = io.FileIO(f"{path}.lock", "w", opener=_open_private)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _make_private(path: str) -> None:
    """Create a directory and its parents for their owner alone: `os.makedirs` leaves the parents to the umask."""
    if not os.path.isdir(path):
        _make_private(os.path.dirname(path))
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | FILE_FLAGS, 0o600)


class CopyLog(LmdbLog):
    """A copy in a directory, with the lock that reserves it for this process.

    One that is damaged, or has a position of another version, is created anew.
    """

    def __init__(self, path: str, seed: dict[bytes, bytes], lock: io.FileIO) -> None:
        self._lock = lock
        try:
            try:
                self._open(path, seed)
            except (StoreCorrupt, StoreVersion):
                remove(path)
                self._open(path, seed)
        except BaseException:
            lock.close()
            raise

    def _open(self, path: str, seed: dict[bytes, bytes]) -> None:
        super().__init__(directory_at(path, readonly=False, seed=seed, exclusive=True))
        try:
            position_in(self)
        except BaseException:
            super().close()
            raise

    @property
    def place(self) -> str:
        """The directory of all copies of this log."""
        return os.path.dirname(self.files.path)

    def remove_stale(self, erasure: int) -> list[str]:
        """Remove the copies beside this one that lack the commit of an erasure; return those that processes use.

        A process that has just reserved a copy brings it up to date before it uses it. If it is killed before that,
        the next process that opens the log or erases something removes the copy.
        """
        left = list[str]()
        try:
            names = sorted(os.listdir(self.place))
        except OSError as error:
            logger().warning(_NOT_REMOVED, self.place, error)
            return [self.place]
        for name in names:
            path = os.path.join(self.place, name)
            if name.isdecimal() and path != self.files.path and not _has_erasure(path, erasure):
                left.append(path)
        return left

    def close(self) -> None:
        """Release the copy for the next process."""
        super().close()
        self._lock.close()


def position_in(log: LmdbLog) -> CopyPosition:
    """Return the position of a copy; ``StoreVersion`` if another version of refold wrote it."""
    row = log.row("meta", POSITION_KEY)
    return CopyPosition() if row is None else CopyPosition.unpack(row)


def _has_erasure(path: str, erasure: int) -> bool:
    """Return whether a copy has the commit of an erasure; remove one that lacks it, unless a process uses it."""
    if _position_at(path) >= erasure:
        return True  # Without its lock, which would keep a process that starts from going on with the copy.
    try:
        lock = _lock_copy(path)
        if lock is None:
            return False
        with lock:
            if _position_at(path) < erasure and os.path.isdir(path):
                remove(path)
    except OSError as error:
        logger().warning(_NOT_REMOVED, path, error)
        return False
    return True


def _position_at(path: str) -> int:
    """Return the number of the last commit of a copy, -1 if it cannot be read or is not there."""
    try:
        with closing(LmdbLog(directory_at(path, readonly=True, seed={}))) as log:
            return position_in(log).number
    except (NotFound, StoreError):
        return -1
