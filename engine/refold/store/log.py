"""The log on LMDB: one directory with ``data.mdb``, ``lock.mdb``, ``owner.lock`` and ``writer.lock``.

It promises that what ``write`` returned from survives a power cut (two flushes per commit, never ``sync=False``, never
``writemap``) and that no transaction outlives a call. Of a record it reads the header at most, never the array.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, Self, TypeAlias, TypeVar

import lmdb

from refold.errors import Closed, ReadOnly, StoreCorrupt
from refold.limits import HASH_BYTES, RETRIES_COUNT_MAX, SEQ_BYTES
from refold.store.directory import Directory
from refold.store.ending import check_end
from refold.store.environment import DATA_FILE, Environment
from refold.store.failures import translated
from refold.store.lookups import (
    id_of,
    item_before,
    items_from,
    last_item,
    looked_up,
    scanned,
    value_of,
    values_from,
)
from refold.store.pages import release
from refold.store.protocol import Overtaken, Row, Table
from refold.store.record import COMMIT, SEQ, last_seq_of
from refold.store.stopping import failed, settle

_Found = TypeVar("_Found")
_AnyRow: TypeAlias = tuple[str, bytes, bytes | None]
"""A row of any database, the log included."""


class LmdbTurn:
    """A write transaction; see ``protocol.Turn`` for what it promises.

    The transaction is aborted by dropping the only reference to it, so it may stand in no variable, which a traceback
    would keep. The ``abort`` of LMDB's binding waits until no other thread is inside a read, and two threads that read
    all the time let it wait for ever.
    """

    __slots__ = ("_is_open", "_log", "_shared", "_txn", "moved", "txnid")

    def __init__(self, log: "LmdbLog", shared: Environment) -> None:
        self._log = log
        self._shared = shared
        self._txn: lmdb.Transaction[bytes] | None = None
        self._is_open = False
        self.txnid = 0
        self.moved = False

    def __enter__(self) -> Self:
        try:
            self._is_open = self._shared.writing.acquire()
            self._txn = self._shared.begin_write(always=self._log.readonly)
        except BaseException:
            self._end()
            raise
        self.txnid = self._txn.id()
        self._log.turn_txnid = self.txnid
        self.moved = self.txnid != self._log.seen_txnid + 1
        return self

    def _end(self) -> None:
        self._txn = None
        if self._is_open:
            self._is_open = False
            self._shared.turnstile.leave()
            self._shared.writing.release()

    def write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[Row] = ()
    ) -> None:
        """Put everything and commit: durable on return."""
        if self.commit(first_seq, records, commits, rows):
            self._log.seen_txnid = self.txnid

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_open:
            if kind is None and self.moved:
                self._log.seen_txnid = self.txnid - 1
            self._end()

    def commit(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[_AnyRow]
    ) -> bool:
        """Put everything and end the transaction, in any case; return whether there was something to commit.

        A transaction that finds the map full is begun again in a larger one, unless others came between.
        """
        if not self._is_open:
            message = "a turn is open once and writes once; take another turn"
            raise AssertionError(message)
        try:
            self._shared.check_writing()
            while True:
                try:
                    return self._put_and_commit(first_seq, records, commits, rows)
                except lmdb.MapFullError as error:
                    if not self._shared.grow():
                        raise translated(error, _doing(first_seq, records, rows), self._shared.path) from error
                self._begin_again()
        except lmdb.Error as error:
            raise failed(self._shared, error, _doing(first_seq, records, rows), self.txnid) from error
        finally:
            self._end()

    def _begin_again(self) -> None:
        self._txn = self._shared.begin_write()
        if self._txn.id() != self.txnid:
            path = self._shared.path
            message = f"another process wrote to {path} while the map grew; nothing was written, call again"
            raise Overtaken(message)

    def _put_and_commit(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[_AnyRow]
    ) -> bool:
        assert self._txn is not None
        databases = self._shared.databases
        try:
            if records:
                self._append(first_seq, records)
            for commit in commits:
                last_key = SEQ.pack(last_seq_of(commit))
                if not self._txn.put(last_key, commit, db=databases["commits"], append=True):
                    _refuse(f"commit row {last_key.hex()}")
            # LMDB gives the number of a transaction that changed nothing to the next one, whoever that belongs to.
            is_changed = self._put(rows) or bool(records) or bool(commits)
            if is_changed:
                self._txn.commit()
            return is_changed
        finally:
            self._txn = None

    def _append(self, first_seq: int, records: Sequence[bytes]) -> None:
        assert self._txn is not None
        database = self._shared.databases["log"]
        if len(records) == 1:
            if not self._txn.put(SEQ.pack(first_seq), records[0], db=database, append=True):
                _refuse(f"record {first_seq}")
            return
        keys = map(SEQ.pack, range(first_seq, first_seq + len(records)))
        items = zip(keys, records, strict=True)
        if self._txn.cursor(db=database).putmulti(items, append=True) != (len(records), len(records)):
            _refuse(f"one of {len(records)} records from {first_seq} on")

    def _put(self, rows: Sequence[_AnyRow]) -> bool:
        """Put or delete the rows, and return whether that changed anything."""
        assert self._txn is not None
        databases = self._shared.databases
        is_changed = False
        for table, key, value in rows:
            if value is None:
                is_changed |= self._txn.delete(key, db=databases[table])
            else:
                is_changed |= self._txn.put(key, value, db=databases[table])
        return is_changed


class LmdbLog:
    """A log in a directory; see ``protocol.Log`` for what each method promises."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._path = directory.path
        self._shared = directory.environment
        self.ballast = directory.ballast
        """For what makes room: ``ballast.retried(write)``, and ``ballast.relieved(bytes)`` around a compact copy."""
        self._begin = self._shared.env.begin
        self._is_closed = False
        self.readonly = directory.readonly
        self.exclusive = directory.exclusive
        self._tables = self._shared.databases
        self.seen_txnid = self.turn_txnid = self._reading("opening", id_of)
        """The last transaction that is no news: this log wrote it, or said that there was one."""
        if not self.readonly and (self._shared.stopped or self._shared.turnstile.is_suspect):
            self.resume()

    def _check_open(self) -> None:
        if self._is_closed:
            message = f"the store in {self._path} is closed; open it again with Memory({self._path!r})"
            raise Closed(message)

    # Reading.

    def _reading(self, doing: str, read: Callable[..., _Found], *arguments: Any, database: str | None = None) -> _Found:
        """Return what ``read`` finds in a transaction of its own, which ends with the call."""
        if self._is_closed:
            self._check_open()
        attempts = RETRIES_COUNT_MAX
        while True:
            try:
                txn = self._begin() if database is None else self._begin(db=self._tables[database])
                try:
                    return read(txn, *arguments)
                finally:
                    txn.abort()
            except lmdb.Error as error:
                attempts -= 1
                if not attempts or not self._shared.recover(error):
                    raise translated(error, doing, self._path) from error
                self._begin, self._tables = self._shared.env.begin, self._shared.databases

    def head(self) -> int:
        """Return the seq of the last record, from the last commit row."""
        found = self._reading("reading the head", last_item, database="commits")
        if found is None:
            return 0
        key, commit = found
        if len(commit) != COMMIT.size or SEQ.pack(last_seq_of(commit)) != key:
            message = f"the last commit row of {self._path} is damaged; restore a backup"
            raise StoreCorrupt(message)
        return last_seq_of(commit)

    def durable_head(self) -> int:
        """Return the seq of the last record: what was written is durable."""
        return self.head()

    def flush(self) -> None:
        """Fill the ballast if the disk has room again; what was written is durable."""
        if not self.readonly:
            self.ballast.fill()

    def read(self, first_seq: int, limit: int) -> list[bytes]:
        """Return up to ``limit`` records from ``first_seq`` on."""
        return self._reading("reading records", values_from, SEQ.pack(first_seq), limit, database="log")

    def read_at(self, seqs: Sequence[int]) -> list[bytes]:
        """Return the records at the given seqs; neighbours are scanned, which costs a third of a look-up."""
        if not seqs:
            return []
        is_run = list(seqs) == list(range(seqs[0], seqs[0] + len(seqs)))
        records = self._reading("reading records", scanned if is_run else looked_up, seqs, database="log")
        if not records:
            message = f"a record among seqs {seqs[0]} to {seqs[-1]} is missing in {self._path}; run `refold verify`"
            raise StoreCorrupt(message)
        return records

    def commit_at(self, seq: int) -> bytes | None:
        """Return the commit row of the commit that wrote ``seq``."""
        found = self._reading("reading a commit row", values_from, SEQ.pack(seq), 1, database="commits")
        return found[0] if found else None

    def commits(self, after: int, limit: int) -> list[bytes]:
        """Return up to ``limit`` commit rows whose last seq is greater than ``after``."""
        return self._reading("reading commit rows", values_from, SEQ.pack(after + 1), limit, database="commits")

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
        """Return whether others may have written since the last call or turn (about a tenth of a microsecond)."""
        txnid = self._reading("looking for changes", id_of)
        if txnid == self.seen_txnid:
            return False
        self.seen_txnid = txnid
        return True

    # Writing.

    def still(self) -> LmdbTurn:
        """Return a turn in which nobody writes, its holder included; of a read-only log, too."""
        self._check_open()
        return LmdbTurn(self, self._shared)

    def turn(self) -> LmdbTurn:
        """Return a turn at writing, which begins when it is entered."""
        self._check_open()
        if self.readonly:
            message = f"the store in {self._path} is open read-only; open it without readonly=True to write"
            raise ReadOnly(message)
        self._shared.check_writing()
        return LmdbTurn(self, self._shared)

    def write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[Row] = ()
    ) -> None:
        """Append records with their commit rows, and put the rows: one durable transaction."""
        self._write(first_seq, records, commits, rows)

    def _write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[_AnyRow]
    ) -> None:
        with self.turn() as turn:
            # Where others came between, the number stays, so that the next look tells of them.
            if turn.commit(first_seq, records, commits, rows) and not turn.moved:
                self.seen_txnid = turn.txnid

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Put rows beside the log in one durable transaction."""
        self._write(0, (), (), rows)

    def erase(self, records: Sequence[tuple[int, bytes]], rows: Sequence[Row]) -> None:
        """Replace records by their erased forms, and put the rows; on a full disk with the room of the ballast."""
        replaced: list[_AnyRow] = [("log", SEQ.pack(seq), record) for seq, record in records]
        self.ballast.retried(partial(self._write, 0, (), (), [*replaced, *rows]))

    @property
    def is_stopped(self) -> bool:
        """Whether an I/O error has stopped writing until the store is opened again."""
        return bool(self._shared.stopped)

    def check_writing(self) -> None:
        """Raise after an I/O error, which stops writing until the store is opened again."""
        self._shared.check_writing()

    def resume(self) -> None:
        """Check the end of the log as the disk holds it, and let writing go on; raises ``StoreError`` if it may not."""
        shared = self._shared
        with shared.writing:
            shared.turnstile.enter(always=True)
            try:
                shared.renew(lambda: settle(self._path))
                check_end(self, self._path)
                shared.stopped = ""
                shared.turnstile.trust()
            finally:
                shared.turnstile.leave()

    def passed(self) -> bool:
        """Return whether another process has committed since this one's last turn at writing began and committed."""
        return self._reading("looking for changes", id_of) > self.turn_txnid

    def relieve(self) -> None:
        """Let go of the pages that were read through the memory map."""
        release(os.path.join(self._path, DATA_FILE))

    def size_bytes(self) -> int:
        """Return the size of the data file."""
        return self._directory.size_bytes()

    def verify(self) -> list[str]:
        """Return what LMDB's offline verifier finds; it reads the file as it lies on disk."""
        import lmdb.verify as offline  # noqa: PLC0415 - loaded only by those who ask

        problems: list[str] = offline.verify(self._path)  # type: ignore[no-untyped-call]
        return problems

    def close(self) -> None:
        """Release the environment and the locks."""
        if not self._is_closed:
            self._is_closed = True
            self._directory.release()


def _doing(first_seq: int, records: Sequence[bytes], rows: Sequence[_AnyRow]) -> str:
    return f"writing seqs {first_seq} to {first_seq + len(records) - 1} and {len(rows)} rows"


def _refuse(what: str) -> NoReturn:
    """Raise, because LMDB did not append; no ``assert``: a check of a write must not go away with ``python -O``."""
    message = f"{what} is not behind the last key"
    raise AssertionError(message)


assert SEQ.size == SEQ_BYTES
assert COMMIT.size == SEQ_BYTES * 3 + HASH_BYTES
