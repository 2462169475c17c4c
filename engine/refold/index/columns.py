"""Growable columns of numbers, vectors of length 1, and postings of terms.

A view of a column never changes: later rows lie beyond its end, and changed values go to a copy of the column.
"""

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from refold.errors import EmbeddingMismatch, InvalidInput

Array: TypeAlias = NDArray[Any]  # Numbers of any dtype; the column that they belong to determines it.

Rows: TypeAlias = NDArray[np.intp]  # Row numbers, of the integer type that numpy indexes with without a copy.

DAY_NS: Final = 86_400_000_000_000
_CAPACITY_MIN: Final = 64
# From this size on, a growing column reserves room for twice the rows it has then; copying a smaller one takes no time.
LARGE_COLUMN_BYTES: Final = 4 * 1024**2


def product(left: Array, right: Array, out: Array | None = None) -> Array:
    """Compute the matrix product of finite numbers, into `out` if given.

    Some OpenBLAS kernels also compute with whatever lies on their stack beyond the numbers, and discard the results.
    With rows of five numbers, signalling NaNs there raise the flag for invalid operations, and numpy warns about a
    correct result.

    >>> product(np.eye(2), np.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    with np.errstate(invalid="ignore"):
        result: Array = np.dot(left, right, out=out)
    return result


class Column:
    """A growable array of one value, or one line of values, per row."""

    __slots__ = ("_is_lent", "_values", "count")

    def __init__(self, kind: DTypeLike, width: int | None = None) -> None:
        shape = (_CAPACITY_MIN,) if width is None else (_CAPACITY_MIN, width)
        self._values: Array = np.empty(shape, kind)
        self._is_lent = False
        self.count = 0

    @classmethod
    def of(cls, values: Array) -> "Column":
        """Wrap an array in a column without copying it; no other code may change the array."""
        column = cls(values.dtype, values.shape[1] if values.ndim > 1 else None)
        column._values, column.count = values, len(values)
        return column

    @property
    def nbytes(self) -> int:
        """The bytes of the rows; the reserved room behind them is untouched and takes no RAM."""
        return self.count * self._values[:1].nbytes

    def view(self) -> Array:
        """Return the values as of now, unaffected by later changes."""
        self._is_lent = True
        return self._values[: self.count]

    def append(self, value: Any) -> None:
        """Add one row."""
        if self.count == len(self._values):
            self._grow(self.count + 1)
        self._values[self.count] = value
        self.count += 1

    def extend(self, values: Any, count: int) -> None:
        """Add several rows: one value for all of them, or one for each."""
        if self.count + count > len(self._values):
            self._grow(self.count + count)
        self._values[self.count : self.count + count] = values
        self.count += count

    def change(self, rows: Any, values: Any) -> None:
        """Change the values of rows; views keep the old ones."""
        if self._is_lent:
            self._move(len(self._values))
        self._values[rows] = values

    def pad(self, count: int, filler: float) -> None:
        """Append rows with the value `filler` until there are `count`."""
        if count > self.count:
            self.extend(filler, count - self.count)

    @property
    def values(self) -> Array:
        """The values in place, not a copy: later changes show in them. The caller must hold a lock."""
        return self._values[: self.count]

    def _grow(self, count: int) -> None:
        """Double the room, so that each row is copied once on average, even if many rows are added at once.

        The operating system assigns no RAM to the room until it is touched.
        """
        is_large = count * self._values[:1].nbytes >= LARGE_COLUMN_BYTES
        self._move(2 * count if is_large else max(count, 2 * len(self._values)))

    def _move(self, room: int) -> None:
        values: Array = np.empty((room, *self._values.shape[1:]), self._values.dtype)
        values[: self.count] = self._values[: self.count]
        self._values = values
        self._is_lent = False


def normalise(vectors: Any, dimensions: int, *, count: int | None = None) -> Array:
    """Scale vectors, one in each line, to length 1, each independently of the others.

    `vectors` are raw float32 bytes, an array, or sequences of numbers. Raises `InvalidInput` for a vector that is
    unreadable, not finite or zero, and if there are not `count` vectors; `EmbeddingMismatch` for another dimension.
    """
    lines = _lines(vectors, dimensions)
    if count is not None and len(lines) != count:
        raise InvalidInput(f"{len(lines)} vectors where {count} is asked for; give {count} of {dimensions} numbers")
    if len(lines) == 1:
        return _normalise_one(lines)
    lengths = np.sqrt(np.sum(lines * lines, axis=1))
    # The square of a single-precision number cannot overflow in double precision, so a length is infinite or NaN only
    # if a number is not finite.
    if not (lengths.min(initial=1.0) > 0.0 and lengths.max(initial=1.0) < np.inf):
        wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0.0)))
        length = lengths[wrong[0]]
        what = "is zero" if length == 0.0 else "holds a number that is not finite"
        raise InvalidInput(f"vector {wrong[0]} {what}; every vector needs a direction")
    units: Array = (lines / lengths[:, None]).astype(np.float32)
    return units


def _normalise_one(line: Array) -> Array:
    """Normalise one vector with fewer calls, because every search starts with this."""
    length = math.sqrt(np.add.reduce(line[0] * line[0]))
    if not 0.0 < length < math.inf:
        what = "is zero" if length == 0.0 else "holds a number that is not finite"
        raise InvalidInput(f"vector 0 {what}; every vector needs a direction")
    unit: Array = (line / length).astype(np.float32)
    return unit


def _lines(vectors: Any, dimensions: int) -> Array:
    if isinstance(vectors, bytes):
        if len(vectors) % (4 * dimensions) or not vectors:
            raise EmbeddingMismatch(
                f"{len(vectors)} bytes are no vectors of {dimensions} numbers ({4 * dimensions} bytes each); "
                f"use the embedder that this project was written with"
            )
        return np.frombuffer(vectors, "<f4").reshape(-1, dimensions).astype(np.float64)
    try:
        lines = np.asarray(vectors, np.float32).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a vector cannot be read ({error}); give {dimensions} numbers") from error
    if lines.ndim == 1:
        lines = lines[None, :]
    if lines.ndim != 2 or lines.shape[1] != dimensions:  # noqa: PLR2004 - lines of numbers
        raise EmbeddingMismatch(
            f"a vector of {lines.shape[-1] if lines.ndim else 1} numbers where rows have {dimensions}; "
            f"use the embedder that this project was written with"
        )
    return lines


class Posting:
    """The rows that have one term, in order, with the number of its occurrences in each."""

    __slots__ = ("_repeats", "_rows", "term")

    def __init__(self, term: str, rows: bytes = b"", repeats: bytes = b"") -> None:
        self.term = term
        self._rows = array("q", rows)
        self._repeats = array("H", repeats)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Rows:
        """Return a copy of the rows."""
        return np.array(self._rows, dtype=np.intp)

    def repeats(self) -> NDArray[np.uint16]:
        """Return a copy of the number of occurrences in each row."""
        return np.array(self._repeats, dtype=np.uint16)

    def add(self, row: int, repeats: int = 1) -> None:
        """Add a row, usually behind the others."""
        repeats = min(repeats, _REPEATS_MAX)
        if not self._rows or self._rows[-1] < row:
            self._rows.append(row)
            self._repeats.append(repeats)
        else:
            place = bisect_left(self._rows, row)
            self._rows.insert(place, row)
            self._repeats.insert(place, repeats)

    def remove(self, row: int) -> None:
        """Remove a row."""
        place = bisect_left(self._rows, row)
        del self._rows[place]
        del self._repeats[place]


_REPEATS_MAX: Final = 2**16 - 1


def postings_of(terms: Sequence[str], rows: NDArray[np.int64]) -> dict[str, Posting]:
    """Build the postings of many rows at once from terms and the row of each; repeated terms of a row are counted.

    >>> {term: posting.rows().tolist() for term, posting in postings_of(["a", "b", "a"], np.array([0, 0, 2])).items()}
    {'a': [0, 2], 'b': [0]}
    """
    if not terms:
        return {}
    numbers = {term: number for number, term in enumerate(dict.fromkeys(terms))}
    size = int(rows.max()) + 1
    pairs = np.fromiter(map(numbers.__getitem__, terms), np.int64, len(terms)) * size + rows
    pairs, counts = np.unique(pairs, return_counts=True)
    owners, places = np.divmod(pairs, size)
    repeats = np.minimum(counts, _REPEATS_MAX).astype(np.uint16)
    ends = owners.searchsorted(np.arange(len(numbers)), "right").tolist()
    return {
        term: Posting(term, places[begin:end].tobytes(), repeats[begin:end].tobytes())
        for term, begin, end in zip(numbers, [0, *ends], ends, strict=False)
    }


def add_terms(postings: dict[str, Posting], row: int, terms: Iterable[str]) -> None:
    """Add a row to the postings of its terms."""
    for term, repeats in Counter(terms).items():
        posting = postings.get(term)
        if posting is None:
            posting = postings[term] = Posting(term)
        posting.add(row, repeats)


def remove_terms(postings: dict[str, Posting], row: int, terms: Iterable[str]) -> None:
    """Remove a row from the postings of its terms, and delete each posting that becomes empty."""
    for term in set(terms):
        posting = postings[term]
        posting.remove(row)
        if not len(posting):
            del postings[term]


# If all keyword counts fit in a byte, the low byte of a code counts the row's own keywords, and the high byte those
# that the query has too.
_STEP: Final = 256
_WIDE_STEP: Final = 2**32
# A keyword that more than one row in this many has gets a column of steps, which is added in one operation.
_COMMON_SHARE: Final = 8


class Codes(NamedTuple):
    """One number per row: the count of its keywords, plus `step` times the count of those that the query has too."""

    values: Array
    step: int
    query_count: int  # The number of keywords in the query, known or not.

    def overlaps(self, rows: Rows) -> list[float]:
        """Compute the Jaccard index of the query's keywords and each row's; it is 0 if both have none."""
        codes: list[int] = self.values[rows].tolist()
        pairs = (divmod(code, self.step) for code in codes)
        return [shared / max(own + self.query_count - shared, 1) for shared, own in pairs]

    def add_to(self, totals: Array, weight: float, rows: Rows | None, spare: Array) -> None:
        """Add the weighted Jaccard index of `rows`, or of all rows if `None`, to `totals`, in single precision."""
        codes = self.values if rows is None else self.values[rows]
        if self.step == _STEP:
            np.take(_overlap_table(weight, self.query_count), codes, out=spare, mode="clip")
        else:
            shared, own = np.divmod(codes, self.step)
            spare[:] = weight * (shared / np.maximum(own + self.query_count - shared, 1))
        np.add(totals, spare, out=totals)


@lru_cache(maxsize=64)
def _overlap_table(weight: float, query_count: int) -> Array:
    shared = np.arange(query_count + 1)[:, None]
    united = np.maximum(np.arange(_STEP)[None, :] + query_count - shared, 1)
    table: Array = (weight * (shared / united)).astype(np.float32)
    return table.ravel()


class Keywords:
    """The lower-cased keywords of rows, which are only ever added. Not thread-safe: the caller locks."""

    def __init__(self) -> None:
        self._waiting: Sequence[Iterable[str]] = ()
        """The keywords of a table's first rows, until a ranking needs them; most rankings never do."""
        self._behind: list[tuple[str, ...]] = []
        """The keywords of the rows added in the meantime."""
        self._postings: dict[str, Posting] = {}
        self._steps: dict[str, Column] = {}  # For each common keyword, a step for each row that has it.
        self._counts = Column(np.uint16)
        self._has_long = False

    @property
    def nbytes(self) -> int:
        """Approximate bytes in RAM."""
        own = sum(10 * len(posting) + 250 for posting in self._postings.values()) + 50 * len(self._waiting)
        return own + self._counts.nbytes + sum(column.nbytes for column in self._steps.values())

    def append(self, keywords: Iterable[str]) -> None:
        """Add the keywords of the next row; repeated keywords count once."""
        if self._waiting:
            self._behind.append(tuple(keywords))
            return
        row, distinct = self._counts.count, _lower_keywords(keywords)
        for keyword in distinct:
            posting = self._postings.get(keyword)
            if posting is None:
                posting = self._postings[keyword] = Posting(keyword)
            posting.add(row)
        self._counts.append(len(distinct))
        self._has_long |= len(distinct) >= _STEP

    def extend(self, rows: Sequence[Iterable[str]]) -> None:
        """Add the keywords of the next rows; a table's first rows are added several times as fast as one by one."""
        if self._counts.count or self._waiting:
            for keywords in rows:
                self.append(keywords)
        else:
            self._waiting = rows

    def _index_waiting(self) -> None:
        """Index the first rows, which are waiting."""
        if not self._waiting:
            return
        rows, self._waiting = self._waiting, ()
        distinct = list(map(_lower_keywords, rows))
        counts = [len(keywords) for keywords in distinct]
        flat = [keyword for keywords in distinct for keyword in keywords]
        self._postings = postings_of(flat, np.repeat(np.arange(len(rows)), counts))
        self._counts.extend(counts, len(rows))
        self._has_long = max(counts, default=0) >= _STEP
        behind, self._behind = self._behind, []
        for keywords in behind:
            self.append(keywords)

    def pad(self, count: int) -> None:
        """Add rows without keywords until there are `count`."""
        if count > len(self._waiting) + len(self._behind):
            self._index_waiting()
            self._counts.pad(count, 0)

    def codes(self, keywords: Collection[str], count: int) -> Codes:
        """Compute the codes of the first `count` rows for a query's keywords."""
        self._index_waiting()
        distinct = _lower_keywords(keywords)
        is_wide = self._has_long or len(distinct) >= _STEP
        step = _WIDE_STEP if is_wide else _STEP
        values: Any = self._counts.values[:count].astype(np.int64 if is_wide else np.uint16)
        for posting in filter(None, map(self._postings.get, distinct)):
            if not is_wide and len(posting) * _COMMON_SHARE > count:
                values += self._steps_of(posting, count)
            else:
                rows = posting.rows()
                values[rows[: rows.searchsorted(count)]] += step
        return Codes(values, step, len(distinct))

    def _steps_of(self, posting: Posting, count: int) -> Array:
        steps = self._steps.setdefault(posting.term, Column(np.uint16))
        begin = steps.count
        if begin < count:
            rows = posting.rows()
            steps.pad(count, 0)
            steps.values[rows[rows.searchsorted(begin) : rows.searchsorted(count)]] = _STEP
        return steps.values[:count]


def _lower_keywords(keywords: Iterable[str]) -> set[str]:
    return {keyword.lower() for keyword in keywords}
