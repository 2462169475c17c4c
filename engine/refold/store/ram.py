"""The log in RAM: the same behaviour without a disk, for ``Memory()`` and for tests."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from refold.errors import InvalidInput, ReadOnly, StoreCorrupt
from refold.store.protocol import TABLES, Erasing, Found, Row, Table
from refold.store.record import COMMIT, last_seq_of


class RamTurn:
    """A turn at writing to RAM: there is nobody to wait for."""

    __slots__ = ("_log", "_was_written")

    def __init__(self, log: "RamLog") -> None:
        self._log = log
        self._was_written = False

    @property
    def moved(self) -> bool:
        """Return ``False``: there are no others."""
        return False

    def __enter__(self) -> Self:
        return self

    def write(
        self,
        first_seq: int,
        records: Sequence[bytes],
        commits: Sequence[bytes],
        rows: Sequence[Row] = (),
        erased: Sequence[Erasing] = (),
    ) -> None:
        """Put everything at once."""
        if self._was_written:
            message = "a turn writes once; take another turn"
            raise AssertionError(message)
        self._was_written = True
        self._log.write(first_seq, records, commits, rows)
        self._log.replace(erased)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the turn: what was not written was never there."""


class RamLog:
    """A log that keeps nothing beyond the process."""

    def __init__(self, *, readonly: bool = False) -> None:
        self.readonly = readonly
        self._records: list[bytes] = []
        self._commits: list[bytes] = []
        self._lasts: list[int] = []
        self._tables: dict[Table, dict[bytes, bytes]] = {table: {} for table in TABLES}
        self._keys: dict[Table, list[bytes]] = {table: [] for table in TABLES}

    def head(self) -> int:
        """Return the seq of the last record."""
        return len(self._records)

    def durable_head(self) -> int:
        """Return the seq of the last record."""
        return self.head()

    def flush(self) -> None:
        """Do nothing: there is no disk."""

    def still(self) -> RamTurn:
        """Return a turn in which nobody writes."""
        return RamTurn(self)

    def turn(self) -> RamTurn:
        """Return a turn at writing."""
        self._refuse_readonly()
        return RamTurn(self)

    def write(
        self, first_seq: int, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[Row] = ()
    ) -> None:
        """Append records and their commit rows, and put the rows."""
        self._refuse_readonly()
        assert not records or first_seq == len(self._records) + 1, f"seq {first_seq} after {len(self._records)}"
        self._records.extend(records)
        self._commits.extend(commits)
        self._lasts.extend(last_seq_of(commit) for commit in commits)
        self._put(rows)

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Put rows beside the log."""
        self._refuse_readonly()
        self._put(rows)

    def _refuse_readonly(self) -> None:
        if self.readonly:
            message = "this log is read-only; open it without readonly=True to write"
            raise ReadOnly(message)

    def _put(self, rows: Sequence[Row]) -> None:
        for table, key, value in rows:
            held, keys = self._tables[table], self._keys[table]
            if value is None:
                if held.pop(key, None) is not None:
                    del keys[bisect_left(keys, key)]
            else:
                if key not in held:
                    insort(keys, key)
                held[key] = value

    def read(self, first_seq: int, limit: int) -> list[bytes]:
        """Return up to ``limit`` records from ``first_seq`` on."""
        return self._records[max(first_seq, 1) - 1 : max(first_seq, 1) - 1 + limit]

    def read_at(self, seqs: Sequence[int]) -> list[bytes]:
        """Return the records at the given seqs."""
        records = self._records
        for seq in seqs:
            if not 1 <= seq <= len(records):
                message = f"seq {seq} is missing; the log ends at {len(records)}"
                raise StoreCorrupt(message)
        return [records[seq - 1] for seq in seqs]

    def commit_at(self, seq: int) -> bytes | None:
        """Return the commit row of the commit that wrote ``seq``."""
        place = bisect_left(self._lasts, seq)
        return self._commits[place] if place < len(self._commits) else None

    def commits(self, after: int, limit: int) -> list[bytes]:
        """Return up to ``limit`` commit rows whose last seq is greater than ``after``."""
        begin = bisect_right(self._lasts, after)
        return self._commits[begin : begin + limit]

    def row(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._tables[table].get(key)

    def rows(self, table: Table, first: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``limit`` rows with keys from ``first`` on."""
        keys = self._keys[table]
        begin = bisect_left(keys, first)
        return [(key, self._tables[table][key]) for key in keys[begin : begin + limit]]

    def row_before(self, table: Table, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last row whose key is at most ``key``."""
        keys = self._keys[table]
        place = bisect_right(keys, key)
        return (keys[place - 1], self._tables[table][keys[place - 1]]) if place else None

    def replace(self, erased: Sequence[Erasing]) -> None:
        """Put records in the place of others."""
        for seq, record in erased:
            self._records[seq - 1] = record

    def alone(self) -> AbstractContextManager[None]:
        """Return a context: nobody else can have it."""
        return nullcontext()

    def sweep(self) -> None:
        """Do nothing: what was replaced is gone."""

    def search(self, markers: Collection[bytes]) -> Found:
        """Return how often the markers stand in records and rows."""
        held = [*self._records, *(value for rows in self._tables.values() for value in rows.values())]
        return Found(0, sum(map(len, held)), sum(part.count(marker) for part in held for marker in markers))

    def changed(self) -> bool:
        """Return ``False``: nobody else can write here."""
        return False

    def passed(self) -> bool:
        """Return whether another process has committed since this one's last turn at writing began and committed."""
        return False

    @property
    def is_stopped(self) -> bool:
        """Return ``False``: there is no disk that could fail."""
        return False

    @property
    def is_suspect(self) -> bool:
        """Return ``False``, as above."""
        return False

    def resume(self) -> None:
        """Do nothing: writing never stops."""

    def relieve(self) -> None:
        """Do nothing: all of it is meant to be in RAM."""

    def size_bytes(self) -> int:
        """Return the bytes of all records, commit rows and rows."""
        rows = sum(len(key) + len(value) for held in self._tables.values() for key, value in held.items())
        return sum(map(len, self._records)) + COMMIT.size * len(self._commits) + rows

    def copy(self, into: str) -> None:
        """Refuse: there is no file to copy."""
        message = f"a memory in RAM has no file to copy to {into}; export it, and load the export into a new store"
        raise InvalidInput(message)

    def verify(self) -> list[str]:
        """Return nothing: there is no file."""
        return []

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
