"""The log on LMDB: one directory with ``data.mdb``, ``lock.mdb``, ``turn.lock`` and ``writer.lock``.

Once a turn's ``write`` has returned, its data survives a power cut (two flushes per commit, never ``sync=False``, never
``writemap``). No transaction outlives a call. The log reads at most the head and the columns of a record, never an
event.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NoReturn, TypeAlias, TypeVar

import lmdb

from refold.errors import ReadOnly, StoreCorrupt, StoreError, StoreFull
from refold.limits import BALLAST_BYTES_MIN, RETRIES_COUNT_MAX, SEQ_BYTES
from refold.log.directory import Directory
from refold.log.environment import REPLACED, Environment
from refold.log.lmdb_file import lmdb_error
from refold.log.protocol import Row, Table, TurnLost
from refold.log.record import FIRST_SEQ, FIRST_SEQ_BEGIN, SEQ, EventBytes, Record, Sealed, find_events

# Reads of the log inside a transaction that the caller provides, and that ends with the call.


_Database: TypeAlias = Any
"""An LMDB database handle, which has no type."""

T = TypeVar("T")


def id_of(txn: "lmdb.Transaction[bytes]", _: _Database) -> int:
    """Return the number of the last visible transaction."""
    return txn.id()


def last_key(txn: "lmdb.Transaction[bytes]", database: _Database) -> bytes | None:
    """Return the last key of the database, ``None`` in an empty one."""
    cursor = txn.cursor(database)
    return cursor.key() if cursor.last() else None


def value_of(txn: "lmdb.Transaction[bytes]", database: _Database, key: bytes) -> bytes | None:
    """Return the value of a row."""
    return txn.get(key, db=database)


def read_value(txn: "lmdb.Transaction[bytes]", database: _Database, key: bytes, read: Callable[[Any], T]) -> T | None:
    """Call ``read`` with the value of a row and return its result, or ``None`` if there is no such row."""
    value = txn.get(key, db=database)
    return None if value is None else read(value)


def items_from(
    txn: "lmdb.Transaction[bytes]", database: _Database, first: bytes, limit: int
) -> list[tuple[bytes, bytes]]:
    """Return up to ``limit`` rows with keys from ``first`` up."""
    cursor = txn.cursor(database)
    return list(islice(cursor.iternext(), limit)) if cursor.set_range(first) else []


def items_down(
    txn: "lmdb.Transaction[bytes]", database: _Database, first: bytes, limit: int
) -> list[tuple[bytes, bytes]]:
    """Return up to ``limit`` rows with keys from ``first`` down."""
    cursor = txn.cursor(database)
    is_there = (cursor.key() == first or cursor.prev()) if cursor.set_range(first) else cursor.last()
    return list(islice(cursor.iterprev(), limit)) if is_there else []


def records_between(txn: "lmdb.Transaction[bytes]", database: _Database, after: int, until: int) -> list[Sealed]:
    """Return the records that hold the events after ``after`` up to ``until``."""
    cursor, found = txn.cursor(database), list[Sealed]()
    if after < until and cursor.set_range(SEQ.pack(after + 1)):
        for key, record in cursor.iternext():
            found.append((SEQ.unpack(key)[0], record))
            if found[-1][0] >= until:
                break
    return found


def read_events(txn: "lmdb.Transaction[Any]", database: _Database, seqs: Sequence[int]) -> list[EventBytes]:
    """Return the events at the given seqs."""
    cursor = txn.cursor(database)
    return find_events(lambda seq: cursor.value() if cursor.set_range(SEQ.pack(seq)) else None, seqs)


# Turns.

_AnyRow: TypeAlias = tuple[str, bytes, bytes | None]
"""A row of any database, the log included."""


class LmdbTurn:
    """A write transaction; see ``protocol.LogTurn`` for its contract, and ``LmdbLog.in_turn`` for how it ends.

    The transaction is aborted by dropping the only reference to it, so it must never be in a local variable, which a
    traceback would keep alive. The ``abort`` of LMDB's binding waits until no other thread is inside a read, and would
    wait forever beside two threads that read all the time.
    """

    __slots__ = ("_environment", "is_open", "last_commit", "txn", "txnid")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.txn: lmdb.Transaction[bytes] | None = None
        self.is_open = False
        self.txnid = 0
        """The number of the turn's transaction; if it changes nothing, LMDB gives the number to the next one."""
        self.last_commit = 0

    def is_current(self) -> bool:
        """Return ``True``: an open turn keeps all other writers out."""
        return True

    def write(
        self,
        records: Sequence[Sealed],
        rows: Sequence[Row] = (),
        erased: Sequence[Sealed] = (),
        *,
        is_clean: bool = False,
    ) -> int:
        """Put everything and commit, durable on return; the transaction ends in any case.

        With ``is_clean``, everything goes into a clean copy of the file, and takes effect once the copy is in place.

        If the map is full, the transaction starts again in a larger map; if the disk is full, it starts again with the
        ballast's space, provided that is lent. Raises ``TurnLost`` if another writer committed in between.
        """
        if not self.is_open:
            raise AssertionError("a turn is open once and writes once; take another turn")
        environment = self._environment
        puts: Sequence[_AnyRow] = rows
        if erased:
            puts = [*(("log", SEQ.pack(last), record) for last, record in erased), *rows]
        try:
            if environment.stopped:
                environment.check_writing()
            while True:
                try:
                    return self._put(records, puts, is_clean=is_clean)
                except lmdb.MapFullError as error:
                    if not environment.grow():
                        raise lmdb_error(error, _describe_write(records, puts), environment.path) from error
                except lmdb.Error as error:
                    failure = environment.failure(error, _describe_write(records, puts), self.txnid)
                    if not (isinstance(failure, StoreFull) and environment.ballast.give()):
                        raise failure from error
                self._begin_again()
        finally:
            self.txn, self.is_open = None, False
            # Other processes need not wait until the written events are folded.
            turnstile = environment.turnstile
            if turnstile.is_held:
                turnstile.unlock()
                turnstile.is_held = False

    def _begin_again(self) -> None:
        self.txn = self._environment.begin(write=True)
        if self.txn.id() != self.txnid:
            path = self._environment.path
            raise TurnLost(f"another process wrote to {path} while this one made room; nothing was written, call again")

    def _put(self, records: Sequence[Sealed], rows: Sequence[_AnyRow], *, is_clean: bool) -> int:
        """Put everything and commit the transaction; return the number of the last commit after it."""
        assert self.txn is not None
        databases = self._environment.databases
        try:
            if records:
                # No cursor in a variable: a traceback would keep it alive, as it would the transaction.
                key = next(self.txn.cursor(db=databases["log"]).iterprev(values=False), bytes(SEQ_BYTES))
                # LMDB compares keys only: a record after the last key could still begin with existing events.
                if FIRST_SEQ.unpack_from(records[0][1], FIRST_SEQ_BEGIN)[0] != SEQ.unpack(key)[0] + 1:
                    self._refuse(f"the record that ends at seq {records[0][0]}")
            if is_clean:
                return self._put_clean(records, rows)
            if records:
                items = [(SEQ.pack(last), record) for last, record in records]
                if self.txn.cursor(db=databases["log"]).putmulti(items, append=True) != (len(items), len(items)):
                    self._refuse(f"one of {len(items)} records, the first of which ends at seq {records[0][0]},")
            # LMDB gives the number of a transaction that changed nothing to the next one, of any writer.
            is_changed = bool(records)
            for table, key, value in rows:
                if value is None:
                    is_changed |= self.txn.delete(key, db=databases[table])
                else:
                    is_changed |= self.txn.put(key, value, db=databases[table])
            if is_changed:
                self.txn.commit()
                self._environment.was_full = False
                ballast = self._environment.ballast
                ballast.written_bytes += sum(len(record) for _, record in records)
                if ballast.written_bytes >= BALLAST_BYTES_MIN:
                    ballast.fill()
            return self.last_commit + is_changed
        finally:
            self.txn = None

    def _put_clean(self, records: Sequence[Sealed], rows: Sequence[_AnyRow]) -> int:
        """Put everything into a clean copy, which replaces the file; return the number of the last commit."""
        from refold.log.clean_copy import rewrite  # noqa: PLC0415 - needed only to erase

        self.txn = None
        environment, before = self._environment, self._environment.commits_before
        changes: dict[str, dict[bytes, bytes | None]] = {}
        for table, key, value in (*(("log", SEQ.pack(last), record) for last, record in records), *rows):
            changes.setdefault(table, {})[key] = value
        try:
            rewrite(environment, changes)
        except StoreError as error:
            if environment.stopped:
                raise  # Whether the copy is durably in place is unknown.
            if environment.commits_before != before:
                raise type(error)(f"the events are erased, and the file is not open any more: {error}") from error
            raise type(error)(f"nothing was erased: {error}") from error
        return environment.commits_before + environment.env.info()["last_txnid"]

    def _refuse(self, what: str) -> NoReturn:
        """Raise because LMDB did not append; no ``assert``: a check of a write must not vanish with ``python -O``."""
        raise StoreCorrupt(
            f"{what} is not behind the last one of {self._environment.path}; run `refold verify` and restore a backup"
        )


def _describe_write(records: Sequence[Sealed], rows: Sequence[_AnyRow]) -> str:
    seqs = f"seqs {Record(records[0][1]).first_seq} to {records[-1][0]} and " if records else ""
    return f"writing {seqs}{len(rows)} rows"


class LmdbLog:
    """A log in a directory; ``protocol.Log`` documents each method."""

    def __init__(self, directory: Directory) -> None:
        self.readonly = directory.readonly
        self.files = directory
        self._snapshot: tuple[int, lmdb.Transaction[bytes]] | None = None
        """The thread that reads in a snapshot, and its transaction."""
        try:
            directory.open()  # Opened here, because a traceback could hold one that was open before.
            self.durability = directory.environment
            self._attach()
        except BaseException:
            directory.release()  # A traceback may hold it, or the thread that renews.
            raise

    def _attach(self) -> None:
        """Cache the attributes of the environment that every read needs; they change when it is renewed."""
        self._begin: Callable[..., Any] = self.durability.env.begin
        self._tables = self.durability.databases
        self.file = self.durability.commits_before

    # Reading.

    def _run_read(self, doing: str, read: Callable[..., T], *arguments: Any, database: str, buffers: bool = False) -> T:
        """Call ``read`` with a transaction of its own, which ends with the call, and return its result.

        The thread that reads in a snapshot uses the snapshot's transaction for all of its calls.
        """
        if self.files.is_closed:
            self.files.check_open()
        attempts = RETRIES_COUNT_MAX
        while True:
            try:
                if self._snapshot is not None and self._snapshot[0] == threading.get_ident():
                    return read(self._snapshot[1], self._tables[database], *arguments)
                # The buffers belong to the transaction, so the result must not refer to them.
                txn: Any = self._begin(buffers=buffers)
                try:
                    if not buffers:
                        return read(txn, self._tables[database], *arguments)
                    with self.durability.copying:
                        return read(txn, self._tables[database], *arguments)
                finally:
                    txn.abort()
            except lmdb.Error as error:
                attempts -= 1
                if not attempts or not self.durability.recover(error):
                    raise lmdb_error(error, doing, self.files.path) from error
                self._attach()

    def head(self) -> int:
        """Return the seq of the last event."""
        key = self._run_read("reading the head", last_key, database="log")
        if key is not None and len(key) != SEQ_BYTES:
            raise StoreCorrupt(f"the key of the last record of {self.files.path} is damaged; restore a backup")
        return 0 if key is None else int(SEQ.unpack(key)[0])

    def last_commit(self) -> int:
        """Return the number of the last transaction (in about a tenth of a microsecond)."""
        environment = self.durability
        if (
            environment.turnstile.words[REPLACED] != environment.replaced
            and self._snapshot is None
            and environment.follow()
        ):
            self._attach()
        before = environment.commits_before
        txnid = self._run_read("looking for changes", id_of, database="log")
        if environment.is_behind(txnid) and self._snapshot is None and environment.reveal_dead_commit():
            txnid = self._run_read("looking for changes", id_of, database="log")
        return before + txnid

    def read(self, after: int, until: int) -> list[Sealed]:
        """Return the records that hold the events after ``after`` up to ``until``."""
        return self._run_read("reading records", records_between, after, until, database="log")

    def events_at(self, seqs: Sequence[int]) -> list[EventBytes]:
        """Return the events at the given seqs, copying only the needed parts of their records."""
        return self._run_read("reading events", read_events, seqs, database="log", buffers=True)

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._run_read("reading a row", value_of, key, database=table)

    def read_row(self, table: Table, key: bytes, read: Callable[[Any], T]) -> T | None:
        """Call ``read`` with a buffer of the value of a row, and return its result."""
        return self._run_read("reading a row", read_value, key, read, database=table, buffers=True)

    def rows(self, table: Table, first: bytes, limit: int, *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` up, or down."""
        return self._run_read("reading rows", items_down if backwards else items_from, first, limit, database=table)

    def in_snapshot(self, use: Callable[[], T]) -> T:
        """Call ``use``, whose reads on this thread see the log as it is now; other processes can write meanwhile."""
        self.last_commit()  # The snapshot includes the last commit of a dead writer.
        with self.durability.writing:  # A change of the map would end the transaction.
            txn = self.durability.begin(write=False)
            try:
                self._snapshot = threading.get_ident(), txn
                return use()
            finally:
                self._snapshot = None
                txn.abort()

    # Writing.

    def in_turn(self, use: Callable[[LmdbTurn], T]) -> T:
        """Call ``use`` with a turn and return its result."""
        if self.files.is_closed:
            self.files.check_open()
        if self.readonly:
            raise ReadOnly(f"the store in {self.files.path} is open read-only; open it without readonly=True to write")
        environment = self.durability
        if environment.stopped:
            environment.check_writing()
        # A signal cannot split the entry or the exit of `with` on a lock written in C, or any other C call. But it can
        # end a Python function before its first line. So the code that ends the turn is inlined here.
        turn = LmdbTurn(environment)
        with environment.writing:
            try:
                turn.is_open = True
                turn.txn = environment.begin(write=True)
                turn.txnid = turn.txn.id()
                turn.last_commit = environment.commits_before + turn.txnid - 1
                return use(turn)
            finally:
                turn.txn, turn.is_open = None, False
                if environment.turnstile.is_held:
                    environment.turnstile.unlock()
                    environment.turnstile.is_held = False

    def close(self) -> None:
        """Release the environment and the locks."""
        self.files.release()


assert SEQ.size == SEQ_BYTES
