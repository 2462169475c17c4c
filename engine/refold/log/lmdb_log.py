"""The log on LMDB: one directory with ``data.mdb``, ``lock.mdb``, ``owner.lock`` and ``writer.lock``.

It promises that what ``write`` returned from survives a power cut (two flushes per commit, never ``sync=False``, never
``writemap``) and that no transaction outlives a call. Of a record it reads head and columns at most, never an event.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import lmdb

from refold.errors import Closed, ReadOnly, StoreCorrupt, StoreError, StoreFull
from refold.limits import BALLAST_BYTES_MIN, RETRIES_COUNT_MAX, SEQ_BYTES
from refold.log.directory import Directory
from refold.log.disk import flush
from refold.log.environment import Environment
from refold.log.lmdb_file import DATA_FILE, is_of_disk, of_unknown_outcome, problems, translated
from refold.log.protocol import Found, Log, Row, Table, TurnLost
from refold.log.record import (
    FIRST_SEQ,
    FIRST_SEQ_BEGIN,
    NO_LINK,
    SEQ,
    EventBytes,
    Record,
    Sealed,
    events_in,
    link_after,
)

# Reads of the log inside a transaction, which is given and ends with the call.


_Database: TypeAlias = Any
"""A handle of LMDB, which has no type."""


def id_of(txn: "lmdb.Transaction[bytes]", _: _Database) -> int:
    """Return the number of the last transaction that is seen."""
    return txn.id()


def last_key(txn: "lmdb.Transaction[bytes]", database: _Database) -> bytes | None:
    """Return the last key of the database, ``None`` in an empty one."""
    cursor = txn.cursor(database)
    return cursor.key() if cursor.last() else None


def value_of(txn: "lmdb.Transaction[bytes]", database: _Database, key: bytes) -> bytes | None:
    """Return the value of a row."""
    return txn.get(key, db=database)


def items_from(
    txn: "lmdb.Transaction[bytes]", database: _Database, first: bytes, limit: int
) -> list[tuple[bytes, bytes]]:
    """Return up to ``limit`` rows with keys from ``first`` on."""
    cursor = txn.cursor(database)
    is_there = cursor.set_range(first) if first else cursor.first()
    return list(islice(cursor.iternext(), limit)) if is_there else []


def records_between(txn: "lmdb.Transaction[bytes]", database: _Database, after: int, until: int) -> list[Sealed]:
    """Return the records with the events behind one seq up to another."""
    cursor, found = txn.cursor(database), list[Sealed]()
    if after < until and cursor.set_range(SEQ.pack(after + 1)):
        for key, record in cursor.iternext():
            found.append((SEQ.unpack(key)[0], record))
            if found[-1][0] >= until:
                break
    return found


def located(txn: "lmdb.Transaction[Any]", database: _Database, seqs: Sequence[int]) -> list[EventBytes]:
    """Return the events at the given seqs."""
    cursor = txn.cursor(database)
    return events_in(lambda seq: cursor.value() if cursor.set_range(SEQ.pack(seq)) else None, seqs)


def item_before(txn: "lmdb.Transaction[bytes]", database: _Database, key: bytes) -> tuple[bytes, bytes] | None:
    """Return the last row whose key is at most ``key``."""
    cursor = txn.cursor(database)
    if cursor.set_range(key):
        if cursor.key() == key:
            return key, cursor.value()
        is_there = cursor.prev()
    else:
        is_there = cursor.last()
    return cursor.item() if is_there else None


# Giving mapped pages back: what LMDB has once read through its memory map counts as this process's memory.
#
# The pages are clean copies of the file and the system takes them back when it runs short; but who looks at a process
# from outside, a container's limit included, sees them. Where the system has no ``madvise`` nothing happens.

_MAPS: Final = "/proc/self/maps"
_DONT_NEED: Final = 4
"""``MADV_DONTNEED`` on Linux: for a shared map of a file, forget the mapping, keep the file's cached pages."""


def release(path: str) -> bool:
    """Unmap the pages of a file that are in RAM; return whether the system has a way to do so."""
    if not os.path.exists(_MAPS):
        return False
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    results = [advise(begin, end - begin, _DONT_NEED) for begin, end in _maps_of(os.path.realpath(path))]
    return bool(results) and not any(results)


def _maps_of(path: str) -> Iterator[tuple[int, int]]:
    """Return where a file is mapped: the first and the last address of each map."""
    with open(_MAPS, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            addresses, permissions, *_, name = [*line.rstrip("\n").split(None, 5), ""][:6]
            if name == path:
                assert permissions.endswith("s"), f"{path} is mapped privately"
                begin, end = addresses.split("-")
                yield int(begin, 16), int(end, 16)


# The end of a log checked: whether its last records are what their links say.
#
# Everything before them was durable before they began, and LMDB never writes to a page that a commit still needs. So
# this is what an I/O error leaves in doubt, and all that has to be read before writing goes on.


_CHECKED_RECORDS: Final = 256


def check_end(log: Log, path: str) -> None:
    """Raise ``StoreCorrupt`` unless the last 256 records are what their links say."""
    last = log.head()
    for _ in range(_CHECKED_RECORDS):
        if last < 1:
            return
        last = _check_record(log, path, last)


def _check_record(log: Log, path: str, last: int) -> int:
    """Check the record that ends with a seq, and return the seq of the last event before it."""
    try:
        ((_, packed),) = log.read(last - 1, last)
        record = Record(packed)
        if record.last_seq != last:
            raise _damaged(path, last, f"its record says that it ends at seq {record.last_seq}")
        before = log.read(record.first_seq - 2, record.first_seq - 1) if record.first_seq > 1 else []
        if record.first_seq > 1 and [seq for seq, _ in before] != [record.first_seq - 1]:
            raise _damaged(path, last, f"no record ends at seq {record.first_seq - 1}, in front of its own")
    except (ArithmeticError, LookupError, TypeError, ValueError, StructError) as error:
        raise _damaged(path, last, str(error)) from error
    previous = Record(before[0][1]).link if before else NO_LINK
    if link_after(previous, record.covered()) != record.link:
        raise _damaged(path, last, "the link of its record does not fit what is in it")
    return record.first_seq - 1


def _damaged(path: str, seq: int, reason: str) -> StoreCorrupt:
    message = (
        f"the end of the log in {path} was checked after an I/O error, and seq {seq} is damaged: {reason}; "
        f"open it with readonly=True to read what is there, run `refold verify`, restore a backup"
    )
    return StoreCorrupt(message)


# After a write that failed: which error is raised, and when nothing more may be written.
#
# After an I/O error it is unknown what has reached the disk: the system may have forgotten pages that it could not
# write, and LMDB's last page may be there or not. So writing stops in this process until the store is opened again,
# which reads its end from the disk and checks it.

_KEEPS_CACHE: Final = not hasattr(os, "posix_fadvise")


def failed(shared: Environment, error: lmdb.Error, doing: str, txnid: int) -> StoreError:
    """Return the error of a commit that failed; the thread has its turn.

    A full disk is an end that is known, and writing goes on when there is space: unless LMDB failed at its last page
    and others see the commit all the same, which is unknown again.
    """
    is_visible = False
    if shared.is_panicked():
        try:
            shared.renew()
            is_visible = shared.env.info()["last_txnid"] >= txnid
        except (StoreError, lmdb.Error, OSError):
            is_visible = True  # It cannot be read now; who reads next tries again.
    if is_visible or is_of_disk(error, shared.path):
        shared.stop(str(error))
        return of_unknown_outcome(error, doing, shared.path)
    return translated(error, doing, shared.path)


def settle(path: str) -> None:
    """Write what is not on the disk yet and forget what is, so that the file is read from the disk; it is not open.

    Raises ``StoreError`` where the disk still fails.
    """
    file = os.path.join(path, DATA_FILE)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            if not _KEEPS_CACHE:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        flush(path)  # The file may have got its name from a sweep whose last flush failed.
    except OSError as error:
        raise StoreError(
            f"{file} cannot be flushed ({error}), so nothing is written to it; check the disk and open it again"
        ) from error


# Turns at writing: to LMDB, which is a write transaction, and to the tail of a log that delays its writes.

_AnyRow: TypeAlias = tuple[str, bytes, bytes | None]
"""A row of any database, the log included."""


class LmdbTurn:
    """A write transaction; see ``protocol.LogTurn`` for what it promises, and ``LmdbLog.in_turn`` for how it ends.

    The transaction is aborted by dropping the only reference to it, so it may stand in no variable, which a traceback
    would keep. The ``abort`` of LMDB's binding waits until no other thread is inside a read, and two threads that read
    all the time let it wait for ever.
    """

    __slots__ = ("_log", "_shared", "is_blind", "is_open", "moved", "txn", "txnid")

    def __init__(self, log: "LmdbLog", shared: Environment) -> None:
        self._log = log
        self._shared = shared
        self.txn: lmdb.Transaction[bytes] | None = None
        self.is_open = False
        self.txnid = 0
        self.moved = False
        self.is_blind = False
        """Whether the writer has not read what others wrote: the next look has to tell of them all the same."""

    def write(self, records: Sequence[Sealed], rows: Sequence[Row] = (), erased: Sequence[Sealed] = ()) -> None:
        """Put everything and commit: durable on return. The transaction ends, in any case.

        A transaction that finds the map full is begun again in a larger one, and one that finds the disk full with the
        room of the ballast, if that is lent; unless others came between.
        """
        if not self.is_open:
            raise AssertionError("a turn is open once and writes once; take another turn")
        shared = self._shared
        puts: Sequence[_AnyRow] = rows
        if erased:
            puts = [*(("log", SEQ.pack(last), record) for last, record in erased), *rows]
        try:
            if shared.stopped:
                shared.check_writing()
            while True:
                try:
                    is_changed = self._put(records, puts)
                    break
                except lmdb.MapFullError as error:
                    if not shared.grow():
                        raise translated(error, _doing(records, puts), shared.path) from error
                except lmdb.Error as error:
                    failure = failed(shared, error, _doing(records, puts), self.txnid)
                    if not (isinstance(failure, StoreFull) and self._log.ballast.give()):
                        raise failure from error
                self._begin_again()
            if is_changed and not self.is_blind:
                self._log.seen_txnid = self.txnid
        finally:
            self.txn, self.is_open = None, False
            # Other processes need not wait for the fold of what was written.
            turnstile = shared.turnstile
            if turnstile.is_held:
                turnstile.unlock()
                turnstile.is_held = False

    def _begin_again(self) -> None:
        self.txn = self._shared.begin_write()
        if self.txn.id() != self.txnid:
            path = self._shared.path
            raise TurnLost(f"another process wrote to {path} while this one made room; nothing was written, call again")

    def _put(self, records: Sequence[Sealed], rows: Sequence[_AnyRow]) -> bool:
        """Put everything and commit the transaction; return whether that changed anything."""
        assert self.txn is not None
        databases = self._shared.databases
        try:
            if records:
                # No cursor in a variable: like the transaction, it would live on in a traceback.
                key = next(self.txn.cursor(db=databases["log"]).iterprev(values=False), bytes(SEQ_BYTES))
                # LMDB compares keys, and behind the last key a record may still begin with events that are there.
                if FIRST_SEQ.unpack_from(records[0][1], FIRST_SEQ_BEGIN)[0] != SEQ.unpack(key)[0] + 1:
                    self._refuse(f"the record that ends at seq {records[0][0]}")
                items = [(SEQ.pack(last), record) for last, record in records]
                if self.txn.cursor(db=databases["log"]).putmulti(items, append=True) != (len(items), len(items)):
                    self._refuse(f"one of {len(items)} records, the first of which ends at seq {records[0][0]},")
            # LMDB gives the number of a transaction that changed nothing to the next one, whoever that belongs to.
            is_changed = bool(records)
            for table, key, value in rows:
                if value is None:
                    is_changed |= self.txn.delete(key, db=databases[table])
                else:
                    is_changed |= self.txn.put(key, value, db=databases[table])
            if is_changed:
                self.txn.commit()
                ballast = self._log.ballast
                ballast.written_bytes += sum(len(record) for _, record in records)
                if ballast.written_bytes >= BALLAST_BYTES_MIN:
                    ballast.fill()
            return is_changed
        finally:
            self.txn = None

    def _refuse(self, what: str) -> NoReturn:
        """Raise, because LMDB did not append; no ``assert``: a check of a write must not go away with ``python -O``."""
        raise StoreCorrupt(
            f"{what} is not behind the last one of {self._shared.path}; run `refold verify` and restore a backup"
        )


def _doing(records: Sequence[Sealed], rows: Sequence[_AnyRow]) -> str:
    seqs = f"seqs {Record(records[0][1]).first_seq} to {records[-1][0]} and " if records else ""
    return f"writing {seqs}{len(rows)} rows"


T = TypeVar("T")


class LmdbLog:
    """A log in a directory; see ``protocol.Log`` for what each method promises."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._path = directory.path
        self.readonly = directory.readonly
        self.exclusive = directory.exclusive
        self.ballast = directory.ballast
        """What a turn that meets a full disk may ask for room: it is lent to those who have the store ``alone``."""
        self._is_closed = False
        self._snapshot: tuple[int, lmdb.Transaction[bytes]] | None = None
        """The thread that reads in a snapshot, and its transaction."""
        try:
            directory.open()  # Here, because what is open where this begins could be held by a traceback.
            self._shared = directory.environment
            self._attach()
            self.seen_txnid = self.turn_txnid = self.mark()
            """The last transaction that is no news: this log wrote it, or its reader knows of it."""
            if not self.readonly and (self._shared.stopped or self.is_suspect):
                self.resume()
        except BaseException:
            directory.release()  # A traceback may hold it, or the thread that renewed.
            raise

    def _attach(self) -> None:
        """Take what is looked up in every read from the environment, which is another one once it was renewed."""
        self._begin: Callable[..., Any] = self._shared.env.begin
        self._tables = self._shared.databases

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"the store in {self._path} is closed; open it again with Memory({self._path!r})")

    # Reading.

    def _reading(self, doing: str, read: Callable[..., T], *arguments: Any, database: str, buffers: bool = False) -> T:
        """Call ``read`` with a transaction of its own, which ends with the call, and return its result.

        The thread that reads in a snapshot has one for all of its calls.
        """
        if self._is_closed:
            self._check_open()
        attempts = RETRIES_COUNT_MAX
        while True:
            try:
                if self._snapshot is not None and self._snapshot[0] == threading.get_ident():
                    return read(self._snapshot[1], self._tables[database], *arguments)
                # The buffers are of the transaction: what is handed out must be a copy.
                txn: Any = self._begin(buffers=buffers)
                try:
                    if not buffers:
                        return read(txn, self._tables[database], *arguments)
                    with self._shared.copying:
                        return read(txn, self._tables[database], *arguments)
                finally:
                    txn.abort()
            except lmdb.Error as error:
                attempts -= 1
                if not attempts or not self._shared.recover(error):
                    raise translated(error, doing, self._path) from error
                self._attach()

    def head(self) -> int:
        """Return the seq of the last event."""
        key = self._reading("reading the head", last_key, database="log")
        if key is not None and len(key) != SEQ_BYTES:
            raise StoreCorrupt(f"the key of the last record of {self._path} is damaged; restore a backup")
        return 0 if key is None else int(SEQ.unpack(key)[0])

    def durable_head(self) -> int:
        """Return the seq of the last event: what was written is durable."""
        return self.head()

    def flush(self) -> None:
        """Fill the ballast if the disk has room again; what was written is durable."""
        if not self.readonly:
            self._shared.check_place()
            self.ballast.fill()

    def read(self, after: int, until: int) -> list[Sealed]:
        """Return the records with the events behind ``after`` up to ``until``."""
        return self._reading("reading records", records_between, after, until, database="log")

    def events_at(self, seqs: Sequence[int]) -> list[EventBytes]:
        """Return the events at the given seqs; of their records only what they need is copied."""
        return self._reading("reading events", located, seqs, database="log", buffers=True)

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._reading("reading a row", value_of, key, database=table)

    def rows(self, table: Table, first: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` on."""
        return self._reading("reading rows", items_from, first, limit, database=table)

    def row_before(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last row whose key is at most ``key``."""
        return self._reading("reading a row", item_before, key, database=table)

    def changed(self) -> bool:
        """Return whether others may have written since the last ``saw`` (about a tenth of a microsecond)."""
        return self.mark() != self.seen_txnid

    def mark(self) -> int:
        """Return the number of the last transaction."""
        txnid = self._txnid()
        if self._shared.is_behind(txnid) and self._snapshot is None and self._shared.tell_of_dead():
            txnid = self._txnid()
        return txnid

    def _txnid(self) -> int:
        return self._reading("looking for changes", id_of, database="log")

    def saw(self, mark: int) -> None:
        """Take note that the reader knows of all transactions up to a number."""
        self.seen_txnid = mark

    def in_snapshot(self, use: Callable[[], T]) -> T:
        """Call ``use``, whose reads on this thread see the log as it is now; other processes may write meanwhile."""
        self.mark()  # The last commit of a writer that died is part of it.
        with self._shared.writing:  # Whoever changes the map would end the transaction.
            txn = self._shared.begin_read()
            try:
                self._snapshot = threading.get_ident(), txn
                return use()
            finally:
                self._snapshot = None
                txn.abort()

    # Writing.

    def in_turn(self, use: Callable[[LmdbTurn], T]) -> T:
        """Call ``use`` with a turn at writing and return its result."""
        if self._is_closed:
            self._check_open()
        if self.readonly:
            raise ReadOnly(f"the store in {self._path} is open read-only; open it without readonly=True to write")
        if self._shared.stopped:
            self._shared.check_writing()
        return self._in_turn(use)

    def _in_turn(self, use: Callable[[LmdbTurn], T]) -> T:
        # `with` of a lock that is written in C is one step for signals, on its way in and out, and so is any call of
        # C. A Python function is not: a signal may end it before its first line. So what ends the turn is written here.
        shared = self._shared
        turn = LmdbTurn(self, shared)
        with shared.writing:
            try:
                turn.is_open = True
                turn.txn = shared.begin_write()
                turn.txnid = self.turn_txnid = turn.txn.id()
                turn.moved = turn.txnid != self.seen_txnid + 1
                return use(turn)
            finally:
                turn.txn, turn.is_open = None, False
                if shared.turnstile.is_held:
                    shared.turnstile.unlock()
                    shared.turnstile.is_held = False

    def write(self, records: Sequence[Sealed], rows: Sequence[Row] = ()) -> None:
        """Append records and put the rows: one durable transaction."""

        def use(turn: LmdbTurn) -> None:
            turn.is_blind = turn.moved
            turn.write(records, rows)

        self.in_turn(use)

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Put rows of tables in one durable transaction."""
        self.write((), rows)

    def alone(self, use: Callable[[], T]) -> T:
        """Call ``use`` while no other handle has the store open, and a full disk has the ballast's room."""
        self._check_open()
        return self._directory.alone(use)

    def sweep(self) -> None:
        """Put a clean copy of the data file in its place."""
        from refold.log.clean_copy import sweep  # noqa: PLC0415 - loaded only by those who erase

        with self._shared.writing:
            try:
                sweep(self._shared, self.ballast)
            finally:
                self._attach()
                self.seen_txnid = self.turn_txnid = self._txnid()

    def search(self, markers: Collection[bytes]) -> Found:
        """Return how often the markers stand in the files of the store."""
        from refold.log.search import search  # noqa: PLC0415 - as above

        return search(self._path, markers)

    @property
    def is_stopped(self) -> bool:
        """Whether an I/O error has stopped writing until the store is opened again."""
        return bool(self._shared.stopped)

    @property
    def is_suspect(self) -> bool:
        """Whether an I/O error, of this process or of another, has left the end of the log in doubt."""
        return self._shared.turnstile.is_suspect

    def check_writing(self) -> None:
        """Raise after an I/O error, which stops writing until the store is opened again."""
        self._shared.check_writing()

    def resume(self) -> None:
        """Check the end of the log as the disk holds it, and let writing go on; raises ``StoreError`` if it may not."""
        shared = self._shared
        with shared.writing:
            try:
                shared.turnstile.enter()
                shared.renew(lambda: settle(self._path))
                check_end(self, self._path)
                shared.stopped = ""
                shared.turnstile.trust()
            finally:
                if shared.turnstile.is_held:
                    shared.turnstile.unlock()
                    shared.turnstile.is_held = False

    def passed(self) -> bool:
        """Return whether another process has committed since this one's last turn at writing began and committed."""
        return self._txnid() > self.turn_txnid

    def relieve(self) -> None:
        """Let go of the pages that were read through the memory map."""
        release(os.path.join(self._path, DATA_FILE))

    def size_bytes(self) -> int:
        """Return the size of the data file."""
        return self._directory.size_bytes()

    def copy(self, into: str) -> None:
        """Write everything that is committed to a new data file in a directory."""
        self._check_open()
        from refold.log.clean_copy import copy  # noqa: PLC0415 - loaded only by those who ask, as below

        try:
            copy(self._shared, into)
        except StoreError:
            self._check_open()  # Closed meanwhile, it is no fault of the disk.
            raise

    def verify(self) -> list[str]:
        """Return the findings of LMDB's offline verifier, which reads the file as it is on the disk."""
        return problems(self._path)

    def close(self) -> None:
        """Release the environment and the locks."""
        self._is_closed = True
        self._directory.release()


assert SEQ.size == SEQ_BYTES
