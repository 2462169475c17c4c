"""Which rows have which keyword, and how many of a query's keywords each row has."""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from refold.store.columns import Array, Column, Rows

_STEP: Final = 256
"""Where a count of keywords fits a byte, a row's code holds it there, and what the query shares with it above."""

_WIDE_STEP: Final = 2**32

_COMMON_SHARE: Final = 8
"""A keyword that more than one of so many rows have gets a column of its own, which is added at once."""

_NO_ROWS: Final[Rows] = np.empty(0, np.intp)


class Codes(NamedTuple):
    """A number for each row: how many keywords it has, and ``step`` times how many of them the query has."""

    values: Array
    step: int
    asked: int
    """How many keywords the query has, known or not."""

    def overlaps(self, rows: Rows) -> list[float]:
        """Return the Jaccard index of the query's keywords and those of some rows: 0 where both have none."""
        codes: list[int] = self.values[rows].tolist()
        pairs = (divmod(code, self.step) for code in codes)
        return [shared / max(own + self.asked - shared, 1) for shared, own in pairs]

    def weighted(self, weight: float, rows: Rows | None) -> Array:
        """Return the weighted index of rows, or of all, in single precision."""
        shared, own = np.divmod(self.values if rows is None else self.values[rows], self.step)
        index: Array = (weight * (shared / np.maximum(own + self.asked - shared, 1))).astype(np.float32)
        return index

    def table(self, weight: float) -> Array | None:
        """Return the weighted index for every code there may be, ``None`` if they are too many."""
        return _table(weight, self.asked) if self.step == _STEP else None


@lru_cache(maxsize=64)
def _table(weight: float, asked: int) -> Array:
    shared = np.arange(asked + 1)[:, None]
    united = np.maximum(np.arange(_STEP)[None, :] + asked - shared, 1)
    table: Array = (weight * (shared / united)).astype(np.float32)
    return table.ravel()


class _Posting:
    """The rows of one keyword, in order: those sorted in, those that came since, and their column if they are many."""

    __slots__ = ("_column", "_filled", "_fresh", "_rows")

    def __init__(self, rows: Rows = _NO_ROWS) -> None:
        self._rows = rows
        self._fresh: list[int] = []
        self._column: Array = np.empty(0, np.uint16)
        self._filled = 0

    def append(self, row: int) -> None:
        """Add a row behind all others."""
        self._fresh.append(row)

    def rows(self) -> Rows:
        """Return all rows, in order."""
        if self._fresh:
            self._rows = np.concatenate([self._rows, np.array(self._fresh, np.intp)])
            self._fresh.clear()
        return self._rows

    @property
    def nbytes(self) -> int:
        """Return about what it takes in RAM."""
        return int(self._rows.nbytes) + 36 * len(self._fresh) + self._column.nbytes

    def column(self, count: int) -> Array:
        """Return for so many first rows what the keyword adds to their codes."""
        if count > self._filled:
            self._fill(count)
        return self._column[:count]

    def _fill(self, count: int) -> None:
        """Fill the column up to a row; what is filled already, and may be held by a reader, stays as it is."""
        if count > len(self._column):
            column: Array = np.empty(2 * count, np.uint16)
            column[: self._filled] = self._column[: self._filled]
            self._column = column
        rows = self.rows()
        self._column[self._filled : count] = 0
        self._column[rows[rows.searchsorted(self._filled) : rows.searchsorted(count)]] = _STEP
        self._filled = count


class Postings:
    """The keywords of all rows; the caller holds the lock of the rows for every call."""

    def __init__(self) -> None:
        self._postings: dict[str, _Posting] = {}
        self._lengths = Column(np.int64)
        self._short_lengths = Column(np.uint16)
        self._has_long = False

    @property
    def nbytes(self) -> int:
        """Return about what the keywords take in RAM."""
        overhead_bytes = 250
        own = sum(posting.nbytes + overhead_bytes for posting in self._postings.values())
        return own + self._lengths.nbytes + self._short_lengths.nbytes

    def append(self, keywords: Iterable[str]) -> None:
        """Add the keywords of the next row; what is given twice counts once."""
        row = self._lengths.count
        postings = self._postings
        distinct = set(keywords)
        for keyword in distinct:
            posting = postings.get(keyword)
            if posting is None:
                posting = postings[keyword] = _Posting()
            posting.append(row)
        length = len(distinct)
        self._lengths.append(length)
        self._short_lengths.append(min(length, _STEP - 1))
        self._has_long |= length >= _STEP

    def extend(self, keywords: Sequence[Iterable[str]], count: int) -> None:
        """Add the keywords of the next rows; none at all may be given for all of them."""
        for words in keywords:
            self.append(words)
        rest = count - len(keywords)
        self._lengths.extend(0, rest)
        self._short_lengths.extend(0, rest)

    def of(self, rows: Rows) -> "Postings":
        """Return the keywords of some rows alone, in their order, numbered from 0."""
        other = Postings()
        places: Rows = np.full(self._lengths.count, -1, np.intp)
        places[rows] = np.arange(len(rows))
        for keyword, posting in self._postings.items():
            kept = places[posting.rows()]
            kept = kept[kept >= 0]
            if len(kept):
                other._postings[keyword] = _Posting(kept)
        other._lengths.extend(self._lengths.view()[rows], len(rows))
        other._short_lengths.extend(self._short_lengths.view()[rows], len(rows))
        other._has_long = self._has_long
        return other

    def codes(self, keywords: Collection[str], count: int) -> Codes:
        """Return the codes of so many first rows for a query's keywords."""
        asked = set(keywords)
        found = [posting for posting in map(self._postings.get, asked) if posting is not None]
        if self._has_long or len(asked) >= _STEP:
            return Codes(self._wide(found, count), _WIDE_STEP, len(asked))
        values = self._short_lengths.view()[:count].copy()
        for posting in found:
            rows = posting.rows()
            if len(rows) * _COMMON_SHARE > count:
                values += posting.column(count)
            else:
                values[_first(rows, count)] += _STEP
        return Codes(values, _STEP, len(asked))

    def _wide(self, found: Sequence[_Posting], count: int) -> Array:
        values = self._lengths.view()[:count].copy()
        for posting in found:
            values[_first(posting.rows(), count)] += _WIDE_STEP
        return values


def _first(rows: Rows, count: int) -> Rows:
    """Return those of the rows that are among so many first ones."""
    if not len(rows) or rows[-1] < count:
        return rows
    return rows[: rows.searchsorted(count)]
