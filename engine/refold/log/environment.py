"""The LMDB environment of a store: one per file and process, with its databases open and one writer at a time.

A process may open an LMDB file only once, so its read-only handles share the writer's environment.
"""

import ctypes
import fcntl
import io
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from struct import Struct
from typing import Any, Final, NamedTuple, cast
from weakref import WeakSet

import lmdb

from refold.errors import StoreBusy, StoreError, StoreVersion
from refold.limits import (
    COMMIT_WAIT_SECONDS_MAX,
    LMDB_KEY_BYTES_MAX,
    MAP_STEP_BYTES_MIN,
    MAP_WAIT_SECONDS,
    RETRIES_COUNT_MAX,
    STRUCTURE_BYTES_MAX,
)
from refold.log.ballast import Ballast
from refold.log.disk import FILE_FLAGS, disk_error, flush
from refold.log.lmdb_file import (
    DATA_FILE,
    FORMAT_KEY,
    NAMES,
    NO_TXNIDS,
    STOPPED_NEXT,
    check_end,
    check_format,
    check_structure,
    drop_page_cache,
    is_cut_off,
    is_full,
    is_granted,
    is_of_disk,
    lmdb_error,
    open_lmdb,
    open_sealed,
    open_to_read,
    txnids_of,
)
from refold.log.protocol import StoreGone, TurnLost
from refold.threads import FORKED, forkable_lock, run_uninterrupted

# The turnstile: a lock in front of LMDB's own, which a writer holds during its turn.
#
# LMDB's mutex survives the death of its owner, but can lose a wake-up: if a waiter is killed between being woken and
# taking the mutex, while another process has just taken it without knowing of waiters, the next waiter sleeps forever
# on a free mutex. A record lock of the operating system has no such gap, and is released when its process dies. With
# the turnstile in front, no process ever waits at LMDB's mutex, and the process that holds the turnstile knows that no
# writer is at work.
#
# Every process maps its file. One byte says that an I/O error has stopped a writer, until a process has opened the
# store and checked the end of the log; setting it takes no call that a broken disk could refuse. A number counts how
# often a clean copy has replaced the data file, twice each time: it is odd during a replacement. A process that has the
# file open compares the number before each access to the log, and continues in the new file.

TURN_LOCK: Final = "turn.lock"
_SUSPECT: Final = 2
_FILE_BYTES: Final = 16
REPLACED: Final = 1
"""The index of that number among the words of the file."""
_TURN, _QUEUE = 0, 1
"""The bytes of the file that are locked: by the process that has its turn, and by the process that is next."""
_HAS: Final = ("its turn at", "the first place in the queue for")
_PAUSE_SECONDS_MIN: Final = 0.000_05
_PAUSE_GROWTH: Final = 1.25
_RECORD_LOCK: Final = Struct("@hhqqi0q")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, process."""


class Turnstile:
    """The lock file of one store, opened once per process: closing a second descriptor would release the lock.

    Raises ``StoreFull`` and ``StoreError`` if the file cannot be created, mapped or locked.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.is_held = False
        """Whether the lock may be held: set before it is taken and cleared after it is released."""
        self.is_kept = False
        """Whether the lock is held for several turns, none of which releases it."""
        self.unlock: Callable[[], object] = _no_op
        """Releases the lock in one step that no signal can split. Every turn ends with this call, if ``is_held``."""
        try:
            self._file = _open(os.path.join(path, TURN_LOCK))
            _allocate(self._file.fileno())
            mapped = memoryview(mmap.mmap(self._file.fileno(), _FILE_BYTES))
            self._flags: memoryview | bytearray = mapped
            self.words: memoryview | list[int] = mapped.cast("Q")
            """The content of the file, always up to date."""
            status = os.fstat(self._file.fileno())
            self._identity = status.st_dev, status.st_ino
            self.unlock = partial(fcntl.lockf, self._file, fcntl.LOCK_UN)
        except OSError as error:
            raise self._lock_error("opening", error) from error

    def _lock_error(self, doing: str, error: OSError) -> StoreError:
        return disk_error(
            error,
            f"{doing} {TURN_LOCK} in {self._path}",
            "check who owns it, that it is a file, and that the file system knows record locks, then open the store "
            "again",
        )

    def enter(self) -> None:
        """Wait for other processes' turns, up to ``COMMIT_WAIT_SECONDS_MAX``; for one thread at a time, reentrant.

        A waiting process has the first place in the queue, or waits for it: a process that writes without pause goes
        behind the waiting ones. No call waits in the kernel, which would be as fair, but without a bound.
        """
        if self.is_held:
            return  # The queue may wait for this very turn.
        self.is_held = True
        if self.is_kept:
            return  # As above.
        if not self._try_lock(_TURN, 2):  # Both places in one call, if no other process writes or waits.
            self._wait()
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _QUEUE)

    def _wait(self) -> None:
        """Take the first place in the queue, then the turn."""
        until, pause = time.monotonic() + COMMIT_WAIT_SECONDS_MAX, _PAUSE_SECONDS_MIN
        for place in (_QUEUE, _TURN):
            while not self._try_lock(place):
                if time.monotonic() > until:
                    raise StoreBusy(
                        f"process {self._holder(place)} has {_HAS[place]} writing to {self._path}, for longer than "
                        f"COMMIT_WAIT_SECONDS_MAX = {COMMIT_WAIT_SECONDS_MAX} s; see whether it is stopped, let it "
                        f"go on or end it, and call again"
                    )
                time.sleep(pause)
                pause = min(_PAUSE_GROWTH * pause, MAP_WAIT_SECONDS)

    def _try_lock(self, place: int, count: int = 1) -> bool:
        """Try to lock one or more places; return ``False`` if another process has one of them."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, count, place)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._lock_error("locking", error) from error
        return True

    def _holder(self, place: int) -> str:
        """Return the ID of the process that has a place, if the system tells."""
        if sys.platform != "linux":
            return "unknown"
        query = _RECORD_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        return str(_RECORD_LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, query))[-1])

    def try_enter(self) -> bool:
        """Enter unless another process has its turn, and return whether it did; for one thread at a time."""
        self.is_held = True
        self.is_held = self._try_lock(_TURN)
        return self.is_held

    def count_replacement(self) -> None:
        """Count the start or the end of a replacement of the data file; the caller has its turn."""
        self.words[REPLACED] += 1

    def is_at(self, path: str) -> bool:
        """Return whether this is the lock file of the store at a path."""
        try:
            status = os.stat(os.path.join(path, TURN_LOCK))
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    @property
    def is_suspect(self) -> bool:
        """Whether an I/O error has stopped a writer, and no writer has checked the end of the log since."""
        return bool(self._flags[0] & _SUSPECT)

    def suspect(self) -> None:
        """Record for all current and future processes that the end of the log must be checked."""
        self._flags[0] |= _SUSPECT

    def trust(self) -> None:
        """Record that the end of the log was checked."""
        self._flags[0] &= ~_SUSPECT

    def close(self) -> None:
        """Release everything; a thread that reads the words meanwhile sees zeros."""
        self._flags, self.words = bytearray(_FILE_BYTES), [0, 0]
        self._file.close()


class NoTurnstile:
    """The turnstile of a process without write permission for the store's files: it never has a turn."""

    is_held = False
    is_suspect = False
    words = (0, 0)

    def close(self) -> None:
        """Do nothing: no file is open."""


def _open(path: str) -> io.FileIO:
    """Open a lock file as an object that closes itself: a signal could leak a bare descriptor."""
    flags = os.O_RDWR | os.O_CREAT | FILE_FLAGS
    return io.FileIO(path, "r+", opener=lambda name, _: os.open(name, flags, 0o600))


def _no_op() -> None:
    """Do nothing: the lock file is not open yet."""


def _allocate(file: int) -> None:
    """Allocate the file's bytes before it is mapped: writing to a hole on a full disk kills the process."""
    if os.fstat(file).st_size >= _FILE_BYTES:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, _FILE_BYTES)
    else:
        os.ftruncate(file, _FILE_BYTES)


_COMMITS_MAX: Final = 2**48
"""More commits than a file ever has."""

_MAP_SPARE_BYTES: Final = 64 * 1024**2
"""Address space that a growing map leaves for the rest of the process."""

_TICK_SECONDS_MAX: Final = 2.0
"""The longest time between two changes of a directory that can have the same timestamp."""


class _DirectoryScan(NamedTuple):
    """A directory that contained the file: until its timestamps change, no entry was created, renamed or removed.

    Two changes close together can have the same timestamp, so the directory is scanned again for a while.
    """

    seen: object = None
    until: float = inf
    """When that period ends, on the monotonic clock; 0 once a scan after it has found the file."""


class Environment:
    """One LMDB environment of this process, its databases by name, and the handles that use it."""

    def __init__(self, path: str, identity: tuple[int, int], *, readonly: bool, is_sealed: bool = False) -> None:
        self.path = path
        self.identity = identity
        self._data_path = os.path.join(path, DATA_FILE)
        self.is_sealed = is_sealed
        """Whether this process can write to no file of the store, not even to register as a reader, so that it keeps
        all writers out."""
        self._is_readonly = readonly
        """Whether the LMDB environment is read-only, and is opened without waiting for a writer."""
        self.handles: WeakSet[object] = WeakSet()
        """The handles of this process; a handle that was collected no longer counts."""
        self.writers: WeakSet[object] = WeakSet()
        """The handles that can write: one at most."""
        self.writing = threading.RLock()
        """Held by a thread during its turn, and to change the map: LMDB must not do both at once."""
        self.replaced = 0 if is_sealed else -1
        """The turnstile's count when the data file was opened; -1 if it was odd, which forces a closer check next time.
        """
        self.commits_before = 0
        """The offset of this file's commit numbers; no two files that were open here have the same offset."""
        self.copying = threading.Lock()
        """Held by a thread that copies out of the map, which must not move meanwhile."""
        self._map_changes = 0
        self._is_map_changing = False
        self._renewing = 0  # The thread that is reopening the LMDB environment, 0 for none.
        self._is_lost = False
        """Whether the LMDB environment was closed to be reopened, and reopening has not succeeded yet."""
        self.stopped = ""  # The I/O error that stopped writing, empty if there was none.
        self.was_full = False  # Whether the last attempted commit found the disk full.
        self.ballast = Ballast(path)
        """The space that a turn can request when the disk is full; it is lent to erasures."""
        self.turnstile = cast("Turnstile", NoTurnstile()) if is_sealed else Turnstile(path)
        self._txnids = NO_TXNIDS
        self._place = _DirectoryScan()
        # The environment is opened last, and closed on any error from here on: the process may not open the file again
        # while a traceback still holds the environment.
        try:
            self._identify()
            self.env = self._open_env()
        except BaseException:
            self.turnstile.close()
            raise
        try:
            assert self.env.max_key_size() >= LMDB_KEY_BYTES_MAX, self.env.max_key_size()
            self.map_bytes: int = self.env.info()["map_size"]
            self.env.reader_check()
            self.databases = self._open_databases()
            if not is_sealed:  # A sealed one always reads the file's last commit.
                self._txnids = txnids_of(path, self.env.stat()["psize"])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release everything."""
        self._txnids = NO_TXNIDS
        self.env.close()
        self.turnstile.close()

    def begin(self, *, write: bool) -> "lmdb.Transaction[bytes]":
        """Begin a read transaction, or a write transaction for this thread alone once no other writer has one.

        The caller holds ``writing``, unless no other thread has the environment yet.
        """
        if write:
            self.turnstile.enter()
            if self.turnstile.words[REPLACED] != self.replaced:
                self._check_current_file()
            if not self._is_at_place():
                raise self._gone_error()
        attempts = RETRIES_COUNT_MAX
        while True:
            try:
                return self.env.begin(write=write)
            except lmdb.Error as error:
                attempts -= 1
                if not attempts or not self.recover(error):
                    raise lmdb_error(error, f"beginning to {'write' if write else 'read'}", self.path) from error

    # Durability, and writing after an I/O error.
    #
    # After an I/O error it is unknown how much has reached the disk: the system may have dropped pages that it could
    # not write, and LMDB's last page may or may not be there. So this process stops writing until the store is opened
    # again, which reads the end of the log from disk and checks it.

    def durable_until(self, seq: int) -> int:
        """Return ``seq``: every write is durable."""
        return seq

    def flush(self) -> None:
        """Fill the ballast if the disk has room again; every write is durable already."""
        if not self._is_readonly:
            self.check_place()
            self.ballast.fill()

    @property
    def is_stopped(self) -> bool:
        """Whether an I/O error has stopped writing until the store is opened again."""
        return bool(self.stopped)

    @property
    def is_suspect(self) -> bool:
        """Whether an I/O error in this or another process has left the end of the log in doubt."""
        return self.turnstile.is_suspect

    def failure(self, error: lmdb.Error, doing: str, txnid: int) -> StoreError:
        """Return the error of a failed commit; the thread has its turn.

        A full disk has a known outcome, and writing continues once there is space. But if LMDB failed at its last page
        and the commit is visible all the same, the outcome is unknown.
        """
        is_visible = False
        if self.is_panicked():
            try:
                self.renew()
                is_visible = self.env.info()["last_txnid"] >= txnid
            except (StoreError, lmdb.Error, OSError):
                is_visible = True  # It cannot be read now; the next read tries again.
        was_full, self.was_full = self.was_full, is_full(error, self.path, was_full=self.was_full)
        if is_visible or is_of_disk(error, self.path, was_full=was_full):
            self.stop(str(error))
            return StoreError(f"{doing} in {self.path}: {error}; whether it was written is unknown: {STOPPED_NEXT}")
        return lmdb_error(error, doing, self.path, was_full=was_full)

    def stop(self, reason: str) -> None:
        """Stop all writing until the store is opened again, because of a disk error."""
        self.stopped = self.stopped or reason
        self.turnstile.suspect()

    def check_writing(self) -> None:
        """Raise ``StoreError`` if an I/O error has stopped writing until the store is opened again."""
        if self.stopped:
            raise StoreError(
                f"nothing more is written to {self.path} since an I/O error ({self.stopped}): {STOPPED_NEXT}"
            )

    def resume(self) -> None:
        """Check the end of the log as it is on disk, and resume writing; raises ``StoreError`` if that is unsafe."""
        with self.writing:
            try:
                self.turnstile.enter()
                self.renew(lambda: drop_page_cache(self.path))
                with self.begin(write=False) as txn:
                    check_end(txn.cursor(self.databases["log"]).iterprev(), self.path)
                self.stopped = ""
                self.turnstile.trust()
            except lmdb.Error as error:
                raise lmdb_error(error, "checking the end of the log", self.path) from error
            finally:
                if self.turnstile.is_held:
                    self.turnstile.unlock()
                    self.turnstile.is_held = False

    def allow_writing(self) -> None:
        """Reopen the LMDB environment for writing if it is read-only, with a bounded wait; raises as ``begin`` does."""
        with self.writing:
            if not self._is_readonly:
                return
            try:
                self.turnstile.enter()
                self._become_writable()
            finally:
                if self.turnstile.is_held:
                    self.turnstile.unlock()
                    self.turnstile.is_held = False

    def _become_writable(self) -> None:
        """Reopen the LMDB environment for writing; the thread has its turn."""
        self._is_readonly = False
        try:
            self.renew()
        except BaseException:
            self._is_readonly = True
            raise

    def is_behind(self, txnid: int) -> bool:
        """Return whether the file has a later commit than ``txnid``: its writer is still at work, or dead."""
        first, second = self._txnids
        return first[0] > txnid or second[0] > txnid

    def reveal_dead_commit(self) -> bool:
        """Make a dead writer's last commit visible; ``False`` if a writer is at work, or this process cannot write."""
        writing, turnstile = self.writing, self.turnstile
        is_writing_here = turnstile.is_held
        if is_writing_here:
            return False
        try:
            if not writing.acquire(blocking=False):
                return False
            try:
                if not turnstile.try_enter():
                    return False
                if self._is_readonly:
                    if not os.access(os.path.join(self.path, DATA_FILE), os.W_OK):
                        return False
                    self._become_writable()
                with suppress(lmdb.Error):
                    self.env.sync(True)  # noqa: FBT003 - the binding takes it by position
                    self.env.begin(write=True)
                return True
            finally:
                if turnstile.is_held:
                    turnstile.unlock()
                    turnstile.is_held = False
        finally:
            try:  # noqa: SIM105 - a signal may end a Python function, and `suppress` calls some, before its first line
                writing.release()
            except RuntimeError:
                pass  # Another thread writes.

    def replace(self, made: str) -> None:
        """Replace the data file with the one in another directory, and open it; on failure the old file stays.

        The caller holds ``writing`` and has its turn, and the new file continues the commit numbers of this one. LMDB's
        table of readers stays. Other processes that have the old file open notice the replacement.
        """
        self.renew(lambda: self._put_in_place(made))

    def _put_in_place(self, made: str) -> None:
        """Durably give the file's name to another file; if it is unknown whether that is durable, writing stops.

        A power loss that took the name back would lose acknowledged writes to the new file.
        """
        if not self._is_at_place():
            raise self._gone_error()
        self.turnstile.count_replacement()
        try:
            os.rename(os.path.join(made, DATA_FILE), os.path.join(self.path, DATA_FILE))
            flush(self.path)
        except OSError as error:
            if file_at(self.path) == self.identity:
                raise
            self.stop(str(error))
            raise StoreError(
                f"putting a clean copy of the file in place in {self.path}: {error}; {STOPPED_NEXT}"
            ) from error
        finally:
            self.turnstile.count_replacement()

    def follow(self) -> bool:
        """Open the file with which another process has replaced this one, and return whether that was done.

        A turn and a snapshot need the old file, so while a thread has one, this is left to a later check.
        """
        writing = self.writing
        try:
            if not writing.acquire(blocking=False) or self._is_current_file():
                return False
            self.renew()
            return True
        finally:
            try:  # noqa: SIM105 - as in `reveal_dead_commit`
                writing.release()
            except RuntimeError:
                pass  # Another thread has it.

    def _is_current_file(self) -> bool:
        """Return whether the file at the path is the open one, or does not belong to this environment."""
        replaced = self.turnstile.words[REPLACED]
        is_known = self._is_at_place() or not self.turnstile.is_at(self.path)
        if is_known:
            self.replaced = -1 if replaced & 1 else replaced
        return is_known

    def _check_current_file(self) -> None:
        """Raise ``TurnLost`` if another process has replaced the file; the caller has its turn.

        The new file is not opened here: a read in progress would come half from each file.
        """
        if self.turnstile.words[REPLACED] & 1:
            self.turnstile.count_replacement()  # The process that began it is dead.
        if not self._is_current_file():
            raise TurnLost(f"another process has erased something from {self.path}; nothing was written, call again")

    def _identify(self) -> None:
        """Find out which file is at the path before it is opened; a file put there meanwhile is noticed later."""
        replaced = self.turnstile.words[REPLACED]
        if replaced == self.replaced or not self.turnstile.is_at(self.path):
            return
        self.replaced = -1 if replaced & 1 else replaced
        old, new = self.identity, identity_at(self.path)
        if new != old:
            is_open = open_environments.get(old) is self
            if is_open:
                open_environments[new] = self
            self.identity = new
            self.commits_before += _COMMITS_MAX
            if is_open:
                del open_environments[old]

    def recover(self, error: lmdb.Error) -> bool:
        """Recover from an error if possible, and return whether the failed operation can be retried."""
        if isinstance(error, lmdb.ReadersFullError):
            self.env.reader_check()
            return True
        if self._renewing == threading.get_ident():
            # This thread opens the map for a thread that holds `writing`: there is nothing to wait for.
            return isinstance(error, lmdb.MapResizedError) and self._enlarge(self._whole_bytes())
        if isinstance(error, lmdb.MapResizedError):
            return self._adopt_map_size()
        # A change of the map ends the transactions of other threads.
        while self._is_map_changing:
            if self.writing.acquire(timeout=MAP_WAIT_SECONDS):
                self.writing.release()
        if self._is_lost or isinstance(error, lmdb.PanicError):
            return self._recover_panic()
        return self._map_changes > 0

    def check_place(self) -> None:
        """Raise ``StoreGone`` if the path holds another file than was opened, or none that can be seen.

        A file that an erasure has put there is opened by the next access to the log.
        """
        is_known = self.turnstile.words[REPLACED] == self.replaced or self._is_current_file()
        if is_known and not self._is_at_place():
            raise self._gone_error()

    def _is_at_place(self) -> bool:
        device, number = self.identity
        # A `stat` of the file would make the next commit update its timestamps: a tenth of the time of a lone append.
        with suppress(OSError):
            status = os.stat(self.path)
            seen, place = (self.identity, status.st_ino, status.st_mtime_ns, status.st_ctime_ns), self._place
            if place == (seen, 0.0):
                return status.st_dev == device
            with os.scandir(self.path) as entries:
                if any(entry.inode() == number and entry.name == DATA_FILE for entry in entries):
                    if seen != place.seen:
                        self._place = _DirectoryScan(seen, time.monotonic() + _TICK_SECONDS_MAX)
                    elif time.monotonic() > place.until:
                        self._place = _DirectoryScan(seen, 0.0)
                    return status.st_dev == device
        with suppress(OSError):  # For example, no permission to search a parent directory.
            status = os.stat(self._data_path)  # For a link, or if no more files can be opened.
            return (status.st_dev, status.st_ino) == self.identity
        return False

    def _gone_error(self) -> StoreGone:
        return StoreGone(
            f"the store that was opened at {self.path} was moved, removed or replaced, or is out of reach, and nothing "
            f"more is written to it; close this memory and open it where it is"
        )

    def grow(self) -> bool:
        """Enlarge a full map, and return whether the system grants it.

        The thread holds ``writing`` and has no transaction open.
        """
        return self._enlarge(self.map_bytes + MAP_STEP_BYTES_MIN)

    def _adopt_map_size(self) -> bool:
        """Enlarge the map for a store that another process has grown, and return whether the system grants it.

        The thread that has its turn may be waiting for something the caller holds, so the caller waits for it in small
        steps: if that thread does not end its turn, it has enlarged the map itself.
        """
        while not self.writing.acquire(timeout=MAP_WAIT_SECONDS):
            if self._is_readable():
                return True
        try:
            return self._is_readable() or self._enlarge(self._whole_bytes())
        finally:
            self.writing.release()

    def is_panicked(self) -> bool:
        """Return whether LMDB refuses even to read, as it does after it failed to write its last page."""
        try:
            self.env.begin().abort()
        except lmdb.PanicError:
            return True
        except lmdb.Error:
            return self._is_lost
        return False

    def _recover_panic(self) -> bool:
        """Make a panicked store readable again, unless the thread that has its turn does so first."""
        while not self.writing.acquire(timeout=MAP_WAIT_SECONDS):
            if not self.is_panicked():
                return True
        try:
            if self.is_panicked():
                self.renew()
            return True
        finally:
            self.writing.release()

    def renew(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Reopen the LMDB environment, and call ``meanwhile`` while it is closed; the thread holds ``writing``.

        Reads of other threads that are cut off start again. An interrupt is delayed until the environment is open.
        """
        run_uninterrupted(lambda: self._renew(meanwhile))

    def _renew(self, meanwhile: Callable[[], None] | None) -> None:
        self._renewing = threading.get_ident()
        self._is_map_changing = self._is_lost = True
        try:
            with self.copying:
                self.env.close()
            try:
                if meanwhile is not None:
                    meanwhile()
            finally:
                self._reopen()
                self._txnids = txnids_of(self.path, self.env.stat()["psize"])
                self._is_lost = False
        finally:
            self._map_changes += 1
            self._is_map_changing = False
            self._renewing = 0

    def _reopen(self) -> None:
        while True:
            self._identify()
            self.env = self._open_env()
            self.map_bytes = self.env.info()["map_size"]
            try:
                self.databases = self._open_databases()
            except TurnLost:
                self.env.close()  # The file was replaced again meanwhile.
            else:
                return

    def _whole_bytes(self) -> int:
        """Return the size in bytes of all pages that any process has written."""
        return (self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"]

    def _is_readable(self) -> bool:
        try:
            self.env.begin().abort()
        except lmdb.Error:
            return False
        return True

    def _enlarge(self, needed_bytes: int) -> bool:
        least_bytes = needed_bytes - self.map_bytes
        more_bytes = max(self.map_bytes, 2 * least_bytes)
        while not is_granted(more_bytes + _MAP_SPARE_BYTES):
            if more_bytes == least_bytes:
                return False
            more_bytes = max(more_bytes // 2, least_bytes)
        self._map(self.map_bytes + more_bytes)
        return True

    def _map(self, map_bytes: int) -> None:
        self._is_map_changing = True
        try:
            with self.copying:
                self.env.set_mapsize(map_bytes)
            self.map_bytes = self.env.info()["map_size"]
        finally:
            self._map_changes += 1
            self._is_map_changing = False

    def _open_env(self) -> lmdb.Environment:
        if self.is_sealed:
            return open_sealed(self.path)
        return open_to_read(self.path) if self._is_readonly else open_lmdb(self.path)

    def _open_databases(self) -> dict[str, Any]:
        """Open all databases and return their handles, which all users of the environment share."""
        try:
            return self._open_readonly() if self._is_readonly else self._open_writable()
        except lmdb.NotFoundError as error:
            raise StoreVersion(
                f"{self.path} holds an LMDB file that refold did not write; give another path"
            ) from error
        except lmdb.Error as error:
            raise lmdb_error(error, "opening", self.path) from error

    def _open_writable(self) -> dict[str, Any]:
        """Open the databases in a turn; the first writer to do so pads a file that lacks pages at its end.

        The transaction is passed in, because LMDB's binding would otherwise begin its own, which waits for other
        writers while holding the GIL. It must be a write transaction: the binding forgets the handles of a read one.
        """
        is_held = self.turnstile.is_held
        try:
            self.turnstile.enter()
            if is_cut_off(self.env, self.path):
                os.truncate(os.path.join(self.path, DATA_FILE), self._whole_bytes())
            with self.begin(write=True) as txn:
                check_structure(self.path, STRUCTURE_BYTES_MAX)
                databases = {name: self.env.open_db(name.encode(), txn=txn, create=False) for name in NAMES}
                check_format(txn.get(FORMAT_KEY, db=databases["meta"]), self.path)
        finally:
            if self.turnstile.is_held and not is_held:
                self.turnstile.unlock()
                self.turnstile.is_held = False
        return databases

    def _open_readonly(self) -> dict[str, Any]:
        """Open the databases of a read-only environment, for which the binding waits for no writer."""
        is_cut_off(self.env, self.path)
        with self.begin(write=False):  # It keeps in place every page that the check walks.
            check_structure(self.path, STRUCTURE_BYTES_MAX)
        databases = {name: self.env.open_db(name.encode(), create=False) for name in NAMES}
        with self.begin(write=False) as txn:
            check_format(txn.get(FORMAT_KEY, db=databases["meta"]), self.path)
        return databases


open_environments: Final[dict[tuple[int, int], Environment]] = {}
"""The environments of this process, by the identity of their files."""
open_lock = forkable_lock()
"""Held to open and to close; reentrant, because a handle that is collected meanwhile gives its share back."""


_of_parent: Final[set[tuple[int, int]]] = set()
"""The files that were open when this process was forked."""


def _leave_to_parent() -> None:
    """Keep this process's references to the parent's environments forever.

    Dropping one would release its reader's slot in LMDB's table, which belongs to the parent.
    """
    for identity, environment in open_environments.items():
        _of_parent.add(identity)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(environment.env))
    open_environments.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def identity_at(path: str) -> tuple[int, int]:
    """Return the identity of the data file; ``StoreBusy`` if the parent had it open when it forked this process."""
    try:
        identity = file_at(path)
    except FileNotFoundError as error:
        raise StoreGone(
            f"the store at {path} was moved or removed while it was opened; find out by whom, and open it where it is"
        ) from error
    if identity in _of_parent:
        raise StoreBusy(f"the store at {path} {FORKED}")
    return identity


def file_at(path: str) -> tuple[int, int]:
    """Return the identity of the data file at a path."""
    status = os.stat(os.path.join(path, DATA_FILE))
    return status.st_dev, status.st_ino
