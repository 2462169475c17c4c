"""The turnstile: a lock before LMDB's own, for processes that write to one store at the same time.

LMDB's mutex is robust against the death of its owner, and still loses a wake-up: if a waiter is killed between being
woken and taking the mutex, while somebody else has just taken it without knowing of waiters, then the next waiter
sleeps for ever on a mutex that is free. A record lock of the system has no such gap, and dies with its process. With
the turnstile in front, nobody ever waits at LMDB's mutex.

A process that writes alone does not pay for it: a byte in the lock file, mapped by every writer, says whether there
are several. Whoever opens the store sets it, and clears it if it finds nobody else. The same byte says that an I/O
error has stopped a writer, until one has opened the store and checked the end of the log: noting it in mapped memory
takes no call that a broken disk could refuse.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from refold.errors import StoreError, StoreFull

TURN_LOCK: Final = "turn.lock"
_SEVERAL: Final = 1
_SUSPECT: Final = 2


class Turnstile:
    """The lock file of one store, opened once in a process: closing a second descriptor would give the lock back.

    Raises ``StoreFull`` and ``StoreError`` where the file cannot be made, mapped or locked.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with self._telling("opening"):
            self._file = os.open(os.path.join(path, TURN_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self._telling("mapping"):
                _allocate(self._file)
                self._flags = mmap.mmap(self._file, 1)
        except BaseException:
            os.close(self._file)
            raise
        self.is_held = False

    @contextmanager
    def _telling(self, doing: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            kind = StoreFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
            message = (
                f"{doing} {TURN_LOCK} in {self._path}: {error}; check who owns it, that it is a file, that there is "
                f"space, and that the file system knows record locks, then open the store again"
            )
            raise kind(message) from error

    def enter(self, *, always: bool = False) -> None:
        """Wait for the turn of every other process, if there are any; a thread at a time, which leaves it."""
        if (always or self._flags[0]) and not self.is_held:
            with self._telling("locking"):
                fcntl.lockf(self._file, fcntl.LOCK_EX)
            self.is_held = True

    def leave(self) -> None:
        """Let the next process have its turn."""
        if self.is_held:
            self.is_held = False
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def say(self, *, several: bool) -> None:
        """Tell every process whether several write; the caller has entered with ``always``."""
        self._flags[0] = (self._flags[0] & _SUSPECT) | (_SEVERAL if several else 0)

    @property
    def is_suspect(self) -> bool:
        """Whether an I/O error has stopped a writer, and no other has checked the end of the log since."""
        return bool(self._flags[0] & _SUSPECT)

    def suspect(self) -> None:
        """Note for every process, and those to come, that the end of the log is to be checked."""
        self._flags[0] |= _SUSPECT

    def trust(self) -> None:
        """Note that the end of the log was checked."""
        self._flags[0] &= ~_SUSPECT

    def close(self) -> None:
        """Give everything back."""
        self._flags.close()
        os.close(self._file)


def _allocate(file: int) -> None:
    """Give the file its byte before it is mapped: writing to a hole on a full disk kills the process."""
    if os.fstat(file).st_size:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, 1)
    else:
        os.ftruncate(file, 1)
