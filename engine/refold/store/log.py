"""The log on LMDB: one directory with ``data.mdb``, ``lock.mdb``, ``owner.lock`` and ``writer.lock``.

It promises that what ``write`` returned from survives a power cut (two flushes per commit, never ``sync=False``, never
``writemap``) and that no transaction outlives a call. Of a record it reads the header at most, never the array.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NoReturn, Self, TypeAlias, TypeVar

import lmdb

from refold.errors import Closed, ReadOnly, StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreVersion
from refold.limits import HASH_BYTES, SEQ_BYTES
from refold.store.directory import Directory
from refold.store.protocol import Row, Table
from refold.store.record import COMMIT, SEQ, last_seq_of

_Found = TypeVar("_Found")
_AnyRow: TypeAlias = tuple[str, bytes, bytes | None]
"""A row of any database, the log included."""

_FULL_ERRNOS = frozenset((28, 122))
"""ENOSPC and EDQUOT; LMDB 0.9 reports a short write as EIO, which is told apart by asking the disk."""


def translated(error: lmdb.Error, doing: str, path: str) -> StoreError:
    """Return refold's error for one of LMDB's, with what failed and the next step."""
    if isinstance(error, lmdb.MapFullError) or (error.args and getattr(error, "code", None) in _FULL_ERRNOS):
        return StoreFull(f"{doing} in {path}: no space left ({error}); free disk space and call again, reads go on")
    if isinstance(error, (lmdb.ReadersFullError, lmdb.LockError)):
        return StoreBusy(f"{doing} in {path}: {error}; close other processes that hold the store open and call again")
    if isinstance(error, (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError)):
        return StoreCorrupt(f"{doing} in {path}: {error}; run `refold verify --db {path}` and restore a backup")
    if isinstance(error, lmdb.VersionMismatchError):
        return StoreVersion(f"{doing} in {path}: {error}; open it with the refold version that wrote it")
    return StoreError(f"{doing} in {path}: {error}; check the disk, then open the store again")


class LmdbTurn:
    """A write transaction; see ``protocol.Turn`` for what it promises."""

    __slots__ = ("_log", "_txn", "moved")

    def __init__(self, log: "LmdbLog") -> None:
        self._log = log
        self._txn: lmdb.Transaction[bytes] | None = None
        self.moved = False

    def __enter__(self) -> Self:
        log = self._log
        txn = self._txn = log.begin_write()
        self.moved = txn.id() != log.seen_txnid + 1
        return self

    def write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[Row] = ()
    ) -> None:
        """Put everything and commit: durable on return."""
        txn, self._txn = self._txn, None
        if txn is None:
            message = "a turn is open once and writes once; take another turn"
            raise AssertionError(message)
        txnid = txn.id()
        if self._log.put_and_commit(txn, first_seq, records, commits, rows):
            self._log.seen_txnid = txnid

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        txn, self._txn = self._txn, None
        if txn is not None:
            if kind is None and self.moved:
                self._log.seen_txnid = txn.id() - 1
            txn.abort()


class LmdbLog:
    """A log in a directory; see ``protocol.Log`` for what each method promises."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._path = directory.path
        self._env: lmdb.Environment | None = directory.environment.env
        self.readonly = directory.readonly
        self._tables = directory.environment.databases
        self._records = self._tables["log"]
        self._commits = self._tables["commits"]
        self.seen_txnid = self._reading("opening", _id_of)
        """The last transaction that is no news: this log wrote it, or said that there was one."""

    @property
    def _environment(self) -> lmdb.Environment:
        if self._env is None:
            message = f"the store in {self._path} is closed; open it again with Memory({self._path!r})"
            raise Closed(message)
        return self._env

    # Reading.

    def _reading(self, doing: str, read: Callable[..., _Found], *arguments: Any, database: Any = None) -> _Found:
        """Return what ``read`` finds in a transaction of its own, which ends with the call."""
        try:
            txn = self._environment.begin(db=database)
            try:
                return read(txn, *arguments)
            finally:
                txn.abort()
        except lmdb.Error as error:
            raise translated(error, doing, self._path) from error

    def head(self) -> int:
        """Return the seq of the last record, from the last commit row."""
        found = self._reading("reading the head", _last_item, database=self._commits)
        if found is None:
            return 0
        key, commit = found
        if len(commit) != COMMIT.size or SEQ.pack(last_seq_of(commit)) != key:
            message = f"the last commit row of {self._path} is damaged; restore a backup"
            raise StoreCorrupt(message)
        return last_seq_of(commit)

    def read(self, first_seq: int, limit: int) -> list[bytes]:
        """Return up to ``limit`` records from ``first_seq`` on."""
        return self._reading("reading records", _values_from, SEQ.pack(first_seq), limit, database=self._records)

    def read_at(self, seqs: Sequence[int]) -> list[bytes]:
        """Return the records at the given seqs; neighbours are scanned, which costs a third of a look-up."""
        if not seqs:
            return []
        is_run = list(seqs) == list(range(seqs[0], seqs[0] + len(seqs)))
        records = self._reading("reading records", _scanned if is_run else _looked_up, seqs, database=self._records)
        if not records:
            message = f"a record among seqs {seqs[0]} to {seqs[-1]} is missing in {self._path}; run `refold verify`"
            raise StoreCorrupt(message)
        return records

    def commit_at(self, seq: int) -> bytes | None:
        """Return the commit row of the commit that wrote ``seq``."""
        found = self._reading("reading a commit row", _values_from, SEQ.pack(seq), 1, database=self._commits)
        return found[0] if found else None

    def commits(self, after: int, limit: int) -> list[bytes]:
        """Return up to ``limit`` commit rows whose last seq is greater than ``after``."""
        return self._reading("reading commit rows", _values_from, SEQ.pack(after + 1), limit, database=self._commits)

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._reading("reading a row", _value_of, key, database=self._tables[table])

    def rows(self, table: Table, first: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` on."""
        return self._reading("reading rows", _items_from, first, limit, database=self._tables[table])

    def row_before(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last row whose key is at most ``key``."""
        return self._reading("reading a row", _item_before, key, database=self._tables[table])

    def changed(self) -> bool:
        """Return whether others may have written since the last call or turn (about a tenth of a microsecond)."""
        txnid = self._reading("looking for changes", _id_of)
        if txnid == self.seen_txnid:
            return False
        self.seen_txnid = txnid
        return True

    # Writing.

    def turn(self) -> LmdbTurn:
        """Return a turn at writing, which begins when it is entered."""
        self._refuse_readonly()
        return LmdbTurn(self)

    def begin_write(self) -> "lmdb.Transaction[bytes]":
        """Return a write transaction, once no other writer has one; for this thread alone."""
        try:
            return self._environment.begin(write=True)
        except lmdb.Error as error:
            raise translated(error, "beginning to write", self._path) from error

    def put_and_commit(
        self,
        txn: "lmdb.Transaction[bytes]",
        first_seq: int,
        records: Sequence[bytes],
        commits: Sequence[bytes],
        rows: Sequence[_AnyRow],
    ) -> bool:
        """Put everything and end the transaction, in any case; return whether there was something to commit."""
        try:
            if records:
                self._append(txn, first_seq, records)
            for commit in commits:
                last_key = SEQ.pack(last_seq_of(commit))
                if not txn.put(last_key, commit, db=self._commits, append=True):
                    _refuse(f"commit row {last_key.hex()}")
            # LMDB gives the number of a transaction that changed nothing to the next one, whoever that belongs to.
            is_changed = self._put(txn, rows) or bool(records) or bool(commits)
            if is_changed:
                txn.commit()
        except lmdb.Error as error:
            doing = f"writing seqs {first_seq} to {first_seq + len(records) - 1} and {len(rows)} rows"
            raise translated(error, doing, self._path) from error
        else:
            return is_changed
        finally:
            txn.abort()

    def _append(self, txn: "lmdb.Transaction[bytes]", first_seq: int, records: Sequence[bytes]) -> None:
        if len(records) == 1:
            if not txn.put(SEQ.pack(first_seq), records[0], db=self._records, append=True):
                _refuse(f"record {first_seq}")
            return
        keys = map(SEQ.pack, range(first_seq, first_seq + len(records)))
        consumed, added = txn.cursor(db=self._records).putmulti(zip(keys, records, strict=True), append=True)
        if not consumed == added == len(records):
            _refuse(f"one of {len(records)} records from {first_seq} on")

    def _put(self, txn: "lmdb.Transaction[bytes]", rows: Sequence[_AnyRow]) -> bool:
        """Put or delete the rows, and return whether that changed anything."""
        is_changed = False
        for table, key, value in rows:
            if value is None:
                is_changed |= txn.delete(key, db=self._tables[table])
            else:
                is_changed |= txn.put(key, value, db=self._tables[table])
        return is_changed

    def _refuse_readonly(self) -> None:
        if self.readonly:
            message = f"the store in {self._path} is open read-only; open it without readonly=True to write"
            raise ReadOnly(message)

    def write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[Row] = ()
    ) -> None:
        """Append records with their commit rows, and put the rows: one durable transaction."""
        self._write(first_seq, records, commits, rows)

    def _write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[_AnyRow]
    ) -> None:
        self._refuse_readonly()
        txn = self.begin_write()
        txnid = txn.id()
        is_changed = self.put_and_commit(txn, first_seq, records, commits, rows)
        # Where others came between, the number stays, so that the next look tells of them.
        if is_changed and self.seen_txnid == txnid - 1:
            self.seen_txnid = txnid

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Put rows beside the log in one durable transaction."""
        self._write(0, (), (), rows)

    def erase(self, records: Sequence[tuple[int, bytes]], rows: Sequence[Row]) -> None:
        """Replace records by their erased forms, and put the rows."""
        replaced: list[_AnyRow] = [("log", SEQ.pack(seq), record) for seq, record in records]
        self._write(0, (), (), [*replaced, *rows])

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
        if self._env is not None:
            self._env = None
            self._directory.release()


def _refuse(what: str) -> NoReturn:
    """Raise, because LMDB did not append; no ``assert``: a check of a write must not go away with ``python -O``."""
    message = f"{what} is not behind the last key"
    raise AssertionError(message)


def _id_of(txn: "lmdb.Transaction[bytes]") -> int:
    """Return the number of a transaction: for one that reads, that of the last commit."""
    return txn.id()


def _last_item(txn: "lmdb.Transaction[bytes]") -> tuple[bytes, bytes] | None:
    cursor = txn.cursor()
    return cursor.item() if cursor.last() else None


def _value_of(txn: "lmdb.Transaction[bytes]", key: bytes) -> bytes | None:
    return txn.get(key)


def _items_from(txn: "lmdb.Transaction[bytes]", first: bytes, limit: int) -> list[tuple[bytes, bytes]]:
    cursor = txn.cursor()
    is_there = cursor.set_range(first) if first else cursor.first()
    return list(islice(cursor.iternext(), limit)) if is_there else []


def _values_from(txn: "lmdb.Transaction[bytes]", first: bytes, limit: int) -> list[bytes]:
    cursor = txn.cursor()
    return list(islice(cursor.iternext(keys=False), limit)) if cursor.set_range(first) else []


def _item_before(txn: "lmdb.Transaction[bytes]", key: bytes) -> tuple[bytes, bytes] | None:
    cursor = txn.cursor()
    if cursor.set_range(key):
        if cursor.key() == key:
            return key, cursor.value()
        is_there = cursor.prev()
    else:
        is_there = cursor.last()
    return cursor.item() if is_there else None


def _looked_up(txn: "lmdb.Transaction[bytes]", seqs: Sequence[int]) -> list[bytes]:
    """Return the records of the seqs, none if one of them is missing."""
    records: list[Any] = list(map(txn.get, map(SEQ.pack, seqs)))
    return [] if None in records else records


def _scanned(txn: "lmdb.Transaction[bytes]", seqs: Sequence[int]) -> list[bytes]:
    """Return the records of consecutive seqs, none if one of them is missing."""
    cursor = txn.cursor()
    if not cursor.set_key(SEQ.pack(seqs[0])):
        return []
    records = list(islice(cursor.iternext(keys=False), len(seqs)))
    is_gapless = len(records) == len(seqs) and cursor.key() == SEQ.pack(seqs[-1])
    return records if is_gapless else []


assert SEQ.size == SEQ_BYTES
assert COMMIT.size == SEQ_BYTES * 3 + HASH_BYTES
