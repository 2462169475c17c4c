"""The reservation of a name by one process of a machine, which ends with the process at the latest."""

import fcntl
import io
import os
from contextlib import suppress
from typing import Final

from refold.log.disk import FILE_FLAGS, disk_error, is_at

RESERVATIONS: Final = "reservations"
"""The directory in a store that holds the files; they are empty, and can vanish at any time."""


class Reservation:
    """A file whose lock says that the name is taken; it is removed at the end, or stays behind if the process dies.

    The lock belongs to this object: two reservations of one name exclude each other in one process, too.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._path = os.path.join(directory, RESERVATIONS, f"{name}.lock")
        self._file: io.FileIO | None = None
        self._is_held = False

    def take(self) -> bool:
        """Take the lock unless it is held elsewhere, and return whether it was taken.

        Raises ``StoreFull`` and ``StoreError`` if the file cannot be created or locked.
        """
        try:
            with suppress(FileExistsError):
                os.mkdir(os.path.dirname(self._path), 0o700)
            self._is_held = self._lock()
        except OSError as error:
            step = "check who owns it, and that it is a file and no link, and call again"
            raise disk_error(error, f"locking {self._path}", step) from error
        return self._is_held

    def _lock(self) -> bool:
        while True:
            self._file = io.FileIO(
                self._path, "r+", opener=lambda name, _: os.open(name, os.O_CREAT | os.O_RDWR | FILE_FLAGS, 0o600)
            )
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                return False
            if is_at(self._file.fileno(), self._path):
                return True
            self._file.close()  # Whoever had the lock removed the file after it was opened here.

    def release(self) -> None:
        """Remove the file and release its lock, if it is held; a second call does nothing."""
        file, self._file = self._file, None
        if file is None:
            return
        if self._is_held:
            self._is_held = False
            with suppress(OSError):
                os.unlink(self._path)  # While it is locked: another process may own the file afterwards.
            fcntl.flock(file, fcntl.LOCK_UN)  # A child forked meanwhile has the file open, too.
        file.close()
