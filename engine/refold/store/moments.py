"""The rows of a shelf as they are at one moment, for good: what is searched.

A moment is made of views of columns that are never changed under a reader, so any number of threads may search one,
whatever is written meanwhile.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from refold.limits import SELECTIONS_COUNT_MAX
from refold.store.columns import Array, Rows
from refold.store.postings import Codes, Postings
from refold.store.scoring import DAY_NS

if TYPE_CHECKING:
    from refold.store.graph import Graph

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
