"""The log on LMDB: one directory with ``data.mdb``, ``lock.mdb``, ``owner.lock`` and ``writer.lock``.

It promises that what ``write`` returned from survives a power cut (two flushes per commit, never ``sync=False``, never
``writemap``) and that no transaction outlives a call. Of a record it reads the header at most, never the array.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

import lmdb

from refold.errors import Closed, ReadOnly, StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreVersion
from refold.limits import HASH_BYTES, SEQ_BYTES
from refold.store.directory import Directory
from refold.store.protocol import TABLES, Row, Table
from refold.store.record import COMMIT, SEQ, last_seq_of

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


class LmdbLog:
    """A log in a directory; see ``protocol.Log`` for what each method promises."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._path = directory.path
        self._env: lmdb.Environment | None = directory.env
        self.readonly = directory.readonly
        with self._guard("opening tables"):
            self._records = self._environment.open_db(b"log", create=False)
            self._commits = self._environment.open_db(b"commits", create=False)
            self._tables = {name: self._environment.open_db(name.encode(), create=False) for name in TABLES}
        self._seen_txnid = self._txnid()

    @property
    def _environment(self) -> lmdb.Environment:
        if self._env is None:
            message = f"the store in {self._path} is closed; open it again with Memory({self._path!r})"
            raise Closed(message)
        return self._env

    @contextmanager
    def _guard(self, doing: str) -> Generator[None, None, None]:
        try:
            yield
        except lmdb.Error as error:
            raise translated(error, doing, self._path) from error

    def _txnid(self) -> int:
        return int(self._environment.info()["last_txnid"])

    def head(self) -> int:
        """Return the seq of the last record, from the last commit row."""
        with self._guard("reading the head"), self._environment.begin(db=self._commits) as txn:
            cursor = txn.cursor()
            if not cursor.last():
                return 0
            key, commit = cursor.item()
        if len(commit) != COMMIT.size or SEQ.pack(last_seq_of(commit)) != key:
            message = f"the last commit row of {self._path} is damaged; restore a backup"
            raise StoreCorrupt(message)
        return last_seq_of(commit)

    def write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[Row] = ()
    ) -> None:
        """Append records with their commit rows, and put the rows: one durable transaction."""
        self._refuse_readonly()
        keys = map(SEQ.pack, range(first_seq, first_seq + len(records)))
        items = list(zip(keys, records, strict=True))
        try:
            with self._environment.begin(write=True) as txn:
                self._append(txn, items)
                for commit in commits:
                    last_key = SEQ.pack(last_seq_of(commit))
                    _ensure(txn.put(last_key, commit, db=self._commits, append=True), f"commit row {last_key.hex()}")
                self._put(txn, rows)
        except lmdb.Error as error:
            raise translated(
                error, f"writing seqs {first_seq} to {first_seq + len(records) - 1}", self._path
            ) from error

    def _append(self, txn: lmdb.Transaction, items: list[tuple[bytes, bytes]]) -> None:
        if len(items) == 1:
            _ensure(txn.put(*items[0], db=self._records, append=True), f"record {items[0][0].hex()}")
            return
        consumed, added = txn.cursor(db=self._records).putmulti(items, append=True)
        _ensure(consumed == added == len(items), f"one of {len(items)} records from {items[0][0].hex()} on")

    def _put(self, txn: lmdb.Transaction, rows: Sequence[Row]) -> None:
        for table, key, value in rows:
            if value is None:
                txn.delete(key, db=self._tables[table])
            else:
                txn.put(key, value, db=self._tables[table])

    def _refuse_readonly(self) -> None:
        if self.readonly:
            message = f"the store in {self._path} is open read-only; open it without readonly=True to write"
            raise ReadOnly(message)

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Put rows beside the log in one durable transaction."""
        self._refuse_readonly()
        with self._guard(f"writing {len(rows)} rows"), self._environment.begin(write=True) as txn:
            self._put(txn, rows)

    def read(self, first_seq: int, limit: int) -> list[bytes]:
        """Return up to ``limit`` records from ``first_seq`` on."""
        with self._guard(f"reading from seq {first_seq}"), self._environment.begin(db=self._records) as txn:
            cursor = txn.cursor()
            if not cursor.set_range(SEQ.pack(first_seq)):
                return []
            return list(islice(cursor.iternext(keys=False), limit))

    def read_at(self, seqs: Sequence[int]) -> list[bytes]:
        """Return the records at the given seqs; neighbours are scanned, which costs a third of a look-up."""
        if not seqs:
            return []
        with self._guard("reading records"), self._environment.begin(db=self._records) as txn:
            if list(seqs) == list(range(seqs[0], seqs[0] + len(seqs))):
                records = _scanned(txn.cursor(), seqs[0], len(seqs))
            else:
                records = _looked_up(txn, seqs)
        if not records:
            message = f"a record among seqs {seqs[0]} to {seqs[-1]} is missing in {self._path}; run `refold verify`"
            raise StoreCorrupt(message)
        return records

    def commit_at(self, seq: int) -> bytes | None:
        """Return the commit row of the commit that wrote ``seq``."""
        found = self._rows(self._commits, SEQ.pack(seq), 1)
        return found[0][1] if found else None

    def commits(self, after: int, limit: int) -> list[bytes]:
        """Return up to ``limit`` commit rows whose last seq is greater than ``after``."""
        return [value for _, value in self._rows(self._commits, SEQ.pack(after + 1), limit)]

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row."""
        with self._guard(f"reading {table}"), self._environment.begin(db=self._tables[table]) as txn:
            value: bytes | None = txn.get(key)
            return value

    def rows(self, table: Table, first: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` on."""
        return self._rows(self._tables[table], first, limit)

    def _rows(self, database: Any, first: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        with self._guard("reading rows"), self._environment.begin(db=database) as txn:
            cursor = txn.cursor()
            if not (cursor.set_range(first) if first else cursor.first()):
                return []
            return list(islice(cursor.iternext(), limit))

    def row_before(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last row whose key is at most ``key``."""
        with self._guard(f"reading {table}"), self._environment.begin(db=self._tables[table]) as txn:
            cursor = txn.cursor()
            if cursor.set_range(key):
                if cursor.key() == key:
                    return key, cursor.value()
                found = cursor.prev()
            else:
                found = cursor.last()
            return (cursor.key(), cursor.value()) if found else None

    def erase(self, records: Sequence[tuple[int, bytes]], rows: Sequence[Row]) -> None:
        """Replace records by their erased forms, and put the rows."""
        self._refuse_readonly()
        with self._guard(f"erasing {len(records)} events"), self._environment.begin(write=True) as txn:
            for seq, record in records:
                txn.put(SEQ.pack(seq), record, db=self._records)
            self._put(txn, rows)

    def changed(self) -> bool:
        """Return whether another process may have written since the last call (about one microsecond)."""
        txnid = self._txnid()
        changed = txnid != self._seen_txnid
        self._seen_txnid = txnid
        return changed

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


def _ensure(appended: bool, what: str) -> None:  # noqa: FBT001 - an assertion's condition
    """Raise unless LMDB appended; no ``assert``, because a write and its check must not go away with ``python -O``."""
    if not appended:
        message = f"{what} is not behind the last key"
        raise AssertionError(message)


def _looked_up(txn: lmdb.Transaction, seqs: Sequence[int]) -> list[bytes]:
    """Return the records of the seqs, none if one of them is missing."""
    records: list[Any] = list(map(txn.get, map(SEQ.pack, seqs)))
    return [] if None in records else records


def _scanned(cursor: lmdb.Cursor, first: int, count: int) -> list[bytes]:
    """Return the records of ``count`` consecutive seqs, none if one of them is missing."""
    if not cursor.set_key(SEQ.pack(first)):
        return []
    records = cast("list[bytes]", list(islice(cursor.iternext(keys=False), count)))
    is_gapless = len(records) == count and cursor.key() == SEQ.pack(first + count - 1)
    return records if is_gapless else []


assert SEQ.size == SEQ_BYTES
assert COMMIT.size == SEQ_BYTES * 3 + HASH_BYTES
