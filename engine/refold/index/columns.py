"""Columns of numbers that grow, vectors of length 1, keyword postings, and the signals of the seed's score.

Who asks for a view gets the values as they are at that moment, for good: what is appended later lies behind the view,
and a change of a value that somebody may hold is made in a copy.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy
import numpy as np
from numpy.typing import DTypeLike, NDArray

from refold.errors import EmbeddingMismatch, InvalidInput
from refold.limits import LARGE_COLUMN_BYTES

# Columns that grow by doubling.


def grown(column: "NDArray[Any]", size: int, filler: float) -> "NDArray[Any]":
    """Return a column of at least ``size`` places with what it held; new places hold the filler."""
    if size <= len(column):
        return column
    import numpy  # noqa: PLC0415 - loads when the first row comes

    wider = numpy.full(max(size, 2 * len(column), 16), filler, dtype=column.dtype)
    wider[: len(column)] = column
    return wider


# Products of vectors, without warnings about numbers that are not among them. Pure.


def product(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the matrix product of finite numbers, in ``out`` where that is given.

    OpenBLAS has kernels that compute with what lies on their stack beyond the numbers, and throw that away: with rows
    of five numbers, signalling NaNs there raise the flag for invalid operations, and numpy warns of a right result.
    For vectors that were checked to be finite where they came in: a warning says nothing of them.

    >>> product(numpy.eye(2), numpy.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    with numpy.errstate(invalid="ignore"):
        found: NDArray[Any] = numpy.dot(left, right, out=out)
        return found


Array: TypeAlias = NDArray[Any]
"""Numbers of some kind; the column they are of says which."""

Rows: TypeAlias = NDArray[np.intp]
"""Places of rows. numpy takes this kind of integer without a copy."""

_CAPACITY_MIN: Final = 64


class Column:
    """One value for each row, or one line of values, with room for more."""

    __slots__ = ("_is_lent", "_values", "count")

    def __init__(self, kind: DTypeLike, width: int | None = None) -> None:
        shape = (_CAPACITY_MIN,) if width is None else (_CAPACITY_MIN, width)
        self._values: Array = np.empty(shape, kind)
        self._is_lent = False
        self.count = 0

    @property
    def nbytes(self) -> int:
        """Return what the rows take in RAM; the room behind them is not touched and takes none."""
        return self.count * self._values[:1].nbytes

    def view(self) -> Array:
        """Return the values as they are now and stay in this view."""
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
        """Give rows other values; views that were handed out keep theirs."""
        if self._is_lent:
            self._move(len(self._values))
        self._values[rows] = values

    def at(self, row: int) -> Any:
        """Return the value of one row."""
        return self._values[row]

    def _grow(self, count: int) -> None:
        """Move to twice the room, so that a row is copied once on average however many come.

        Where many came at once as well: the next one would have to wait until all are copied. The system gives so much
        room without RAM until it is touched.
        """
        is_large = count * self._values[:1].nbytes >= LARGE_COLUMN_BYTES
        self._move(2 * count if is_large else max(count, 2 * len(self._values)))

    def _move(self, room: int) -> None:
        """Go on in other memory; the room behind the rows stays untouched."""
        values: Array = np.empty((room, *self._values.shape[1:]), self._values.dtype)
        values[: self.count] = self._values[: self.count]
        self._values = values
        self._is_lent = False


# Vectors at the door: refused if no cosine can be computed with them, else made of length 1.


def normalised(vectors: Any, dimensions: int, *, count: int | None = None) -> Array:
    """Return vectors of length 1, one in each line; each the same whatever vectors are beside it.

    ``vectors`` are raw float32 bytes, an array, or sequences of numbers. Raises ``InvalidInput`` for what is no vector,
    not finite or zero, and for another ``count`` of them; ``EmbeddingMismatch`` for another dimension.
    """
    lines = _lines(vectors, dimensions)
    if len(lines) == 1:
        return _one(lines)
    if count is not None and len(lines) != count:
        raise InvalidInput(f"{len(lines)} vectors where {count} is asked for; give {count} of {dimensions} numbers")
    lengths = np.sqrt(np.sum(lines * lines, axis=1))
    # In double precision no square of a single overflows, so only what is not finite itself gives such a length.
    if not (lengths.min(initial=1.0) > 0.0 and lengths.max(initial=1.0) < np.inf):
        wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0.0)))
        length = lengths[wrong[0]]
        what = "is zero" if length == 0.0 else "holds a number that is not finite"
        raise InvalidInput(f"vector {wrong[0]} {what}; every vector needs a direction")
    units: Array = (lines / lengths[:, None]).astype(np.float32)
    return units


def _one(line: Array) -> Array:
    """Return one vector of length 1: as below, in fewer calls, because every search begins with it."""
    length = math.sqrt(np.add.reduce(line[0] * line[0]))
    if not 0.0 < length < math.inf:
        what = "is zero" if length == 0.0 else "holds a number that is not finite"
        raise InvalidInput(f"vector 0 {what}; every vector needs a direction")
    unit: Array = (line / length).astype(np.float32)
    return unit


def _lines(vectors: Any, dimensions: int) -> Array:
    """Return the vectors as lines of doubles."""
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


# Which rows have which keyword, and how many of a query's keywords each row has.

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


# What a score is made of: four signals, their weights, and how recency fades. Numbers in, numbers out.

DAY_NS: Final = 86_400_000_000_000

_RATE_MIN: Final = 1e-3
"""Below that, one over the rate is so many days that a single would lose too much of the others."""

SCORE_DECIMALS: Final = 9
"""Scores are rounded to so many digits, so that equal ones are equal however they were summed up."""


class Scoring(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of a score that is linear in its signals. A weight of 0 leaves its signal out."""

    cosine: float = 0.40
    keywords: float = 0.25
    importance: float = 0.20
    recency: float = 0.15
    fading: Literal["hyperbolic", "exponential"] = "hyperbolic"
    """``1 / (1 + rate * days)``, or ``exp(-rate * days)``."""
    rate: float = 0.1
    """How fast recency fades, per day."""

    def check(self) -> None:
        """Raise ``InvalidInput`` for weights that are not finite and for a rate below 0."""
        for name in ("cosine", "keywords", "importance", "recency", "rate"):
            value = getattr(self, name)
            if not math.isfinite(value):
                raise InvalidInput(f"the weight {name} of a score is {value}; give a finite number")
        if self.rate < 0:
            raise InvalidInput(f"the rate of a score's recency is {self.rate} per day; give 0 or more")


SEED: Final = Scoring()

NEAREST: Final = Scoring(cosine=1.0, keywords=0.0, importance=0.0, recency=0.0)
"""The cosine alone."""


def faded(scoring: Scoring, now_ns: int, accessed_ns: Sequence[int]) -> list[float]:
    """Return the recency of what was accessed at some times; what lies in the future counts as now."""
    days = [max(now_ns - time_ns, 0) / DAY_NS for time_ns in accessed_ns]
    if scoring.fading == "hyperbolic":
        return [1.0 / (1.0 + scoring.rate * day) for day in days]
    return [math.exp(-scoring.rate * day) for day in days]


def add_recency(
    totals: Array,
    scoring: Scoring,
    now_days: float,
    days: Array,
    scratch: Array,
    *,
    has_future: bool,
) -> None:
    """Add the weighted recency of rows to their totals, in single precision: as few passes as there can be."""
    if not has_future and scoring.fading == "hyperbolic" and scoring.rate >= _RATE_MIN:
        # weight / (1 + rate * (now - days)), with two passes less.
        np.subtract(np.float32(now_days + 1.0 / scoring.rate), days, out=scratch)
        np.divide(np.float32(scoring.recency / scoring.rate), scratch, out=scratch)
        np.add(totals, scratch, out=totals)
        return
    np.subtract(np.float32(now_days), days, out=scratch)
    if has_future:
        np.maximum(scratch, np.float32(0.0), out=scratch)
    if scoring.fading == "exponential":
        np.multiply(scratch, np.float32(-scoring.rate), out=scratch)
        np.exp(scratch, out=scratch)
        np.multiply(scratch, np.float32(scoring.recency), out=scratch)
    else:
        np.multiply(scratch, np.float32(scoring.rate), out=scratch)
        np.add(scratch, np.float32(1.0), out=scratch)
        np.divide(np.float32(scoring.recency), scratch, out=scratch)
    np.add(totals, scratch, out=totals)


@lru_cache(maxsize=64)
def _errors(scoring: Scoring, dimensions: int) -> tuple[float, float]:
    epsilon = float(np.finfo(np.float32).eps)
    product = abs(scoring.cosine) * (16 + dimensions / 16)
    others = 8 * (abs(scoring.keywords) + abs(scoring.importance) + abs(scoring.recency))
    fixed = epsilon * (product + others) + 10.0**-SCORE_DECIMALS
    return fixed, epsilon * abs(scoring.recency) * (2 * scoring.rate + 2 * _RATE_MIN)


def margin(scoring: Scoring, dimensions: int, span_days: float, extra: float) -> float:
    """Return by how much a total in single precision may differ from the score, at most.

    A product of unit vectors is off by what its partial sums lose; a day by what a single holds of the largest one.
    """
    fixed, daily = _errors(scoring, dimensions)
    return fixed + daily * span_days + 1e-6 * extra


# The rows of a shelf as they are at one moment, for good: what is searched.
#
# A moment is made of views of columns that are never changed under a reader, so any number of threads may search one,
# whatever is written meanwhile.


class Frame(NamedTuple):
    """The columns of a moment, of one length."""

    matrix: Array
    """float32, each line of length 1."""
    born: Array
    """int64, in order."""
    categories: Array
    alive: Array
    importance: Array
    """float64."""
    accessed: Array
    """int64."""
    statuses: Array
    days: Array
    """float32: when a row was last accessed, in days since the epoch of the shelf: what a pass over all rows reads."""
    orders: Array
    """int64: of rows with equal scores and importance the one with the lower number is found first."""
    sources: Array
    """int64: the seq of the event that carries a row's vector: what a packed graph names a row by."""
