"""Rows of a project: all its columns as they grow, and as they are at one moment, which is searched."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from refold.errors import InvalidInput
from refold.index.columns import DAY_NS, Array, Codes, Column, Frame, Postings, Rows
from refold.limits import SELECTIONS_COUNT_MAX, STATUSES_COUNT_MAX, VECTOR_ROWS_MAX

if TYPE_CHECKING:
    from refold.index.hnsw import Graph


# The rows of a shelf as they are at one moment, for good: what is searched.
#
# A moment is made of views of columns that are never changed under a reader, so any number of threads may search one,
# whatever is written meanwhile.

EXCLUDED_SHARE: Final = 8
"""If more than one of so many rows is filtered out, the others are listed: a partition of many equal values is slow."""


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows may be found; ``None`` filters nothing."""

    categories: tuple[str, ...] | None = None
    statuses: tuple[str, ...] | None = ("active",)
    min_importance: float | None = None
    rows: Any = None
    """Only these rows, as an array of their places: how a caller filters by what is not known here."""


EVERYTHING: Final = Filters()


class Shared(NamedTuple):
    """What all moments of a shelf have in common; it only grows."""

    lock: threading.RLock
    postings: Postings
    category_ids: Mapping[str, int]
    status_ids: Mapping[str, int]
    epoch_ns: int


class Selection(NamedTuple):
    """The rows that a filter leaves, and their columns."""

    rows: Rows | None
    """``None`` where all rows are passed over and the few others have a weighted importance of minus infinity."""
    importance: Array
    """Already weighted."""
    days: Array


class Moment:
    """Rows that never change; ``graph`` speeds up looking for near ones, if there is one for them."""

    __slots__ = ("_alive_count", "_latest_days", "_selections", "_span_days", "count", "frame", "graph", "shared")

    def __init__(self, frame: Frame, shared: Shared, graph: "Graph | None" = None) -> None:
        self.frame = frame
        self.shared = shared
        self.graph = graph
        self.count = len(frame.born)
        self._selections: dict[tuple[Any, ...], Selection] = {}
        self._span_days: float | None = None
        self._latest_days: float | None = None
        self._alive_count: int | None = None

    @property
    def alive_count(self) -> int:
        """Return how many rows are alive."""
        if self._alive_count is None:
            self._alive_count = int(np.count_nonzero(self.frame.alive))
        return self._alive_count

    @property
    def latest_days(self) -> float:
        """Return when a row was last accessed, in days since the epoch of the shelf, rounded up."""
        if self._latest_days is None:
            latest = self.frame.days.max(initial=-np.inf)
            self._latest_days = float(np.nextafter(latest, np.float32(np.inf)))
        return self._latest_days

    @property
    def span_days(self) -> float:
        """Return how far from the epoch the farthest access of a row lies."""
        if self._span_days is None:
            self._span_days = float(np.abs(self.frame.days).max(initial=0.0))
        return self._span_days

    def days(self, now_ns: int) -> float:
        """Return a time in days since the epoch of the shelf."""
        return (now_ns - self.shared.epoch_ns) / DAY_NS

    def codes(self, keywords: Sequence[str]) -> Codes:
        """Return for every row how many keywords it has, and how many of the given ones."""
        with self.shared.lock:
            return self.shared.postings.codes(keywords, self.count)

    def selection(self, filters: Filters, weight: float) -> Selection:
        """Return the rows that filters leave, their importance weighted; kept for those who ask again."""
        if filters.rows is not None:
            return self._select(filters, weight)
        key = (filters.categories, filters.statuses, filters.min_importance, weight)
        found = self._selections.get(key)
        if found is None:
            found = self._select(filters, weight)
            if len(self._selections) >= SELECTIONS_COUNT_MAX:
                self._selections = {}
            self._selections[key] = found
        return found

    def mask(self, filters: Filters, rows: Any = slice(None)) -> Array:
        """Return for every row, or for some, whether it may be found."""
        frame, shared = self.frame, self.shared
        found: Array = frame.alive[rows]
        if filters.statuses is not None:
            found = found & _among(frame.statuses[rows], filters.statuses, shared.status_ids)
        if filters.categories is not None:
            found = found & _among(frame.categories[rows], filters.categories, shared.category_ids)
        if filters.min_importance is not None:
            found = found & (frame.importance[rows] >= filters.min_importance)
        if filters.rows is not None:
            listed: Array = np.zeros(self.count, np.bool_)
            listed[filters.rows] = True
            found = found & listed[rows]
        return found

    def _select(self, filters: Filters, weight: float) -> Selection:
        found = self.mask(filters)
        count = int(np.count_nonzero(found))
        importance = (weight * self.frame.importance).astype(np.float32)
        if (self.count - count) * EXCLUDED_SHARE > self.count:
            rows = np.flatnonzero(found)
            return Selection(rows, importance[rows], self.frame.days[rows])
        if count < self.count:
            importance[~found] = -np.inf
        return Selection(None, importance, self.frame.days)


def _among(values: Array, names: Sequence[str], ids: Mapping[str, int]) -> Array:
    """Return for every value whether it stands for one of the names."""
    numbers = [ids[name] for name in names if name in ids]
    if not numbers:
        return np.zeros(len(values), np.bool_)
    found: Array = values == numbers[0]
    for number in numbers[1:]:
        found |= values == number
    return found


FOREVER: Final = 2**63 - 1
"""The seq at which a row goes that is alive."""


class RowTable:
    """The columns of all rows, by name, and their keywords."""

    def __init__(self, dimensions: int) -> None:
        self.columns: dict[str, Column] = {
            "matrix": Column(np.float32, dimensions),
            "born": Column(np.int64),
            "died": Column(np.int64),
            "changed": Column(np.int64),
            "alive": Column(np.bool_),
            "importance": Column(np.float64),
            "accessed": Column(np.int64),
            "days": Column(np.float32),
            "statuses": Column(np.uint8),
            "categories": Column(np.int32),
            "orders": Column(np.int64),
            "sources": Column(np.int64),
        }
        self.status_ids: dict[str, int] = {}
        self.category_ids: dict[str, int] = {}
        self.postings = Postings()
        self._epoch_ns: int | None = None

    @property
    def count(self) -> int:
        """Return how many rows there are."""
        return self.columns["born"].count

    @property
    def nbytes(self) -> int:
        """Return about what the rows take in RAM."""
        return sum(column.nbytes for column in self.columns.values()) + self.postings.nbytes

    @property
    def epoch_ns(self) -> int:
        """Return the time that days count from: that of the first row's access."""
        return self._epoch_ns or 0

    def view(self, name: str) -> Array:
        """Return a column as it is now."""
        return self.columns[name].view()

    def frame(self) -> Frame:
        """Return the columns that are searched, as they are now."""
        return Frame(**{name: self.view(name) for name in Frame._fields})

    def add(
        self,
        seq: int,
        unit: Array,
        *,
        category: str,
        keywords: Iterable[str],
        importance: float,
        accessed_ns: int,
        status: str,
        order: int | None = None,
        source: int | None = None,
    ) -> int:
        """Add a row with a vector of length 1 and return its place."""
        row = self.count
        self._check(seq, 1)
        status_id = self.status_id(status)
        if self._epoch_ns is None:
            self._epoch_ns = accessed_ns
        values = {
            "matrix": unit,
            "born": seq,
            "died": FOREVER,
            "changed": seq,
            "alive": True,
            "importance": importance,
            "accessed": accessed_ns,
            "days": (accessed_ns - self._epoch_ns) / DAY_NS,
            "statuses": status_id,
            "categories": self.category_ids.setdefault(category, len(self.category_ids)),
            "orders": row if order is None else order,
            "sources": seq if source is None else source,
        }
        for name, column in self.columns.items():
            column.append(values[name])
        self.postings.append(keywords)
        return row

    def extend(
        self,
        seqs: Any,
        units: Array,
        *,
        categories: Sequence[str],
        keywords: Sequence[Iterable[str]],
        importance: Any,
        accessed_ns: Any,
        statuses: Sequence[str],
        orders: Any = None,
        sources: Any = None,
    ) -> Rows:
        """Add rows with vectors of length 1 and return their places."""
        begin, count = self.count, len(units)
        born = broadcast(seqs, np.int64, count)
        times = broadcast(accessed_ns, np.int64, count)
        weights = broadcast(importance, np.float64, count)
        if len(keywords) not in {0, count} or (np.diff(born) < 0).any():
            raise InvalidInput(
                f"{count} vectors with {len(keywords)} lists of keywords; give one for each row, in order of seqs"
            )
        self._check(int(born[0]), count)
        status_ids = broadcast([self.status_id(status) for status in statuses], np.uint8, count)
        ids = [self.category_ids.setdefault(name, len(self.category_ids)) for name in categories]
        category_ids = broadcast(ids, np.int32, count)
        if self._epoch_ns is None:
            self._epoch_ns = int(times[0])
        values = {
            "matrix": units,
            "born": born,
            "died": FOREVER,
            "changed": born,
            "alive": True,
            "importance": weights,
            "accessed": times,
            "days": self.days_of(times),
            "statuses": status_ids,
            "categories": category_ids,
            "orders": np.arange(begin, begin + count) if orders is None else broadcast(orders, np.int64, count),
            "sources": born if sources is None else broadcast(sources, np.int64, count),
        }
        for name, column in self.columns.items():
            column.extend(values[name], count)
        self.postings.extend(keywords, count)
        return np.arange(begin, begin + count)

    def remove(self, seq: int, rows: Any) -> bool:
        """Let rows go at a seq, and return whether one of them was there still."""
        places = np.atleast_1d(np.asarray(rows, np.intp))
        going = places[self.view("alive")[places]]
        if not len(going):
            return False
        self.columns["died"].change(going, seq)
        self.columns["alive"].change(going, values=False)
        return True

    def change(self, seq: int, rows: Any, *, importance: Any, accessed_ns: Any, status: str | None) -> None:
        """Give rows other values at a seq; what is ``None`` stays."""
        places = np.atleast_1d(np.asarray(rows, np.intp))
        values: dict[str, Any] = {"changed": seq}
        if importance is not None:
            values["importance"] = broadcast(importance, np.float64, len(places))
        if accessed_ns is not None:
            values["accessed"] = broadcast(accessed_ns, np.int64, len(places))
            values["days"] = self.days_of(values["accessed"])
        if status is not None:
            values["statuses"] = self.status_id(status)
        for name, changed in values.items():
            self.columns[name].change(places, changed)

    def of(self, rows: Rows) -> "RowTable":
        """Return other columns that hold some rows alone, in their order."""
        other = RowTable(self.columns["matrix"].view().shape[1])
        for name, column in self.columns.items():
            other.columns[name].extend(column.view()[rows], len(rows))
        other.status_ids.update(self.status_ids)
        other.category_ids.update(self.category_ids)
        other.postings = self.postings.of(rows)
        other._epoch_ns = self._epoch_ns
        return other

    def days_of(self, times: Array) -> Array:
        """Return times in days since the epoch."""
        days: Array = (times - self.epoch_ns) / DAY_NS
        return days

    def status_id(self, status: str) -> int:
        """Return the number of a status; raises ``InvalidInput`` if it is one too many."""
        if status not in self.status_ids and len(self.status_ids) == STATUSES_COUNT_MAX:
            raise InvalidInput(
                f"status {status!r} is one more than STATUSES_COUNT_MAX ({STATUSES_COUNT_MAX}); use another one"
            )
        return self.status_ids.setdefault(status, len(self.status_ids))

    def _check(self, seq: int, count: int) -> None:
        last = int(self.columns["born"].at(self.count - 1)) if self.count else 0
        if seq < last or self.count + count > VECTOR_ROWS_MAX:
            raise InvalidInput(
                f"{count} rows from seq {seq} on, where {self.count} stand up to seq {last}; "
                f"rows come in the order of their seqs, VECTOR_ROWS_MAX ({VECTOR_ROWS_MAX}) at most"
            )


def broadcast(values: Any, kind: Any, count: int) -> Array:
    """Return a value for each row; raises ``InvalidInput`` if there are neither that many nor one."""
    column = np.asarray(values, kind).reshape(-1)
    if len(column) not in {1, count} or not count:
        raise InvalidInput(f"a column of {len(column)} values for {count} rows; give one for each, or one for all")
    return np.broadcast_to(column, count)
