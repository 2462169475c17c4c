"""All columns of a shelf: rows are added, changed and marked as gone. The shelf holds its lock for each call."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from refold.errors import InvalidInput
from refold.limits import STATUSES_COUNT_MAX, VECTOR_ROWS_MAX
from refold.store.columns import Array, Column, Rows
from refold.store.moments import Frame
from refold.store.postings import Postings
from refold.store.scoring import DAY_NS

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
            message = f"{count} vectors with {len(keywords)} lists of keywords; give one for each row, in order of seqs"
            raise InvalidInput(message)
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
            message = f"status {status!r} is one more than STATUSES_COUNT_MAX ({STATUSES_COUNT_MAX}); use another one"
            raise InvalidInput(message)
        return self.status_ids.setdefault(status, len(self.status_ids))

    def _check(self, seq: int, count: int) -> None:
        last = int(self.columns["born"].at(self.count - 1)) if self.count else 0
        if seq < last or self.count + count > VECTOR_ROWS_MAX:
            message = (
                f"{count} rows from seq {seq} on, where {self.count} stand up to seq {last}; "
                f"rows come in the order of their seqs, VECTOR_ROWS_MAX ({VECTOR_ROWS_MAX}) at most"
            )
            raise InvalidInput(message)


def broadcast(values: Any, kind: Any, count: int) -> Array:
    """Return a value for each row; raises ``InvalidInput`` if there are neither that many nor one."""
    column = np.asarray(values, kind).reshape(-1)
    if len(column) not in {1, count} or not count:
        message = f"a column of {len(column)} values for {count} rows; give one for each, or one for all"
        raise InvalidInput(message)
    return np.broadcast_to(column, count)
