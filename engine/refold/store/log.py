"""The log on LMDB: one directory with ``data.mdb``, ``lock.mdb``, ``owner.lock`` and ``writer.lock``.

It promises that what ``write`` returned from survives a power cut (two flushes per commit, never ``sync=False``, never
``writemap``) and that no transaction outlives a call. Of a record it reads the header at most, never the array.
"""

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import lmdb

from refold.errors import Closed, ReadOnly, StoreCorrupt, StoreError
from refold.limits import HASH_BYTES, RETRIES_COUNT_MAX, SEQ_BYTES
from refold.store.directory import Directory
from refold.store.ending import check_end
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
from refold.store.mapping import DATA_FILE
from refold.store.pages import release
from refold.store.protocol import Found, Row, Table
from refold.store.record import COMMIT, SEQ, last_seq_of
from refold.store.stopping import settle
from refold.store.turns import LmdbTurn

T = TypeVar("T")


class LmdbLog:
    """A log in a directory; see ``protocol.Log`` for what each method promises."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._path = directory.path
        self._shared = directory.environment
        self.ballast = directory.ballast
        """What a turn that meets a full disk may ask for room: it is lent to those who have the store ``alone``."""
        self._is_closed = False
        self.readonly = directory.readonly
        self.exclusive = directory.exclusive
        try:
            self._attach()
            self.seen_txnid = self.turn_txnid = self._reading("opening", id_of)
            """The last transaction that is no news: this log wrote it, or its reader knows of it."""
            if not self.readonly and (self._shared.stopped or self.is_suspect):
                self.resume()
        except BaseException:
            directory.release()  # A traceback may hold it, or the thread that renewed.
            raise

    def _attach(self) -> None:
        """Take what is looked up in every read from the environment, which is another one once it was renewed."""
        self._begin = self._shared.env.begin
        self._tables = self._shared.databases

    def _check_open(self) -> None:
        if self._is_closed:
            message = f"the store in {self._path} is closed; open it again with Memory({self._path!r})"
            raise Closed(message)

    # Reading.

    def _reading(self, doing: str, read: Callable[..., T], *arguments: Any, database: str = "") -> T:
        """Return what ``read`` finds in a transaction of its own, which ends with the call."""
        if self._is_closed:
            self._check_open()
        attempts = RETRIES_COUNT_MAX
        while True:
            try:
                txn = self._begin(db=self._tables[database] if database else None)
                try:
                    return read(txn, *arguments)
                finally:
                    txn.abort()
            except lmdb.Error as error:
                attempts -= 1
                if not attempts or not self._shared.recover(error):
                    raise translated(error, doing, self._path) from error
                self._attach()

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
        """Return whether others may have written since the last ``saw`` (about a tenth of a microsecond)."""
        return self._reading("looking for changes", id_of) != self.seen_txnid

    def mark(self) -> int:
        """Return the number of the last transaction."""
        return self._reading("looking for changes", id_of)

    def saw(self, mark: int) -> None:
        """Take note that the reader knows of all transactions up to a number."""
        self.seen_txnid = mark

    # Writing.

    def in_stillness(self, use: Callable[[LmdbTurn], T]) -> T:
        """Call ``use`` with a turn in which nothing is written; of a read-only log, too."""
        self._check_open()
        return self._in_turn(use)

    def in_turn(self, use: Callable[[LmdbTurn], T]) -> T:
        """Call ``use`` with a turn at writing and return its result."""
        self._check_open()
        if self.readonly:
            message = f"the store in {self._path} is open read-only; open it without readonly=True to write"
            raise ReadOnly(message)
        self._shared.check_writing()
        return self._in_turn(use)

    def _in_turn(self, use: Callable[[LmdbTurn], T]) -> T:
        # `with` of a lock that is written in C is one step for signals, on its way in and out, and so is any call of
        # C. A Python function is not: a signal may end it before its first line. So what ends the turn stands here.
        shared = self._shared
        turn = LmdbTurn(self, shared)
        with shared.writing:
            try:
                turn.begin()
                return use(turn)
            finally:
                turn.txn, turn.is_open = None, False
                if shared.turnstile.is_held:
                    shared.turnstile.unlock()
                    shared.turnstile.is_held = False

    def write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[Row] = ()
    ) -> None:
        """Append records with their commit rows, and put the rows: one durable transaction."""

        def use(turn: LmdbTurn) -> None:
            # Where others came between, the number stays, so that the next look tells of them.
            if turn.commit(first_seq, records, commits, rows) and not turn.moved:
                self.seen_txnid = turn.txnid

        self.in_turn(use)

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Put rows beside the log in one durable transaction."""
        self.write(0, (), (), rows)

    def alone(self, use: Callable[[], T]) -> T:
        """Call ``use`` while no other handle has the store open, and a full disk has the ballast's room."""
        self._check_open()
        return self._directory.alone(use)

    def sweep(self) -> None:
        """Put a clean copy of the data file in its place."""
        from refold.store.swapping import sweep  # noqa: PLC0415 - loaded only by those who erase

        with self._shared.writing:
            try:
                sweep(self._shared, self.ballast)
            finally:
                self._attach()
                self.seen_txnid = self.turn_txnid = self._reading("sweeping", id_of)

    def search(self, markers: Collection[bytes]) -> Found:
        """Return how often the markers stand in the files of the store."""
        from refold.store.searching import search  # noqa: PLC0415 - as above

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
                shared.turnstile.enter(always=True)
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
        return self._reading("looking for changes", id_of) > self.turn_txnid

    def relieve(self) -> None:
        """Let go of the pages that were read through the memory map."""
        release(os.path.join(self._path, DATA_FILE))

    def size_bytes(self) -> int:
        """Return the size of the data file."""
        return self._directory.size_bytes()

    def copy(self, into: str) -> None:
        """Write everything that is committed to a new data file in a directory."""
        self._check_open()
        from refold.store.copying import copy  # noqa: PLC0415 - loaded only by those who ask, as below

        try:
            copy(self._shared, into)
        except StoreError:
            self._check_open()  # Closed meanwhile, it is no fault of the disk.
            raise

    def verify(self) -> list[str]:
        """Return what LMDB's offline verifier finds; it reads the file as it lies on disk."""
        from refold.store.structure import problems  # noqa: PLC0415 - loaded only by those who ask

        return problems(self._path)

    def close(self) -> None:
        """Release the environment and the locks."""
        self._is_closed = True
        self._directory.release()


assert SEQ.size == SEQ_BYTES
assert COMMIT.size == SEQ_BYTES * 3 + HASH_BYTES
