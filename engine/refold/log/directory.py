"""The directory of a store: atomic creation, opening, locking, and maintenance of its files.

Any number of processes can write to a store in turns, unless one has opened it exclusively.
"""

import fcntl
import io
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from refold.errors import Closed, InvalidInput, NotFound, StoreBusy, StoreCorrupt, StoreError, StoreVersion
from refold.limits import MAP_WAIT_SECONDS, OPEN_WAIT_SECONDS_MAX
from refold.log.disk import FILE_FLAGS, build_directory, disk_error, remove
from refold.log.environment import TURN_LOCK, Environment, open_lock
from refold.log.lmdb_file import CLEAN, DATA_FILE, LOCK_FILE, create_databases, problems, unmap
from refold.log.protocol import SearchCounts
from refold.log.registry import share, unshare

T = TypeVar("T")

WRITER_LOCK: Final = "writer.lock"
_LOOK_SECONDS_MAX: Final = 1.0
"""The longest time to check which processes have a store open, while holding a lock that others check as well."""
_NOTHING: Final = partial(bool)
"""Does nothing, in a single C call."""
_NUMBER_BYTES_MAX: Final = 32
"""More digits than a process ID has."""


class Directory:
    """A store directory with its environment, once open, and the locks of this handle; the ``Files`` of a log."""

    environment: Environment
    keeps_erased = False

    def __init__(self, path: str, *, readonly: bool, exclusive: bool) -> None:
        self.path = path
        self.readonly = readonly
        self.exclusive = exclusive
        self.is_closed = False
        self._locks: list[io.FileIO] = []

    def open(self) -> None:
        """Take the locks and the environment; wherever this ends, ``release`` gives back what was taken."""
        if self.readonly and _is_sealed(self.path):
            self._locks.append(_open_lock(self.path, DATA_FILE, os.O_RDONLY))
            _keep_writers_out(self._locks[0], self.path)
            self.environment = share(self.path, self, readonly=True, is_sealed=True)
            return
        if not self.readonly:
            self._locks.append(_open_lock(self.path, WRITER_LOCK))
        self.environment = share(self.path, self, readonly=self.readonly)
        if not self.readonly:
            self.environment.allow_writing()
            (_lock_exclusive if self.exclusive else _lock_shared)(self._locks[0], self.path)
            _check_no_reader(self.path)
            self.environment.ballast.fill()
            self._clear_away()
            if self.environment.stopped or self.environment.is_suspect:
                self.environment.resume()

    def _clear_away(self) -> None:
        """Remove the copy left by an erasure that was cut off; waits for an erasure that is still running."""
        left = os.path.join(self.path, CLEAN)
        if os.path.isdir(left):
            with suppress(StoreError):  # The next handle to open the store removes it.
                self.alone(lambda: remove(left, strict=False))

    @property
    def directory(self) -> str | None:
        """The path of the store."""
        return self.path

    def check_open(self) -> None:
        """Raise ``Closed`` if the directory was released."""
        if self.is_closed:
            raise Closed(f"the store in {self.path} is closed; open it again with Memory({self.path!r})")

    def alone(self, use: Callable[[], T]) -> T:
        """Call ``use``, which can write several times, in one turn: no other handle writes meanwhile.

        The ballast is lent to the call, because callers use it to free space.
        """
        self.check_open()
        environment = self.environment
        if self.exclusive:
            environment.check_place()
            return environment.ballast.lend(use)  # The flusher thread can write meanwhile.
        turnstile = environment.turnstile
        with environment.writing:
            if turnstile.is_kept:
                return use()
            unlock = turnstile.unlock
            try:
                # A write transaction, begun and dropped: it makes the last commit of a dead writer visible.
                environment.begin(write=True)
                turnstile.unlock, turnstile.is_kept = _NOTHING, True
                return environment.ballast.lend(use)
            finally:
                turnstile.unlock, turnstile.is_kept = unlock, False
                unlock()
                turnstile.is_held = False

    def sweep(self) -> None:
        """Do nothing: a clean write leaves no trace of the data that it replaced."""

    def search(self, markers: Collection[bytes]) -> SearchCounts:
        """Return how often the markers occur in the files of the store."""
        from refold.log.search import search  # noqa: PLC0415 - rarely used

        return search(self.path, markers)

    def release_memory(self) -> None:
        """Release the pages that were read through the memory map."""
        unmap(os.path.join(self.path, DATA_FILE))

    def size_bytes(self) -> int:
        """Return the size of the data file."""
        return os.stat(os.path.join(self.path, DATA_FILE)).st_size

    def copy(self, into: str) -> None:
        """Write all committed data to a new data file in a directory."""
        from refold.log.clean_copy import copy  # noqa: PLC0415 - rarely used

        self.check_open()
        try:
            copy(self.environment, into)
        except StoreError:
            self.check_open()  # If it was closed meanwhile, the disk is not at fault.
            raise

    def verify(self) -> list[str]:
        """Return the findings of LMDB's offline verifier, which reads the file from disk."""
        return problems(self.path)

    def __del__(self) -> None:
        """Release a handle that was never closed, so that it does not keep the store from being opened again.

        Garbage collection can run on any thread, which must not wait. If another thread holds the lock to open a store,
        that thread finds this handle gone.
        """
        if open_lock.acquire(blocking=False):
            try:
                self.release()
            finally:
                open_lock.release()

    def release(self) -> None:
        """Close the environment if no other handle of this process has it, and release the locks.

        A second call does nothing, and a call after an interrupted one does the rest.
        """
        self.is_closed = True
        unshare(self)
        for lock in self._locks:
            lock.close()


def directory_at(path: str, *, readonly: bool, seed: dict[bytes, bytes], exclusive: bool = False) -> Directory:
    """Return the directory at a path, not open yet; a missing one is created with ``seed`` as its first ``meta`` rows.

    Several processes can write, with one handle each; an ``exclusive`` handle must be the only writer. Raises
    ``NotFound`` for a missing parent or a missing store opened read-only, ``StoreVersion`` if the path holds anything
    but a store, or a newer one, ``StoreCorrupt`` if the file of a store is gone, ``StoreBusy`` if the handles that have
    it open exclude this one.
    """
    assert not (readonly and exclusive), "a reader has nothing to be exclusive about"
    path = os.path.abspath(path)
    if not _exists(path, readonly=readonly):
        _create(path, seed)
    return Directory(path, readonly=readonly, exclusive=exclusive)


def holds_store(path: str) -> bool:
    """Return whether there is a store at the path, or at least its file."""
    return os.path.isfile(os.path.join(path, DATA_FILE))


def _exists(path: str, *, readonly: bool) -> bool:
    """Return whether there is a store at the path; raise if there is neither a store nor room for one."""
    if "\0" in path:
        raise InvalidInput(f"a path holds a NUL character: {path!r}; give a directory's path")
    if os.path.isfile(os.path.join(path, DATA_FILE)):
        return True
    if os.path.exists(path) and not os.path.isdir(path):
        raise StoreVersion(
            f"{path} is a file, and a store is a directory; give another path, or load an export with Memory.load"
        )
    try:
        is_used = os.path.isdir(path) and bool(os.listdir(path))
    except OSError as error:
        raise disk_error(error, f"opening {path}", "check who owns it, and open it again") from error
    if is_used:
        if os.path.isfile(os.path.join(path, DATA_FILE)):
            return True  # Another process has put its new store in place since the first check.
        if os.path.exists(os.path.join(path, WRITER_LOCK)):
            raise StoreCorrupt(
                f"the {DATA_FILE} of the store at {path} is gone; restore a backup with `refold recover BACKUP NEW`"
            )
        raise StoreVersion(
            f"{path} is a directory with other files and no {DATA_FILE}; give an empty or a new directory"
        )
    if readonly:
        raise NotFound(
            f"there is no store at {path} to open read-only; open it once without readonly=True to create it"
        )
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise NotFound(f"the parent directory {parent} of the store does not exist; create it first")
    return False


def _create(path: str, seed: dict[bytes, bytes]) -> None:
    """Create a store if there is none; if another process is creating it, wait up to ``OPEN_WAIT_SECONDS_MAX``."""
    until = time.monotonic() + OPEN_WAIT_SECONDS_MAX
    while not holds_store(path):
        site = build_directory(path, "a store", may_be_empty=True)
        try:
            with site as made:
                _create_inside(made, seed)
        except InvalidInput:
            if not holds_store(path):
                raise
        except StoreBusy:
            if time.monotonic() > until:
                raise
            time.sleep(MAP_WAIT_SECONDS)
        finally:
            site.gen.close()  # A signal can end `with` before its block begins; a traceback would keep the site locked.


def _create_inside(made: str, seed: dict[bytes, bytes]) -> None:
    create_databases(made, seed)
    for name in (WRITER_LOCK, TURN_LOCK):
        os.close(os.open(os.path.join(made, name), os.O_CREAT | os.O_RDWR, 0o600))


def _open_lock(path: str, name: str, flags: int = os.O_CREAT | os.O_RDWR) -> io.FileIO:
    """Open a lock file; closing it, or dropping the last reference to it, releases its lock.

    It is locked only once its owner holds it, so that the traceback of a failure in between cannot keep the lock.
    """
    file = os.path.join(path, name)
    try:
        return io.FileIO(
            file, "r+" if flags & os.O_RDWR else "r", opener=lambda name, _: os.open(name, flags | FILE_FLAGS, 0o600)
        )
    except OSError as error:
        step = f"check who owns {name} and that it is a file and no link, or only read with readonly=True"
        raise disk_error(error, f"the store at {path} cannot be locked", step) from error


def _lock(lock: io.FileIO, path: str, how: int) -> None:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError as error:
        name = os.path.basename(str(lock.name))
        raise StoreBusy(
            f"the store at {path} is held by another process ({name}); close it there and open again"
        ) from error


# A process without write permission for a store's files cannot record for LMDB which pages it reads, so no process may
# write while it reads. Such a reader takes a shared lock on the data file, and then checks whether there is a writer. A
# writer that opens the store takes its own lock first, and then checks whether the data file is locked.


def _is_sealed(path: str) -> bool:
    """Return whether this process lacks write permission for any of the files that a reader writes to."""
    files = (os.path.join(path, name) for name in (TURN_LOCK, LOCK_FILE))
    return not all(os.access(file if os.path.exists(file) else path, os.W_OK) for file in files)


def _keep_writers_out(data: io.FileIO, path: str) -> None:
    """Take a shared lock on the data file; raise ``StoreBusy`` if a process writes to the store."""
    _lock_soon(data, path, fcntl.LOCK_SH)
    if not os.path.exists(os.path.join(path, WRITER_LOCK)):
        return  # No process writes to a data file that was copied alone.
    with _open_lock(path, WRITER_LOCK, os.O_RDONLY) as writer:
        try:
            _lock_soon(writer, path, fcntl.LOCK_EX)
        except StoreBusy as error:
            raise StoreBusy(
                f"a process writes to the store at {path}, and this one may write to none of its files, not even that "
                f"it reads; close it there, give this one permission to write to {TURN_LOCK} and {LOCK_FILE}, or read "
                f"a backup"
            ) from error


def _check_no_reader(path: str) -> None:
    """Raise ``StoreBusy`` if a reader that LMDB cannot know of has the store open."""
    with _open_lock(path, DATA_FILE, os.O_RDONLY) as data:
        try:
            _lock_soon(data, path, fcntl.LOCK_EX)
        except StoreBusy as error:
            raise StoreBusy(
                f"a process that may not write to the files of the store at {path} reads it, and keeps writers out; "
                f"close it there, or give it permission to write to {TURN_LOCK} and {LOCK_FILE}"
            ) from error


def _lock_soon(lock: io.FileIO, path: str, how: int, seconds: float = _LOOK_SECONDS_MAX) -> None:
    """Take a lock, waiting up to ``seconds`` for a process that holds it briefly."""
    until = time.monotonic() + seconds
    while True:
        try:
            return _lock(lock, path, how)
        except StoreBusy:
            if time.monotonic() > until:
                raise
            time.sleep(MAP_WAIT_SECONDS)


def _lock_shared(lock: io.FileIO, path: str) -> None:
    """Take the writers' lock, shared; a process that holds it exclusively has written its process ID to the file."""
    try:
        _lock_soon(lock, path, fcntl.LOCK_SH)
    except StoreBusy as error:
        holder = os.pread(lock.fileno(), _NUMBER_BYTES_MAX, 0).decode().strip() or "unknown"
        raise StoreBusy(
            f"process {holder} holds the store at {path} for itself alone (durability='delayed'); close it there, "
            f"open it there with durability='durable', or open this one with readonly=True"
        ) from error


def _lock_exclusive(lock: io.FileIO, path: str) -> None:
    """Take the writers' lock exclusively, and write this process's ID to the file."""
    try:
        _lock_soon(lock, path, fcntl.LOCK_EX)
    except StoreBusy as error:
        _lock_shared(lock, path)
        raise StoreBusy(
            f"other processes write to the store at {path}, and durability='delayed' wants it for itself alone; "
            f"close it there, or open this one with durability='durable'"
        ) from error
    try:
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
    except OSError as error:
        raise disk_error(error, f"writing {WRITER_LOCK} in {path}", "check the disk and open it again") from error
