"""The end of a log that is not on the disk yet: commands in the order in which they were written."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from refold.limits import LMDB_KEY_BYTES_MAX
from refold.store.protocol import TABLES, Row, Table
from refold.store.record import last_seq_of


class _Part(NamedTuple):
    """One write, and where it begins."""

    records: Sequence[bytes]
    commits: Sequence[bytes]
    rows: Sequence[Row]
    records_before: int
    commits_before: int
    bytes_until: int


class Tail:
    """What was written behind the seq ``behind``.

    A write is in it or not: appending one part is a single step, and everything else is derived from the parts, in
    steps that may be interrupted and done again.
    """

    def __init__(self, behind: int) -> None:
        self.first_seq = behind + 1
        self._parts: list[_Part] = []
        self._derived_count = 0
        self._records: list[bytes] = []
        self._commits: list[bytes] = []
        self._rows: dict[Table, dict[bytes, bytes | None]] = {table: {} for table in TABLES}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def append(self, records: Sequence[bytes], commits: Sequence[bytes], rows: Sequence[Row]) -> None:
        """Put one write at the end."""
        last = self._parts[-1] if self._parts else _Part((), (), (), 0, 0, 0)
        added = sum(map(len, records)) + sum(map(len, commits))
        added += sum(len(key) + len(value or b"") for _, key, value in rows)
        self._parts.append(
            _Part(
                tuple(records),
                tuple(commits),
                tuple(rows),
                last.records_before + len(last.records),
                last.commits_before + len(last.commits),
                last.bytes_until + added,
            )
        )

    @property
    def head(self) -> int:
        """The seq of the last record."""
        if not self._parts:
            return self.first_seq - 1
        last = self._parts[-1]
        return self.first_seq - 1 + last.records_before + len(last.records)

    @property
    def size_bytes(self) -> int:
        """The bytes of records, commit rows and rows."""
        return self._parts[-1].bytes_until if self._parts else 0

    def _derive(self) -> None:
        for part in self._parts[self._derived_count :]:
            self._records[part.records_before :] = part.records
            self._commits[part.commits_before :] = part.commits
            for table, key, value in part.rows:
                self._rows[table][key] = value
            self._derived_count += 1

    def records(self) -> list[bytes]:
        """Return all records, to be read only."""
        self._derive()
        return self._records

    def commits(self) -> list[bytes]:
        """Return all commit rows, to be read only."""
        self._derive()
        return self._commits

    def commits_after(self, seq: int) -> list[bytes]:
        """Return the commit rows whose last seq is greater than ``seq``."""
        commits = self.commits()
        return commits[bisect_right(commits, seq, key=last_seq_of) :]

    def those_before(self, commits: Sequence[bytes]) -> list[bytes]:
        """Return those of the commit rows that lie before the tail: the log below may have taken it in already."""
        return [commit for commit in commits if last_seq_of(commit) < self.first_seq]

    def rows(self, table: Table) -> dict[bytes, bytes | None]:
        """Return the rows of a table as they were written last, ``None`` for deleted ones; to be read only."""
        self._derive()
        return self._rows[table]

    def all_rows(self) -> list[Row]:
        """Return the rows of all tables, each as it was written last."""
        self._derive()
        return [(table, key, value) for table, rows in self._rows.items() for key, value in rows.items()]


def just_below(key: bytes) -> bytes:
    """Return the last possible key before a key."""
    if key.endswith(b"\0"):
        return key[:-1]
    return (key[:-1] + bytes([key[-1] - 1])).ljust(LMDB_KEY_BYTES_MAX, b"\xff")
