"""A log that answers before the disk does: writes go to a tail in RAM, which a thread makes durable moments later.

A crash loses the tail, which holds the events of the last ``DELAY_MS_MAX`` milliseconds, and never part of a command:
the tail reaches the log below in order, each part of it in one transaction. Reads see the log with its tail.
"""

import atexit
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from refold.errors import Closed, StoreError
from refold.limits import DELAY_MS_MAX, LMDB_KEY_BYTES_MAX, TAIL_BYTES_MAX
from refold.log.lmdb_log import LmdbLog
from refold.log.protocol import TABLES, Row, Table, write
from refold.log.record import EventBytes, Record, Sealed, find_events
from refold.threads import FORKED, NO_THREAD, Bell, Worker, enter_once

# The tail is the end of a log that is not on disk yet: commands in the order they were written.


class _TailWrite(NamedTuple):
    """One write, with the number of records before it in the tail, and the number of bytes up to its end."""

    records: Sequence[Sealed]
    rows: Sequence[Row]
    records_before: int
    bytes_until: int


class Tail:
    """The writes after the seq ``behind``.

    A write is either in the tail or not, because appending a part is a single step. Everything else is derived from the
    parts, in steps that can be interrupted and repeated.
    """

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self._parts: list[_TailWrite] = []
        self._derived_count = 0
        self._records: list[Sealed] = []
        self._rows: dict[Table, dict[bytes, bytes | None]] = {table: {} for table in TABLES}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def append(self, records: Sequence[Sealed], rows: Sequence[Row]) -> None:
        """Append one write."""
        last = self._parts[-1] if self._parts else _TailWrite((), (), 0, 0)
        added = sum(len(record) for _, record in records)
        added += sum(len(key) + len(value or b"") for _, key, value in rows)
        before = last.records_before + len(last.records)
        self._parts.append(_TailWrite(tuple(records), tuple(rows), before, last.bytes_until + added))

    @property
    def head(self) -> int:
        """The seq of the last event."""
        return next((part.records[-1][0] for part in reversed(self._parts) if part.records), self.behind)

    @property
    def size_bytes(self) -> int:
        """The size of the records and rows, in bytes."""
        return self._parts[-1].bytes_until if self._parts else 0

    def _derive(self) -> None:
        for part in self._parts[self._derived_count :]:
            self._records[part.records_before :] = part.records
            for table, key, value in part.rows:
                self._rows[table][key] = value
            self._derived_count += 1

    def records(self) -> list[Sealed]:
        """Return all records; the caller must not change the list."""
        self._derive()
        return self._records

    def between(self, after: int, until: int) -> list[Sealed]:
        """Return the records that hold the events after ``after`` up to ``until``."""
        records = self.records()
        return records[bisect_right(records, after, key=_KEY) : bisect_left(records, until, key=_KEY) + 1]

    def rows(self, table: Table) -> dict[bytes, bytes | None]:
        """Return the last written values of a table's rows, ``None`` for deleted rows; not to be changed."""
        self._derive()
        return self._rows[table]

    def all_rows(self) -> list[Row]:
        """Return the rows of all tables with their last written values."""
        self._derive()
        return [(table, key, value) for table, rows in self._rows.items() for key, value in rows.items()]


_KEY: Final = itemgetter(0)
"""The seq of a record's last event."""


class DelayedTurn:
    """A turn that writes to the tail; it waits only for other threads, because no other process can write."""

    __slots__ = ("_log", "is_open")

    last_commit = 0

    def __init__(self, log: "DelayedLog") -> None:
        self._log = log
        self.is_open = True

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
        """Append everything to the tail, not durable on return, and return 0.

        An erasure bypasses the tail and is durable on return.
        """
        if not self.is_open:
            raise AssertionError("a turn is open once and writes once; take another turn")
        self.is_open = False
        if erased or is_clean:
            self._log.erase(records, rows, erased, is_clean=is_clean)
        else:
            self._log.append(records, rows)
        return self.last_commit


T = TypeVar("T")

_IDLE_ROUNDS_MAX: Final = 40
"""The flusher thread ends after this many rounds with nothing to do."""

FLUSH_SECONDS: Final = DELAY_MS_MAX / 2 / 1_000
"""How long a tail grows before it is flushed; the other half of the delay is left for the disk."""


class DelayedLog:
    """A log in a directory that only this process writes to; ``protocol.Log`` documents each method.

    Only durability differs: a turn is durable once ``flush`` or ``close`` has returned, or as ``durable_until`` says.
    The files are those of the log below, without the tail.
    """

    file = 0
    """Always 0, because no other process replaces the file."""

    def __init__(self, inner: LmdbLog) -> None:
        self.readonly = False
        assert inner.files.exclusive, "a log that delays its writes has to be alone: no other process sees its tail"
        self._inner = inner
        self.files = inner.files
        self._owner = os.getpid()
        self._is_closed = False
        self.turns = threading.RLock()
        """Held by a thread during its turn."""
        self._flushing = threading.RLock()
        self._state = threading.RLock()
        """Held for every access to the tails and the log below, so that no read sees a tail move between them."""
        head = inner.head()
        self._durable = head
        self._waiting = Tail(head)
        self._written: Tail | None = None
        """The tail that is being written to disk, or whose write failed; older than ``_waiting``."""
        self._is_stale = False
        """Whether the log below may have advanced without this one."""
        self._failure: Exception | None = None
        self._flusher: Worker | None = None
        self._is_stopping = False
        self._stop = Bell()
        _open_logs.add(self)

    def _check_usable(self) -> None:
        if os.getpid() != self._owner:
            raise Closed(f"the store {FORKED}")
        if self._is_closed:
            raise Closed("the store is closed; open it again with Memory(path)")
        if self._is_stale:
            with enter_once(self._flushing), enter_once(self._state):
                if self._is_stale:
                    self._find_end()

    def _find_end(self) -> None:
        """Begin an empty tail at the end of the log below."""
        self._waiting = Tail(self._inner.head())
        self._durable = self._waiting.behind
        self._is_stale = False

    # Writing.

    def in_snapshot(self, use: Callable[[], T]) -> T:
        """Call ``use`` while no other thread writes; everything written before is durable."""
        with self.turns:
            self.flush()
            return use()

    def in_turn(self, use: Callable[[DelayedTurn], T]) -> T:
        """Call ``use`` with a turn and return its result."""
        self._check_usable()
        with self.turns:
            return use(DelayedTurn(self))

    def append(self, records: Sequence[Sealed], rows: Sequence[Row]) -> None:
        """Append everything to the tail, flushing first if it is too long; the thread holds its turn.

        After a failed flush, flushes again first and raises that error, with the waiting seqs, if it persists: nothing
        is appended to a tail that does not reach the disk.
        """
        self._check_usable()
        if records and Record(records[0][1]).first_seq != self.head() + 1:
            raise AssertionError(f"the record that ends at seq {records[0][0]} is not behind the last, {self.head()}")
        if any(not 0 < len(key) <= LMDB_KEY_BYTES_MAX for _, key, _ in rows):
            # Such a key would fail every flush, along with everything after it.
            raise StoreError(f"a key written behind seq {self.head()} has no byte or more than LMDB_KEY_BYTES_MAX")
        if self._failure is not None or self._inner.durability.is_stopped or self._tail_bytes() > TAIL_BYTES_MAX:
            self.flush()
            self._inner.durability.check_writing()
        with enter_once(self._state):
            # Before the append, so that an interrupt between the two leaves no tail without a thread.
            if self._flusher is None or self._flusher.is_over:
                self._flusher = Worker(self._run, "refold-flusher")
                self._flusher.start()
                if not self._flusher.wait_for_start():
                    raise StoreError(f"writes cannot be made durable: {NO_THREAD}")
            self._waiting.append(records, rows)

    def _tail_bytes(self) -> int:
        with enter_once(self._state):
            return sum(tail.size_bytes for tail in self._tails())

    def _tails(self) -> tuple[Tail, ...]:
        """Return the tails that are not empty, the older one first."""
        return tuple(tail for tail in (self._written, self._waiting) if tail)

    # Durability.

    @property
    def durability(self) -> "DelayedLog":
        """This log: it makes its own tail durable."""
        return self

    def durable_until(self, seq: int) -> int:
        """Return the last seq that is in the log below, capped at ``seq``."""
        self._check_usable()
        return min(self._durable, seq)

    def flush(self) -> None:
        """Write the tail; everything written before the call is durable on return.

        Raises the errors of the log below. The tail is then kept, and retried by the flusher thread and by the next
        write or flush.
        """
        self._check_usable()
        with enter_once(self._flushing):
            if self._written is not None:
                self._flush_tail()
            with enter_once(self._state):
                if not self._waiting:
                    return
                self._written, self._waiting = self._waiting, Tail(self._waiting.head)
            self._flush_tail()

    def _flush_tail(self) -> None:
        tail = self._written
        assert tail is not None
        try:
            # If the log below was stopped, the part of the tail that it shows is not known to be durable.
            self._inner.durability.check_writing()
            # An interrupted flush may have completed.
            if tail.head == self._durable or self._inner.head() < tail.head:
                write(self._inner, tail.records(), tail.all_rows())
        except StoreError as error:
            self._failure = self._error_with_seqs(error)
            raise self._failure from error
        except Exception as error:
            self._failure = error
            raise
        with enter_once(self._state):
            self._durable = tail.head
            self._written = None
            self._failure = None

    def _error_with_seqs(self, error: StoreError) -> StoreError:
        """Add the unwritten seqs to the error: acknowledged writes must never be dropped silently."""
        waiting = f"seqs {self._durable + 1} to {self._waiting.head}" if self._waiting.head > self._durable else "rows"
        return type(error)(
            f"{error}; acknowledged and not durable are {waiting}, which are kept in RAM and tried again when somebody "
            f"writes, flushes or closes"
        )

    @property
    def is_stopped(self) -> bool:
        """Whether an I/O error has stopped writing until the store is closed or opened again."""
        return self._inner.durability.is_stopped

    @property
    def is_suspect(self) -> bool:
        """Whether an I/O error has left the end of the log below in doubt."""
        return self._inner.durability.is_suspect

    def resume(self) -> None:
        """Check the end of the log below, and resume writing to it; raises ``StoreError`` if that is unsafe."""
        self._check_usable()
        with enter_once(self._flushing):
            self._inner.durability.resume()

    def check_place(self) -> None:
        """Raise ``StoreGone`` if the data file was moved, removed or replaced."""
        self._inner.durability.check_place()

    def _run(self) -> None:
        """Flush repeatedly, until there has been nothing to flush for a while."""
        idle_rounds = 0
        while not (self._stop.wait(FLUSH_SECONDS) or self._is_stopping):
            try:
                if self._failure is not None or self._tail_bytes():
                    idle_rounds = 0
                    self.flush()
                elif idle_rounds >= _IDLE_ROUNDS_MAX and self._retire():
                    return
                else:
                    idle_rounds += 1
            except Exception:  # noqa: BLE001, S112 - kept, and raised by the next write, flush or close
                continue

    def _retire(self) -> bool:
        with enter_once(self._state):
            if self._tails():
                return False
            self._flusher = None
            return True

    def erase(
        self, records: Sequence[Sealed], rows: Sequence[Row], erased: Sequence[Sealed], *, is_clean: bool
    ) -> None:
        """Durably put everything and replace records, after all earlier writes; the thread holds its turn."""
        self.flush()
        with enter_once(self._flushing), enter_once(self._state):
            # A failed write may still be in the log. If finding its end is cut off here, the next use does it again.
            self._is_stale = True
            try:
                self._inner.in_turn(lambda turn: turn.write(records, rows, erased, is_clean=is_clean))
            finally:
                self._find_end()

    # Reading.

    def head(self) -> int:
        """Return the seq of the last event, including the tail."""
        self._check_usable()
        return self._waiting.head

    def last_commit(self) -> int:
        """Return 0: no other process can write here."""
        self._check_usable()
        return 0

    def read(self, after: int, until: int) -> list[Sealed]:
        """Return the records that hold the events after ``after`` up to ``until``."""
        self._check_usable()
        with enter_once(self._state):
            tails = self._tails()
            if not tails or until <= tails[0].behind:
                return self._inner.read(after, until)
            # The log below may already hold part of the tail.
            found = self._inner.read(after, tails[0].behind)
            for tail in tails:
                if after < until and tail.behind < until:
                    found += tail.between(after, until)
            return found

    def events_at(self, seqs: Sequence[int]) -> list[EventBytes]:
        """Return the events at the given seqs."""
        self._check_usable()
        with enter_once(self._state):
            tails = self._tails()
            if not tails or not seqs or max(seqs) <= tails[0].behind:
                return self._inner.events_at(seqs)
            below = [seq for seq in seqs if seq <= tails[0].behind]
            above = [seq for seq in seqs if seq > tails[0].behind]
            found = {event.seq: event for event in self._inner.events_at(below)}
            found |= {event.seq: event for event in find_events(partial(_record_in, tails), above)}
            return [found[seq] for seq in seqs]

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row."""
        self._check_usable()
        with enter_once(self._state):
            for tail in reversed(self._tails()):
                rows = tail.rows(table)
                if key in rows:
                    return rows[key]
            return self._inner.row(table, key)

    def read_row(self, table: Table, key: bytes, read: Callable[[Any], T]) -> T | None:
        """Call ``read`` with the value of a row, and return its result."""
        self._check_usable()
        with enter_once(self._state):
            if not any(key in tail.rows(table) for tail in self._tails()):
                return self._inner.read_row(table, key, read)
        value = self.row(table, key)
        return None if value is None else read(value)

    def rows(self, table: Table, first: bytes, limit: int, *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` up, or down."""
        self._check_usable()
        with enter_once(self._state):
            above = {
                key: value
                for tail in self._tails()
                for key, value in tail.rows(table).items()
                if (key <= first if backwards else key >= first)
            }
            # Read extra rows from below, so that rows deleted in the tail do not make the answer too short.
            deleted = sum(value is None for value in above.values())
            below = self._inner.rows(table, first, limit + deleted, backwards=backwards)
        merged: dict[bytes, bytes | None] = {**dict(below), **above}
        found = [(key, value) for key, value in merged.items() if value is not None]
        return sorted(found, reverse=backwards)[:limit]

    def close(self) -> None:
        """Write the tail and release everything; if the tail cannot be written, raise and stay open.

        A forked child writes nothing, because the tail belongs to its parent. A call after an interrupted one does the
        rest.
        """
        is_owner = os.getpid() == self._owner
        if not self._is_closed and is_owner:
            with self.turns:
                if self.is_stopped and self._tail_bytes():
                    self.resume()
                self.flush()
                self._is_closed = True
        self._is_closed = self._is_stopping = True
        self._stop.ring()
        flusher = self._flusher
        if flusher is not None and is_owner:
            flusher.join()
        self._inner.close()

    def flush_at_exit(self) -> None:
        """Write the tail of a log that was not closed, unless it belongs to another process."""
        if not self._is_closed and os.getpid() == self._owner and self._tail_bytes():
            if self.is_stopped:
                self.resume()
            self.flush()


def _record_in(tails: Sequence[Tail], seq: int) -> bytes | None:
    """Return the first record of the tails that ends at or after a seq."""
    return next((record for tail in tails for _, record in tail.between(seq - 1, seq)), None)


_open_logs: Final[WeakSet[DelayedLog]] = WeakSet()


def _flush_all() -> None:
    """Write the tails of logs that were not closed before the program exits."""
    with ExitStack() as stack:
        for log in _open_logs:
            stack.callback(log.flush_at_exit)


atexit.register(_flush_all)
