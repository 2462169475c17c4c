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
import io
import mmap
import os
from collections.abc import Callable
from functools import partial
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
        self.is_held = False
        """Whether the lock may be held: set before it is taken and cleared after it is given back."""
        self.unlock: Callable[[], object] = _nothing
        """Gives the lock back in one step, which no signal splits. Every turn ends with it: where ``is_held``."""
        try:
            self._file = _open(os.path.join(path, TURN_LOCK))
            _allocate(self._file.fileno())
            self._flags = mmap.mmap(self._file.fileno(), 1)
            self.unlock = partial(fcntl.lockf, self._file, fcntl.LOCK_UN)
        except OSError as error:
            raise self._failed("opening", error) from error

    def _failed(self, doing: str, error: OSError) -> StoreError:
        kind = StoreFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
        return kind(
            f"{doing} {TURN_LOCK} in {self._path}: {error}; check who owns it, that it is a file, that there is "
            f"space, and that the file system knows record locks, then open the store again"
        )

    def enter(self, *, always: bool = False) -> None:
        """Wait for the turn of every other process, if there are any; a thread at a time, once more or not."""
        if always or self._flags[0]:
            self.is_held = True
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX)
            except OSError as error:
                raise self._failed("locking", error) from error

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
        self._file.close()


def _open(path: str) -> io.FileIO:
    """Open a lock file as an object that closes itself: a bare descriptor would be lost to a signal."""
    return io.FileIO(path, "r+", opener=lambda name, _: os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _nothing() -> None:
    """Do nothing: the lock file is not open yet."""


def _allocate(file: int) -> None:
    """Give the file its byte before it is mapped: writing to a hole on a full disk kills the process."""
    if os.fstat(file).st_size:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, 1)
    else:
        os.ftruncate(file, 1)
