"""LMDB's environment of a store: one for each file and process, its databases open, one writer at a time.

LMDB may open a file only once in a process, so read-only handles of the same process share the writer's environment.
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
    is_cut_off,
    is_full,
    is_granted,
    is_of_disk,
    open_lmdb,
    open_sealed,
    open_to_read,
    settle,
    translated,
    txnids_of,
)
from refold.log.protocol import Displaced, TurnLost
from refold.threads import free_lock, uninterrupted

# The turnstile: a lock before LMDB's own, which whoever writes holds for its turn.
#
# LMDB's mutex is robust against the death of its owner, and still loses a wake-up: if a waiter is killed between
# being woken and taking the mutex, while another process has just taken it without knowing of waiters, then the next
# waiter sleeps for ever on a mutex that is free. A record lock of the system has no such gap, and dies with its
# process. With the turnstile in front, no process ever waits at LMDB's mutex, and whoever has it knows that no writer
# is at work.
#
# Its file is mapped by everybody. A byte says that an I/O error has stopped a writer, until one has opened the store
# and checked the end of the log: noting it takes no call that a broken disk could refuse. A number counts how often the
# data file was replaced by a clean copy, twice each time: it is odd while that is being done. Whoever has the file open
# compares it before each look at the log, and goes on in the new file.

TURN_LOCK: Final = "turn.lock"
_SUSPECT: Final = 2
_FILE_BYTES: Final = 16
REPLACED: Final = 1
"""Where the words of the file have the number."""
_TURN, _QUEUE = 0, 1
"""The bytes of the file that are locked: by who has its turn, and by who is to have the next one."""
_HAS: Final = ("its turn at", "the first place in the queue for")
_PAUSE_SECONDS_MIN: Final = 0.000_05
_PAUSE_GROWTH: Final = 1.25
_RECORD_LOCK: Final = Struct("@hhqqi0q")
"""``struct flock`` of Linux on a machine of 64 bits: type, from where, begin, length, process."""


class Turnstile:
    """The lock file of one store, opened once in a process: closing a second descriptor would give the lock back.

    Raises ``StoreFull`` and ``StoreError`` where the file cannot be made, mapped or locked.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.is_held = False
        """Whether the lock may be held: set before it is taken and cleared after it is given back."""
        self.is_kept = False
        """Whether the lock is held for several turns, none of which gives it back."""
        self.unlock: Callable[[], object] = _nothing
        """Gives the lock back in one step, which no signal splits. Every turn ends with it: where ``is_held``."""
        try:
            self._file = _open(os.path.join(path, TURN_LOCK))
            _allocate(self._file.fileno())
            mapped = memoryview(mmap.mmap(self._file.fileno(), _FILE_BYTES))
            self._flags: memoryview | bytearray = mapped
            self.words: memoryview | list[int] = mapped.cast("Q")
            """What the file holds, at any moment."""
            status = os.fstat(self._file.fileno())
            self._identity = status.st_dev, status.st_ino
            self.unlock = partial(fcntl.lockf, self._file, fcntl.LOCK_UN)
        except OSError as error:
            raise self._failed("opening", error) from error

    def _failed(self, doing: str, error: OSError) -> StoreError:
        return disk_error(
            error,
            f"{doing} {TURN_LOCK} in {self._path}",
            "check who owns it, that it is a file, and that the file system knows record locks, then open the store "
            "again",
        )

    def enter(self) -> None:
        """Wait for the turn of every other process, in bounds; a thread at a time, once more or not.

        Whoever waits is first in the queue or waits for its first place: a process that writes without a pause goes
        behind those that wait. No call waits in the kernel, which would be as fair and know no bound.
        """
        if self.is_held:
            return  # The queue may wait for this very turn.
        self.is_held = True
        if self.is_kept:
            return  # As above.
        if not self._locks(_TURN, 2):  # Both places in one call, where no other process writes or waits.
            self._wait()
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _QUEUE)

    def _wait(self) -> None:
        """Take the first place in the queue, then the turn."""
        until, pause = time.monotonic() + COMMIT_WAIT_SECONDS_MAX, _PAUSE_SECONDS_MIN
        for place in (_QUEUE, _TURN):
            while not self._locks(place):
                if time.monotonic() > until:
                    raise StoreBusy(
                        f"process {self._holder(place)} has {_HAS[place]} writing to {self._path}, for longer than "
                        f"COMMIT_WAIT_SECONDS_MAX = {COMMIT_WAIT_SECONDS_MAX} s; see whether it is stopped, let it "
                        f"go on or end it, and call again"
                    )
                time.sleep(pause)
                pause = min(_PAUSE_GROWTH * pause, MAP_WAIT_SECONDS)

    def _locks(self, place: int, count: int = 1) -> bool:
        """Lock a place, or several, and return whether no other process has one of them."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, count, place)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._failed("locking", error) from error
        return True

    def _holder(self, place: int) -> str:
        """Return the number of the process that has a place, where the system tells."""
        if sys.platform != "linux":
            return "unknown"
        query = _RECORD_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        return str(_RECORD_LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, query))[-1])

    def enter_now(self) -> bool:
        """Enter unless another process has its turn, and return whether that was done; a thread at a time."""
        self.is_held = True
        self.is_held = self._locks(_TURN)
        return self.is_held

    def count_replacing(self) -> None:
        """Count that the data file is being replaced, or has been; the caller has its turn."""
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
        """Whether an I/O error has stopped a writer, and no other has checked the end of the log since."""
        return bool(self._flags[0] & _SUSPECT)

    def suspect(self) -> None:
        """Note for every process, and those to come, that the end of the log is to be checked."""
        self._flags[0] |= _SUSPECT

    def trust(self) -> None:
        """Note that the end of the log was checked."""
        self._flags[0] &= ~_SUSPECT

    def close(self) -> None:
        """Give everything back; a thread that looks meanwhile sees zeros."""
        self._flags, self.words = bytearray(_FILE_BYTES), [0, 0]
        self._file.close()


class NoTurnstile:
    """The turnstile of a process that may write to no file of the store: it never has a turn."""

    is_held = False
    is_suspect = False
    words = (0, 0)

    def close(self) -> None:
        """Do nothing: no file is open."""


def _open(path: str) -> io.FileIO:
    """Open a lock file as an object that closes itself: a bare descriptor would be lost to a signal."""
    flags = os.O_RDWR | os.O_CREAT | FILE_FLAGS
    return io.FileIO(path, "r+", opener=lambda name, _: os.open(name, flags, 0o600))


def _nothing() -> None:
    """Do nothing: the lock file is not open yet."""


def _allocate(file: int) -> None:
    """Give the file its bytes before it is mapped: writing to a hole on a full disk kills the process."""
    if os.fstat(file).st_size >= _FILE_BYTES:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, _FILE_BYTES)
    else:
        os.ftruncate(file, _FILE_BYTES)


_COMMITS_MAX: Final = 2**48
"""More than a file ever has."""

_MAP_SPARE_BYTES: Final = 64 * 1024**2
"""Address space that a growing map leaves to everything else in the process."""

_TICK_SECONDS_MAX: Final = 2.0
"""How long two changes of a directory may have the same time."""


class _Place(NamedTuple):
    """A directory in which the file was found: until its times change, nothing in it was made, renamed or removed.

    Two changes that are close together may have the same time. So it is looked through again for a while.
    """

    seen: object = None
    until: float = inf
    """The end of that while, of the monotonic clock; 0 once a look behind it has found the file."""


class Environment:
    """One LMDB environment of this process, its databases by name, and the handles that hold it."""

    def __init__(self, path: str, identity: tuple[int, int], *, readonly: bool, is_sealed: bool = False) -> None:
        self.path = path
        self.identity = identity
        self._data_path = os.path.join(path, DATA_FILE)
        self.is_sealed = is_sealed
        """Whether this process may write to no file of the store, not even that it reads: it keeps all writers out."""
        self._is_readonly = readonly
        """Whether LMDB's environment is one that cannot write, and is opened without waiting for a writer."""
        self.handles: WeakSet[object] = WeakSet()
        """The handles of this process; one that is gone counts no more."""
        self.writers: WeakSet[object] = WeakSet()
        """Those that may write: one at most."""
        self.writing = threading.RLock()
        """Held by a thread for its turn at writing, and to change the map: LMDB may not do both at once."""
        self.replaced = 0 if is_sealed else -1
        """What the turnstile counted when the data file was opened, -1 while it was odd: then the next look is closer.
        """
        self.commits_before = 0
        """The number from which the commits of this file are counted: no two files that were open here have the same.
        """
        self.copying = threading.Lock()
        """Held by a thread that copies out of the map, which stays where it is meanwhile."""
        self._map_changes = 0
        self._is_map_changing = False
        self._renewing = 0  # The thread that opens LMDB's environment anew, 0 for none.
        self._is_lost = False
        """Whether LMDB's environment was closed to be opened anew, and that has not succeeded yet."""
        self.stopped = ""  # The I/O error after which nothing is written here any more, empty while there was none.
        self.was_full = False  # Whether the last commit that was tried found the disk full.
        self.ballast = Ballast(path)
        """What a turn that meets a full disk may ask for room: it is lent to erasures."""
        self.turnstile = cast("Turnstile", NoTurnstile()) if is_sealed else Turnstile(path)
        self._txnids = NO_TXNIDS
        self._place = _Place()
        # The environment is opened last, and closed by whatever goes wrong from here: the process may not open the
        # file again as long as a traceback holds it.
        try:
            self._identify()
            self.env = self._opened()
        except BaseException:
            self.turnstile.close()
            raise
        try:
            assert self.env.max_key_size() >= LMDB_KEY_BYTES_MAX, self.env.max_key_size()
            self.map_bytes: int = self.env.info()["map_size"]
            self.env.reader_check()
            self.databases = self._open_databases()
            if not is_sealed:  # Whose transactions are of the file's last commit in any case.
                self._txnids = txnids_of(path, self.env.stat()["psize"])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give everything back."""
        self._txnids = NO_TXNIDS
        self.env.close()
        self.turnstile.close()

    def begin(self, *, write: bool) -> "lmdb.Transaction[bytes]":
        """Return a transaction that writes, for this thread alone, once no other is open, or one that reads.

        The caller holds ``writing``, or nobody else has the environment yet.
        """
        if write:
            self.turnstile.enter()
            if self.turnstile.words[REPLACED] != self.replaced:
                self._look()
            if not self._is_at_place():
                raise self._displaced()
        attempts = RETRIES_COUNT_MAX
        while True:
            try:
                return self.env.begin(write=write)
            except lmdb.Error as error:
                attempts -= 1
                if not attempts or not self.recover(error):
                    raise translated(error, f"beginning to {'write' if write else 'read'}", self.path) from error

    # What is durable, and what becomes of writing after an I/O error.
    #
    # After one it is unknown what has reached the disk: the system may have forgotten pages that it could not write,
    # and LMDB's last page may be there or not. So writing stops in this process until the store is opened again,
    # which reads its end from the disk and checks it.

    def durable_until(self, seq: int) -> int:
        """Return ``seq``: what was written is durable."""
        return seq

    def flush(self) -> None:
        """Fill the ballast if the disk has room again; what was written is durable."""
        if not self._is_readonly:
            self.check_place()
            self.ballast.fill()

    @property
    def is_stopped(self) -> bool:
        """Whether an I/O error has stopped writing until the store is opened again."""
        return bool(self.stopped)

    @property
    def is_suspect(self) -> bool:
        """Whether an I/O error, of this process or of another, has left the end of the log in doubt."""
        return self.turnstile.is_suspect

    def failure(self, error: lmdb.Error, doing: str, txnid: int) -> StoreError:
        """Return the error of a commit that failed; the thread has its turn.

        A full disk is an end that is known, and writing goes on when there is space: unless LMDB failed at its last
        page and others see the commit all the same, which is unknown again.
        """
        is_visible = False
        if self.is_panicked():
            try:
                self.renew()
                is_visible = self.env.info()["last_txnid"] >= txnid
            except (StoreError, lmdb.Error, OSError):
                is_visible = True  # It cannot be read now; who reads next tries again.
        was_full, self.was_full = self.was_full, is_full(error, self.path, was_full=self.was_full)
        if is_visible or is_of_disk(error, self.path, was_full=was_full):
            self.stop(str(error))
            return StoreError(f"{doing} in {self.path}: {error}; whether it was written is unknown: {STOPPED_NEXT}")
        return translated(error, doing, self.path, was_full=was_full)

    def stop(self, reason: str) -> None:
        """Let nothing be written any more until the store is opened again, because of an error of the disk."""
        self.stopped = self.stopped or reason
        self.turnstile.suspect()

    def check_writing(self) -> None:
        """Raise after an I/O error, which stops writing until the store is opened again."""
        if self.stopped:
            raise StoreError(
                f"nothing more is written to {self.path} since an I/O error ({self.stopped}): {STOPPED_NEXT}"
            )

    def resume(self) -> None:
        """Check the end of the log as the disk holds it, and let writing go on; raises ``StoreError`` if it may not."""
        with self.writing:
            try:
                self.turnstile.enter()
                self.renew(lambda: settle(self.path))
                with self.begin(write=False) as txn:
                    check_end(txn.cursor(self.databases["log"]).iterprev(), self.path)
                self.stopped = ""
                self.turnstile.trust()
            except lmdb.Error as error:
                raise translated(error, "checking the end of the log", self.path) from error
            finally:
                if self.turnstile.is_held:
                    self.turnstile.unlock()
                    self.turnstile.is_held = False

    def allow_writing(self) -> None:
        """Open LMDB's environment anew if it cannot write, in bounds; raises what ``begin`` raises."""
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
        """Open LMDB's environment anew, for a thread that has its turn."""
        self._is_readonly = False
        try:
            self.renew()
        except BaseException:
            self._is_readonly = True
            raise

    def is_behind(self, txnid: int) -> bool:
        """Return whether the file has a later commit than a transaction saw: its writer is at work still, or dead."""
        first, second = self._txnids
        return first[0] > txnid or second[0] > txnid

    def tell_of_dead(self) -> bool:
        """Let LMDB tell readers of the last commit of a writer that died; return whether no writer was at work."""
        writing, turnstile = self.writing, self.turnstile
        is_writing_here = turnstile.is_held
        if is_writing_here:
            return False
        try:
            if not writing.acquire(blocking=False):
                return False
            try:
                if not turnstile.enter_now():
                    return False
                if self._is_readonly:
                    if not os.access(os.path.join(self.path, DATA_FILE), os.W_OK):
                        return False
                    self._become_writable()
                with suppress(lmdb.Error):
                    self.env.sync(True)  # noqa: FBT003 - the binding takes it by its place
                    self.env.begin(write=True)
                return True
            finally:
                if turnstile.is_held:
                    turnstile.unlock()
                    turnstile.is_held = False
        finally:
            try:  # noqa: SIM105 - a signal may end a Python function, and `suppress` has some, before its first line
                writing.release()
            except RuntimeError:
                pass  # Another thread writes.

    def replace(self, made: str) -> None:
        """Put the data file of another directory in the place of this one, and open it; the old one stays where not.

        The caller holds ``writing`` and has its turn, and the new file counts its commits on from this one's. LMDB's
        table of readers stays. Other processes that have the old file open see that it was replaced.
        """
        self.renew(lambda: self._put_in_place(made))

    def _put_in_place(self, made: str) -> None:
        """Give the name of the file to another, durably; where that is unknown, nothing more is written.

        Whoever wrote to a file whose name a loss of power takes back would lose what was acknowledged.
        """
        if not self._is_at_place():
            raise self._displaced()
        self.turnstile.count_replacing()
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
            self.turnstile.count_replacing()

    def follow(self) -> bool:
        """Open the file that another process has put in the place of this one; return whether that was done.

        Not while a thread writes, or reads in a snapshot, which are of the old file: then a later look does it.
        """
        writing = self.writing
        try:
            if not writing.acquire(blocking=False) or self._is_known():
                return False
            self.renew()
            return True
        finally:
            try:  # noqa: SIM105 - as in `tell_of_dead`
                writing.release()
            except RuntimeError:
                pass  # Another thread has it.

    def _is_known(self) -> bool:
        """Return whether the file at the path is the one that is open, or no business of this environment."""
        replaced = self.turnstile.words[REPLACED]
        is_known = self._is_at_place() or not self.turnstile.is_at(self.path)
        if is_known:
            self.replaced = -1 if replaced & 1 else replaced
        return is_known

    def _look(self) -> None:
        """Raise ``TurnLost`` where another process has put another file in the place of this one; this has its turn.

        It is not opened here: of a read that is under way, one half would be of each file.
        """
        if self.turnstile.words[REPLACED] & 1:
            self.turnstile.count_replacing()  # Whoever began it is dead.
        if not self._is_known():
            raise TurnLost(f"another process has erased something from {self.path}; nothing was written, call again")

    def _identify(self) -> None:
        """Look which file is at the path before it is opened: one that is put there meanwhile is noticed later."""
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
        """Return whether what failed with an error may be tried again."""
        if isinstance(error, lmdb.ReadersFullError):
            self.env.reader_check()
            return True
        if self._renewing == threading.get_ident():
            # This thread opens the map for one that holds `writing`: there is nothing to wait for.
            return isinstance(error, lmdb.MapResizedError) and self._enlarge(self._whole_bytes())
        if isinstance(error, lmdb.MapResizedError):
            return self._adopt()
        # A map that changes takes the transactions of other threads with it.
        while self._is_map_changing:
            if self.writing.acquire(timeout=MAP_WAIT_SECONDS):
                self.writing.release()
        if self._is_lost or isinstance(error, lmdb.PanicError):
            return self._regain()
        return self._map_changes > 0

    def check_place(self) -> None:
        """Raise ``Displaced`` where the file at the path is another one than was opened, or none that can be seen.

        One that an erasure has put there is opened by the next look at the log.
        """
        is_known = self.turnstile.words[REPLACED] == self.replaced or self._is_known()
        if is_known and not self._is_at_place():
            raise self._displaced()

    def _is_at_place(self) -> bool:
        device, number = self.identity
        # A `stat` of the file would have the next commit write its times anew, a tenth of what a lone append takes.
        with suppress(OSError):
            status = os.stat(self.path)
            seen, place = (self.identity, status.st_ino, status.st_mtime_ns, status.st_ctime_ns), self._place
            if place == (seen, 0.0):
                return status.st_dev == device
            with os.scandir(self.path) as entries:
                if any(entry.inode() == number and entry.name == DATA_FILE for entry in entries):
                    if seen != place.seen:
                        self._place = _Place(seen, time.monotonic() + _TICK_SECONDS_MAX)
                    elif time.monotonic() > place.until:
                        self._place = _Place(seen, 0.0)
                    return status.st_dev == device
        with suppress(OSError):  # Of a directory above that nobody may look into, say.
            status = os.stat(self._data_path)  # Of a link, or where no more files may be open.
            return (status.st_dev, status.st_ino) == self.identity
        return False

    def _displaced(self) -> Displaced:
        return Displaced(
            f"the store that was opened at {self.path} was moved, removed or replaced, or is out of reach, and nothing "
            f"more is written to it; close this memory and open it where it is"
        )

    def grow(self) -> bool:
        """Make the map that is full larger, and return whether the system grants it.

        The thread holds ``writing`` and has no transaction open.
        """
        return self._enlarge(self.map_bytes + MAP_STEP_BYTES_MIN)

    def _adopt(self) -> bool:
        """Make the map as large as the store that another process let grow, and return whether the system grants it.

        The thread that has its turn may wait for what the caller holds, so the caller waits for it in small steps: if
        it does not end its turn, it has made the map larger itself.
        """
        while not self.writing.acquire(timeout=MAP_WAIT_SECONDS):
            if self._is_readable():
                return True
        try:
            return self._is_readable() or self._enlarge(self._whole_bytes())
        finally:
            self.writing.release()

    def is_panicked(self) -> bool:
        """Return whether LMDB refuses even to read, as it does once it could not write its last page."""
        try:
            self.env.begin().abort()
        except lmdb.PanicError:
            return True
        except lmdb.Error:
            return self._is_lost
        return False

    def _regain(self) -> bool:
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
        """Open LMDB's environment anew, with a call while it is closed; the thread holds ``writing``.

        Reads of other threads that are cut off begin again. An interrupt waits until it is open.
        """
        uninterrupted(lambda: self._renew(meanwhile))

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
            self.env = self._opened()
            self.map_bytes = self.env.info()["map_size"]
            try:
                self.databases = self._open_databases()
            except TurnLost:
                self.env.close()  # It was replaced once more meanwhile.
            else:
                return

    def _whole_bytes(self) -> int:
        """Return the bytes of all pages that any process has written."""
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

    def _opened(self) -> lmdb.Environment:
        if self.is_sealed:
            return open_sealed(self.path)
        return open_to_read(self.path) if self._is_readonly else open_lmdb(self.path)

    def _open_databases(self) -> dict[str, Any]:
        """Return the handles of all databases, for all who share the environment."""
        try:
            return self._databases_read() if self._is_readonly else self._databases_written()
        except lmdb.NotFoundError as error:
            raise StoreVersion(
                f"{self.path} holds an LMDB file that refold did not write; give another path"
            ) from error
        except lmdb.Error as error:
            raise translated(error, "opening", self.path) from error

    def _databases_written(self) -> dict[str, Any]:
        """Return the handles, opened in a turn of which the first writer pads the file.

        The transaction is given, because LMDB's binding would else begin one of its own that waits for other writers
        with the GIL held. It has to be one that may write: of one that may not, the binding forgets the handles.
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

    def _databases_read(self) -> dict[str, Any]:
        """Return the handles of an environment that cannot write, whose binding waits for nobody."""
        is_cut_off(self.env, self.path)
        with self.begin(write=False):  # Which keeps every page in its place that the check walks.
            check_structure(self.path, STRUCTURE_BYTES_MAX)
        databases = {name: self.env.open_db(name.encode(), create=False) for name in NAMES}
        with self.begin(write=False) as txn:
            check_format(txn.get(FORMAT_KEY, db=databases["meta"]), self.path)
        return databases


open_environments: Final[dict[tuple[int, int], Environment]] = {}
"""Those of this process, by the identity of their files."""
open_lock = threading.RLock()
"""Held to open and to close; a thread may take it again: a handle that is collected then gives its share back."""


_of_parent: Final[set[tuple[int, int]]] = set()
"""The files that were open where this process forked off."""


def _leave_to_parent() -> None:
    """Keep what this process has of the parent's environments for ever.

    Who lets go of one gives up the place of its reader in LMDB's table, which is the parent's.
    """
    free_lock(open_lock)
    for identity, environment in open_environments.items():
        _of_parent.add(identity)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(environment.env))
    open_environments.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def identity_at(path: str) -> tuple[int, int]:
    """Return the identity of the file; ``StoreBusy`` if the process that forked this one has it open."""
    identity = file_at(path)
    if identity in _of_parent:
        raise StoreBusy(
            f"the process that forked this one had the store at {path} open; fork before it is opened, or start "
            f"processes with 'spawn'"
        )
    return identity


def file_at(path: str) -> tuple[int, int]:
    """Return the identity of the data file at a path."""
    status = os.stat(os.path.join(path, DATA_FILE))
    return status.st_dev, status.st_ino
