"""The log in RAM: the same behaviour without a disk, for ``Memory()`` and for tests."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

from refold.errors import InvalidInput, ReadOnly
from refold.log.protocol import TABLES, AlwaysDurable, Row, SearchCounts, Table
from refold.log.record import EventBytes, Record, Sealed, find_events
from refold.threads import enter_once

T = TypeVar("T")


class _RamWrite(NamedTuple):
    """The writes of one turn, with the new values of the rows."""

    records: tuple[Sealed, ...]
    rows: tuple[Row, ...]
    erased: tuple[Sealed, ...]


class RamTurn:
    """A turn that writes to RAM: no other process writes."""

    __slots__ = ("_log", "_was_written")

    last_commit = 0

    def __init__(self, log: "RamLog") -> None:
        self._log = log
        self._was_written = False

    def is_current(self) -> bool:
        """Return ``True``: an open turn keeps all other writers out."""
        return True

    def write(
        self,
        records: Sequence[Sealed],
        rows: Sequence[Row] = (),
        erased: Sequence[Sealed] = (),
        *,
        is_clean: bool = False,  # noqa: ARG002 - replaced data is always gone
    ) -> int:
        """Put everything at once, and return 0, because no other process commits; replaced data is always gone."""
        if self._was_written:
            raise AssertionError("a turn writes once; take another turn")
        self._was_written = True
        self._log.commit(_RamWrite(tuple(records), tuple(rows), tuple(erased)))
        return self.last_commit


class RamLog:
    """A log that does not outlive the process.

    A change is committed by one assignment, to ``_change``. Applying it to lists and tables takes many steps, each of
    which can be repeated: if an interrupt cuts them off, the next call starts again at the first one.
    """

    keeps_erased = False
    directory: str | None = None
    file = 0

    def __init__(self, *, readonly: bool = False) -> None:
        self.readonly = readonly
        self.durability = AlwaysDurable()
        self._lock = threading.RLock()
        self._change: _RamWrite | None = None
        self._records: list[bytes] = []
        self._lasts: list[int] = []
        """The key of each record: the seq of its last event."""
        self._tables: dict[Table, dict[bytes, bytes]] = {table: {} for table in TABLES}
        self._keys: dict[Table, list[bytes]] = {table: [] for table in TABLES}

    def commit(self, change: _RamWrite) -> None:
        """Commit a change: all of it or, if this is cut off early, nothing."""
        head = self.head()
        if change.records and Record(change.records[0][1]).first_seq != head + 1:
            raise AssertionError(f"the record that ends at seq {change.records[0][0]} is not behind the last, {head}")
        with enter_once(self._lock):
            self._change = change
            self._apply()

    def _finish_change(self) -> None:
        """Before a read, finish a change that an interrupt cut off, or wait for the thread that is applying it."""
        if self._change is not None:
            with enter_once(self._lock):
                self._apply()

    def _apply(self) -> None:
        change = self._change
        if change is None:
            return  # Another thread has applied it.
        if change.records:
            place = bisect_left(self._lasts, change.records[0][0])
            self._records[place:] = [record for _, record in change.records]
            self._lasts[place:] = [last for last, _ in change.records]
        for table, key, value in change.rows:
            rows, keys = self._tables[table], self._keys[table]
            place = bisect_left(keys, key)
            is_there = keys[place : place + 1] == [key]
            if value is None:
                rows.pop(key, None)
                if is_there:
                    del keys[place]
            else:
                rows[key] = value
                if not is_there:
                    keys.insert(place, key)
        for last, record in change.erased:
            self._records[bisect_left(self._lasts, last)] = record
        self._change = None

    def head(self) -> int:
        """Return the seq of the last event."""
        self._finish_change()
        return self._lasts[-1] if self._lasts else 0

    def last_commit(self) -> int:
        """Return 0: no other process can write here."""
        return 0

    def in_snapshot(self, use: Callable[[], T]) -> T:
        """Call ``use``: the caller keeps other threads from writing."""
        return use()

    def in_turn(self, use: Callable[[RamTurn], T]) -> T:
        """Call ``use`` with a turn and return its result."""
        if self.readonly:
            raise ReadOnly("this log is read-only; open it without readonly=True to write")
        return use(RamTurn(self))

    def read(self, after: int, until: int) -> list[Sealed]:
        """Return the records that hold the events after ``after`` up to ``until``."""
        self._finish_change()
        if after >= until:
            return []
        span = slice(bisect_right(self._lasts, after), bisect_left(self._lasts, until) + 1)
        return list(zip(self._lasts[span], self._records[span], strict=True))

    def events_at(self, seqs: Sequence[int]) -> list[EventBytes]:
        """Return the events at the given seqs."""
        self._finish_change()
        return find_events(self._record_of, seqs)

    def _record_of(self, seq: int) -> bytes | None:
        place = bisect_left(self._lasts, seq)
        return self._records[place] if place < len(self._records) else None

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row."""
        self._finish_change()
        return self._tables[table].get(key)

    def read_row(self, table: Table, key: bytes, read: Callable[[Any], T]) -> T | None:
        """Call ``read`` with the value of a row, and return its result."""
        value = self.row(table, key)
        return None if value is None else read(value)

    def rows(self, table: Table, first: bytes, limit: int, *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` up, or down."""
        self._finish_change()
        keys = self._keys[table]
        if backwards:
            end = bisect_right(keys, first)
            keys = keys[max(end - limit, 0) : end][::-1]
        else:
            begin = bisect_left(keys, first)
            keys = keys[begin : begin + limit]
        return [(key, self._tables[table][key]) for key in keys]

    # Maintenance of the data in RAM.

    @property
    def files(self) -> "RamLog":
        """This log itself, because it maintains its own data."""
        return self

    def alone(self, use: Callable[[], T]) -> T:
        """Call ``use``: no other process can have the log open."""
        return use()

    def sweep(self) -> None:
        """Do nothing: replaced data is gone."""

    def search(self, markers: Collection[bytes]) -> SearchCounts:
        """Return how often the markers occur in records and in the values of rows."""
        self._finish_change()
        parts = [*self._records, *(value for rows in self._tables.values() for value in rows.values())]
        return SearchCounts(0, sum(map(len, parts)), sum(part.count(marker) for part in parts for marker in markers))

    def release_memory(self) -> None:
        """Do nothing: all data is meant to be in RAM."""

    def size_bytes(self) -> int:
        """Return the size of all records and rows in bytes."""
        self._finish_change()
        rows_bytes = sum(len(key) + len(value) for rows in self._tables.values() for key, value in rows.items())
        return sum(map(len, self._records)) + rows_bytes

    def copy(self, into: str) -> None:
        """Refuse: there is no file to copy."""
        raise InvalidInput(
            f"a memory in RAM has no file to copy to {into}; export it, and load the export into a new store"
        )

    def verify(self) -> list[str]:
        """Return an empty list: there is no file."""
        return []

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
