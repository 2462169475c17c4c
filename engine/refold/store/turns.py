"""Turns at writing: to LMDB, which is a write transaction, and to the tail of a log that delays its writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import lmdb

from refold.errors import StoreCorrupt, StoreFull
from refold.store.environment import Environment
from refold.store.failures import translated
from refold.store.protocol import Erasing, Overtaken, Row
from refold.store.record import SEQ, last_seq_of
from refold.store.stopping import failed

if TYPE_CHECKING:
    from refold.store.delayed import DelayedLog
    from refold.store.log import LmdbLog

_AnyRow: TypeAlias = tuple[str, bytes, bytes | None]
"""A row of any database, the log included."""


class LmdbTurn:
    """A write transaction; see ``protocol.Turn`` for what it promises, and ``LmdbLog.in_turn`` for how it ends.

    The transaction is aborted by dropping the only reference to it, so it may stand in no variable, which a traceback
    would keep. The ``abort`` of LMDB's binding waits until no other thread is inside a read, and two threads that read
    all the time let it wait for ever.
    """

    __slots__ = ("_log", "_shared", "is_open", "moved", "txn", "txnid")

    def __init__(self, log: "LmdbLog", shared: Environment) -> None:
        self._log = log
        self._shared = shared
        self.txn: lmdb.Transaction[bytes] | None = None
        self.is_open = False
        self.txnid = 0
        self.moved = False

    def begin(self) -> None:
        """Begin the transaction; the thread holds ``writing``."""
        self.is_open = True
        self.txn = self._shared.begin_write(always=self._log.readonly)
        self.txnid = self.txn.id()
        self._log.turn_txnid = self.txnid
        self.moved = self.txnid != self._log.seen_txnid + 1

    def write(
        self,
        first_seq: int,
        records: Sequence[bytes],
        commits: Sequence[bytes],
        rows: Sequence[Row] = (),
        erased: Sequence[Erasing] = (),
    ) -> None:
        """Put everything and commit: durable on return."""
        replaced: list[_AnyRow] = [("log", SEQ.pack(seq), record) for seq, record in erased]
        if self.commit(first_seq, records, commits, [*replaced, *rows] if erased else rows):
            self._log.seen_txnid = self.txnid

    def commit(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[_AnyRow]
    ) -> bool:
        """Put everything and end the transaction, in any case; return whether there was something to commit.

        A transaction that finds the map full is begun again in a larger one, and one that finds the disk full with the
        room of the ballast, if that is lent; unless others came between.
        """
        if not self.is_open:
            message = "a turn is open once and writes once; take another turn"
            raise AssertionError(message)
        doing = _doing(first_seq, records, rows)
        try:
            self._shared.check_writing()
            while True:
                try:
                    return self._put_and_commit(first_seq, records, commits, rows)
                except lmdb.MapFullError as error:
                    if not self._shared.grow():
                        raise translated(error, doing, self._shared.path) from error
                except lmdb.Error as error:
                    told = failed(self._shared, error, doing, self.txnid)
                    if not (isinstance(told, StoreFull) and self._log.ballast.give()):
                        raise told from error
                self._begin_again()
        finally:
            self.txn, self.is_open = None, False
            # Other processes need not wait for the fold of what was written.
            turnstile = self._shared.turnstile
            if turnstile.is_held:
                turnstile.unlock()
                turnstile.is_held = False

    def _begin_again(self) -> None:
        self.txn = self._shared.begin_write()
        if self.txn.id() != self.txnid:
            path = self._shared.path
            message = f"another process wrote to {path} while this one made room; nothing was written, call again"
            raise Overtaken(message)

    def _put_and_commit(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[_AnyRow]
    ) -> bool:
        assert self.txn is not None
        databases = self._shared.databases
        try:
            if records:
                self._append(first_seq, records)
            for commit in commits:
                last_key = SEQ.pack(last_seq_of(commit))
                if not self.txn.put(last_key, commit, db=databases["commits"], append=True):
                    self._refuse(f"the commit row of seq {last_seq_of(commit)}")
            # LMDB gives the number of a transaction that changed nothing to the next one, whoever that belongs to.
            is_changed = self._put(rows) or bool(records) or bool(commits)
            if is_changed:
                self.txn.commit()
                self._log.ballast.follow(sum(map(len, records)))
            return is_changed
        finally:
            self.txn = None

    def _append(self, first_seq: int, records: Sequence[bytes]) -> None:
        assert self.txn is not None
        database = self._shared.databases["log"]
        if len(records) == 1:
            if not self.txn.put(SEQ.pack(first_seq), records[0], db=database, append=True):
                self._refuse(f"the record of seq {first_seq}")
            return
        keys = map(SEQ.pack, range(first_seq, first_seq + len(records)))
        items = zip(keys, records, strict=True)
        if self.txn.cursor(db=database).putmulti(items, append=True) != (len(records), len(records)):
            self._refuse(f"one of {len(records)} records from seq {first_seq} on")

    def _refuse(self, what: str) -> NoReturn:
        """Raise, because LMDB did not append; no ``assert``: a check of a write must not go away with ``python -O``."""
        message = f"{what} is not behind the last one of {self._shared.path}; run `refold verify` and restore a backup"
        raise StoreCorrupt(message)

    def _put(self, rows: Sequence[_AnyRow]) -> bool:
        """Put or delete the rows, and return whether that changed anything."""
        assert self.txn is not None
        databases = self._shared.databases
        is_changed = False
        for table, key, value in rows:
            if value is None:
                is_changed |= self.txn.delete(key, db=databases[table])
            else:
                is_changed |= self.txn.put(key, value, db=databases[table])
        return is_changed


class DelayedTurn:
    """A turn at writing to the tail: it waits for other threads alone, as no other process may write."""

    __slots__ = ("_log", "is_open")

    moved = False

    def __init__(self, log: "DelayedLog") -> None:
        self._log = log
        self.is_open = True

    def write(
        self,
        first_seq: int,
        records: Sequence[bytes],
        commits: Sequence[bytes],
        rows: Sequence[Row] = (),
        erased: Sequence[Erasing] = (),
    ) -> None:
        """Put everything at the end of the tail, not durable on return; what erases goes past it, and is."""
        if not self.is_open:
            message = "a turn is open once and writes once; take another turn"
            raise AssertionError(message)
        self.is_open = False
        if erased:
            self._log.erase(first_seq, records, commits, rows, erased)
        else:
            self._log.append(first_seq, records, commits, rows)


def _doing(first_seq: int, records: Sequence[bytes], rows: Sequence[_AnyRow]) -> str:
    return f"writing seqs {first_seq} to {first_seq + len(records) - 1} and {len(rows)} rows"
