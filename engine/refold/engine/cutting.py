"""Cutting a log off at a seq: a new store gets the events up to there and the rows that speak of them, and no more.

Nothing is deleted: rows are copied, so no byte of a later event is ever in the new file. What is only a cache comes
along where it can; what cannot be told apart by its seq stays behind.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from refold.engine import joining, transfer
from refold.engine.checkpoints import APPLIED_KEY, number_of
from refold.engine.core import Engine
from refold.engine.reading import HASH_KEY, STORE_ID_KEY, TAGS_KEY
from refold.engine.streams import NEXT_NUMBER_KEY, STORE_STREAM, number_key
from refold.errors import InvalidInput
from refold.event import FLAG_ERASED
from refold.limits import CUT_BYTES, CUT_ROWS, PAGE_EVENTS
from refold.store.protocol import TABLES, Log, Row, Table, scan
from refold.store.record import COMMIT, SEQ, STAMP, CommitRow
from refold.views.settings import SETTINGS

_SEED_KEYS: Final = (STORE_ID_KEY, HASH_KEY)


def check_end(log: Log, seq: int) -> None:
    """Raise ``InvalidInput`` unless a commit ends at a seq: what was written at once is there at once or not at all."""
    row = log.commit_at(seq) if seq else None
    commit = CommitRow._make(COMMIT.unpack(row)) if row else None
    if commit is not None and commit.next_seq != seq + 1:
        first, last = commit.first_seq, commit.next_seq - 1
        message = (
            f"seq {seq} stands inside the commit of seqs {first} to {last}, which is kept whole or not at all; "
            f"recover to {first - 1} or to {last}"
        )
        raise InvalidInput(message)


def seeds(engine: Engine) -> dict[bytes, bytes]:
    """Return the rows of ``meta`` that are drawn when a store is made: the cut one stays the same store."""
    return {key: engine.log.row("meta", key) or b"" for key in _SEED_KEYS}


class Cutting:
    """One pass over a log in which nobody writes; ``into`` is the log of the new store, which is empty."""

    def __init__(self, engine: Engine, into: Log, seq: int) -> None:
        self._engine = engine
        self._log = engine.log
        self._into = into
        self._seq = seq
        self._numbers: set[int] = set()
        """The streams that have events up to the seq."""
        self._tags: set[int] = set()
        self._covered: dict[int, int] = {}
        """Number of a stream -> seq of its last checkpoint row."""
        self._applied = seq
        self._bare: set[int] = set()
        """The events whose bodies are gone."""

    def cut(self) -> list[int]:
        """Write everything, and return the seqs of bodies that were erased by an event behind the cut, sorted."""
        self._copy_table("checkpoints")
        self._copy_records()
        self._copy_commits()
        for table in _AFTER:
            self._copy_table(table)
        self._into.write_rows(self._marks())
        return sorted(self._bare & self._erased(None) - self._erased(self._seq))

    def _erased(self, at: int | None) -> set[int]:
        """Return the seqs of the bodies of which an event says that they were erased; others are missing."""
        return self._engine.read(STORE_STREAM, lambda state: set(state.part(SETTINGS).erased), at)

    def _copy_records(self) -> None:
        seq = 0
        while seq < self._seq:
            page = self._page(seq + 1)
            for record in page:
                seq += 1
                self._note(seq, record)
            self._into.write(seq - len(page) + 1, page, ())

    def _page(self, first_seq: int) -> list[bytes]:
        """Return as many records from a seq on as one transaction takes."""
        records: list[bytes] = []
        size_bytes = 0
        while len(records) < CUT_ROWS and size_bytes < CUT_BYTES:
            begin = first_seq + len(records)
            page = self._log.read(begin, min(PAGE_EVENTS, self._seq + 1 - begin)) if begin <= self._seq else []
            if not page:
                break
            records += page
            size_bytes += sum(map(len, page))
        assert records, f"seq {first_seq} is missing"
        return records

    def _note(self, seq: int, record: bytes) -> None:
        number, *_, flags, tag = STAMP.unpack_from(record)
        self._numbers.add(number)
        self._tags.add(tag)
        if seq > self._covered.get(number, 0):
            self._applied = min(self._applied, seq - 1)
        if flags & FLAG_ERASED:
            self._bare.add(seq)

    def _copy_commits(self) -> None:
        after = 0
        while after < self._seq:
            rows = [row for row in self._log.commits(after, CUT_ROWS) if COMMIT.unpack(row)[1] <= self._seq + 1]
            assert rows, f"no commit row covers seq {after + 1}"
            self._into.write(0, (), rows)
            after = COMMIT.unpack(rows[-1])[1] - 1

    def _copy_table(self, table: Table) -> None:
        rows = scan(self._log, table, b"", PAGE_EVENTS)
        kept: Iterator[Row] = ((table, key, value) for key, value in rows if self._is_kept(table, key, value))
        while page := list(islice(kept, CUT_ROWS)):
            self._into.write_rows(page)

    def _marks(self) -> list[Row]:
        """Return the rows that say where the log stands."""
        following = max(self._numbers, default=0) + 1
        return [
            ("meta", NEXT_NUMBER_KEY, number_key(following) if self._numbers else None),
            ("meta", TAGS_KEY, msgspec.msgpack.encode(sorted(self._tags)) if self._tags else None),
            ("checkpoints", APPLIED_KEY, SEQ.pack(self._applied) if self._covered else None),
            joining.joined_until(self._engine, self._seq),
            transfer.loaded_until(self._engine, self._seq),
        ]

    # Which rows come along.

    def _is_kept(self, table: Table, key: bytes, value: bytes) -> bool:
        if table == "checkpoints":
            return self._is_covered(key)
        if table == "requests":
            # Of one that changed nothing nobody knows when that was: it is decided anew.
            return 0 < _seq_in(value) <= self._seq
        if table == "derived":
            return _seq_in(key) <= self._seq
        return int.from_bytes(key if table == "streams" else value, "big") in self._numbers

    def _is_covered(self, key: bytes) -> bool:
        if key == APPLIED_KEY or _seq_in(key) > self._seq:
            return False
        self._covered[number_of(key)] = _seq_in(key)
        return True


def _seq_in(row: bytes) -> int:
    """Return the seq with which a key or a value ends."""
    return int(SEQ.unpack(row[-SEQ.size :])[0])


_BEHIND: Final[frozenset[Table]] = frozenset(("digests", "graphs", "meta"))
"""Caches of what streams are at their last events; what the cut says anew."""

_AFTER: Final[tuple[Table, ...]] = ("names", "streams", "derived", "requests")
"""What is copied once the records have told which streams there are."""

assert {"checkpoints", *_AFTER, *_BEHIND} == set(TABLES), "a table that a cut would leave out"
