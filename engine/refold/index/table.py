"""A table of vectors, one per row, its views, and the graph that it builds if that pays.

A row is added once, at a seq, and its number is never reused. Rows are therefore ordered by the seqs of their births,
and a search as of a seq is a search in the first rows. Importance, access, status and whether a row is alive have the
seq of their last change. All of it is a cache, filled from the log.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np

from refold.errors import InvalidInput, logger
from refold.index import hnsw
from refold.index import short as shorts
from refold.index.columns import DAY_NS, Array, Codes, Column, Keywords, Rows, normalise, product
from refold.index.hnsw import Graph, build, library
from refold.index.packed import refuse
from refold.index.ranking import Filter
from refold.index.short import ShortRows
from refold.limits import VECTOR_DIMENSIONS_MAX
from refold.threads import Worker

ROWS_MAX: Final = 2**31
STATUSES_MAX: Final = 255
_FOREVER: Final = 2**63 - 1  # The seq of death of a row that is alive.
_SELECTIONS_MAX: Final = 16  # Filters whose rows are cached for later searches.
# If more than one row in this many is filtered out, the others are listed: partitioning many equal values is slow.
_EXCLUDED_SHARE: Final = 8


class Vocabulary:
    """State that all views of a table share; it only grows."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.keywords = Keywords()
        self.category_ids: dict[str, int] = {}
        self.status_ids: dict[str, int] = {}
        self.epoch_ns: int | None = None  # The epoch from which days are counted: the access time of the first row.


class TableColumns(NamedTuple):
    """The columns that are searched, all of the same length."""

    matrix: Array  # float32, each line of length 1.
    born: Array  # int64, in order.
    categories: Array
    alive: Array
    importance: Array  # float64.
    accessed: Array  # int64.
    statuses: Array
    days: Array  # float32: a row's last access, in days since the epoch; a pass over all rows reads these.
    orders: Array  # int64: orders rows with equal scores and importance; the lower number comes first.
    sources: Array  # int64: the seq of the event that carries a row's vector; it identifies the row in a packed graph.


class RowSelection(NamedTuple):
    """The rows that pass a filter, and their columns."""

    rows: Rows | None
    """`None` for a pass over all rows, in which the few excluded rows have a weighted importance of minus infinity."""
    importance: Array  # Already weighted.
    days: Array


class TableView:
    """An immutable view of a table's rows, which any number of threads can search.

    `graph`, if there is one for these rows, speeds up the search for near rows.
    """

    def __init__(self, columns: TableColumns, vocabulary: Vocabulary, graph: Graph | None = None) -> None:
        self.columns = columns
        self.vocabulary = vocabulary
        self.graph = graph
        self.count = len(columns.born)
        self._selections: dict[tuple[Any, ...], RowSelection] = {}

    @cached_property
    def alive_count(self) -> int:
        """The number of rows that are alive."""
        return int(np.count_nonzero(self.columns.alive))

    @cached_property
    def latest_days(self) -> float:
        """The last access of any row, in days since the epoch, rounded up."""
        return float(np.nextafter(self.columns.days.max(initial=-np.inf), np.float32(np.inf)))

    @cached_property
    def span_days(self) -> float:
        """The distance of the farthest access from the epoch, in days."""
        return float(np.abs(self.columns.days).max(initial=0.0))

    def days(self, now_ns: int) -> float:
        """Convert a time to days since the epoch."""
        return (now_ns - (self.vocabulary.epoch_ns or 0)) / DAY_NS

    def codes(self, keywords: Sequence[str]) -> Codes:
        """Compute for every row the number of its keywords, and how many of them are among the given ones."""
        with self.vocabulary.lock:
            return self.vocabulary.keywords.codes(keywords, self.count)

    def select(self, chosen: Filter, weight: float) -> RowSelection:
        """Return the rows that pass a filter, with weighted importance; cached unless the filter lists rows."""
        if chosen.rows is not None:
            return self._select(chosen, weight)
        key = (chosen.categories, chosen.statuses, chosen.min_importance, weight)
        selection = self._selections.get(key)
        if selection is None:
            selection = self._select(chosen, weight)
            if len(self._selections) >= _SELECTIONS_MAX:
                self._selections = {}
            self._selections[key] = selection
        return selection

    def mask(self, chosen: Filter, rows: Any = slice(None)) -> Array:
        """Return the mask of `rows`, by default all rows, that a filter allows."""
        columns, vocabulary = self.columns, self.vocabulary
        allowed: Array = columns.alive[rows]
        if chosen.statuses is not None:
            allowed = allowed & _is_any(columns.statuses[rows], chosen.statuses, vocabulary.status_ids)
        if chosen.categories is not None:
            allowed = allowed & _is_any(columns.categories[rows], chosen.categories, vocabulary.category_ids)
        if chosen.min_importance:
            allowed = allowed & (columns.importance[rows] >= chosen.min_importance)
        if chosen.rows is not None:
            listed: Array = np.zeros(self.count, np.bool_)
            listed[chosen.rows] = True
            allowed = allowed & listed[rows]
        return allowed

    def _select(self, chosen: Filter, weight: float) -> RowSelection:
        allowed = self.mask(chosen)
        count = int(np.count_nonzero(allowed))
        importance = (weight * self.columns.importance).astype(np.float32)
        if (self.count - count) * _EXCLUDED_SHARE > self.count:
            rows = np.flatnonzero(allowed)
            return RowSelection(rows, importance[rows], self.columns.days[rows])
        if count < self.count:
            importance[~allowed] = -np.inf
        return RowSelection(None, importance, self.columns.days)


def _is_any(values: Array, names: Sequence[str], ids: dict[str, int]) -> Array:
    matches: Array = np.zeros(len(values), np.bool_)
    for name in names:
        if name in ids:
            matches |= values == ids[name]
    return matches


# When a table gets a graph, when it gets a new one, and the thread that builds it.

# The number of rows behind a graph at which it is extended, or a twentieth of the graph's rows if that is more.
GRAPH_FRESH_ROWS_MIN: Final = 2_000
_FRESH_SHARE: Final = 20
# The maximum share of a graph's rows that are gone before it is rebuilt; gone rows cost time while they are in it.
_GRAPH_GONE_RATIO_MAX: Final = 0.25
_CALIBRATED_ROWS_MIN: Final = 2_048  # With fewer rows no graph is worth its cost on any machine.
# The time to ask a graph for the nearest rows; the graph replaces passes over all rows that take longer.
_NEAREST_NS: Final = 100_000
_HYBRID_NS: Final = 1_500_000  # The time of an approximate search for the best scores.
_TIMINGS: Final = 3


class Crossover(NamedTuple):
    """The number of rows from which a graph is faster than a pass over all of them."""

    nearest_rows: int
    hybrid_rows: int

    def least(self, *, is_hybrid: bool) -> int:
        """Return the number for a hybrid search, or for one by cosine alone."""
        return self.hybrid_rows if is_hybrid else self.nearest_rows


def measure(view: TableView) -> Crossover:
    """Time one product with all rows, and return the crossover of this machine for rows like these."""
    matrix = view.columns.matrix
    times: list[int] = []
    for _ in range(_TIMINGS):
        begin = time.perf_counter_ns()
        product(matrix, matrix[0])
        times.append(time.perf_counter_ns() - begin)
    row_ns = max(min(times) / len(matrix), 0.01)
    return Crossover(
        max(_CALIBRATED_ROWS_MIN, round(_NEAREST_NS / row_ns)),
        max(2 * _CALIBRATED_ROWS_MIN, round(_HYBRID_NS / row_ns)),
    )


class GraphBuilder:
    """The graph of a table, and the one thread that builds the next one while the table is in use.

    A graph is built when a search would benefit from it, extended when many rows were added, and rebuilt when many of
    its rows are gone.
    """

    def __init__(
        self,
        lock: threading.RLock,
        view: Callable[[], TableView],
        on_change: Callable[[], None],
        crossover: Crossover | None,
    ) -> None:
        self._lock = lock
        self._view = view
        self._on_change = on_change
        self.fixed = crossover
        self._crossover: Crossover | None = None
        self._calibrated_count = 0
        self._uses = {True: False, False: False}  # Whether the graph is in use, for hybrid searches and for others.
        self._thread: Worker | None = None
        self._is_closed = False
        self._refused_count = 0
        """The number of rows when a graph last proved not worth having; at twice as many it is tried again."""
        self.graph: Graph | None = None
        self.builds_count = 0

    def should_use_graph(self, view: TableView, *, is_hybrid: bool) -> bool:
        """Decide whether to search with the view's graph; if it is missing or old, start to build another."""
        if self._is_closed:
            return False
        floor = self.fixed.least(is_hybrid=is_hybrid) if self.fixed is not None else _CALIBRATED_ROWS_MIN
        count = view.alive_count if 2 * view.count >= floor else 0
        if 2 * count < floor:
            self._uses[is_hybrid] = False
            return False
        bounds = self.fixed
        if bounds is None:
            if self._crossover is None or view.count >= 2 * self._calibrated_count:
                self._crossover, self._calibrated_count = measure(view), view.count
            bounds = self._crossover
        least = bounds.least(is_hybrid=is_hybrid)
        # Once in use, a graph stays in use until the rows fall below half of the crossover, so that it is not built for
        # every second search.
        self._uses[is_hybrid] = count >= least or (self._uses[is_hybrid] and 2 * count >= least)
        if self._uses[is_hybrid] and view is self._view():
            self._start_build(view)
        return self._uses[is_hybrid] and view.graph is not None

    def _start_build(self, view: TableView) -> None:
        if (self._thread is not None and not self._thread.is_over) or view.count < 2 * self._refused_count:
            return
        base = view.graph
        if base is not None:
            gone = base.row_count - int(np.count_nonzero(view.columns.alive[: base.end]))
            is_worn = gone > _GRAPH_GONE_RATIO_MAX * base.row_count
            if not is_worn and view.count - base.end <= max(GRAPH_FRESH_ROWS_MIN, base.row_count // _FRESH_SHARE):
                return
            base = None if is_worn else base
        if library() is None:
            self._refused_count = view.count
            return
        with self._lock:
            if (self._thread is None or self._thread.is_over) and not self._is_closed:
                # Not a daemon: killing a thread inside a library can crash the process.
                self._thread = Worker(partial(self._build, view, base), "refold-graph", daemon=False)
                self._thread.start()

    def _build(self, view: TableView, base: Graph | None) -> None:
        graph = None
        try:
            graph = build(view.columns.matrix, view.columns.alive, base, self._is_needed)
        except (MemoryError, RuntimeError):
            logger().exception("a graph of %d rows could not be built; searches pass over all rows", view.count)
        finally:
            with self._lock:
                self._thread = None
                if graph is None:
                    self._refused_count = view.count
                elif not self._is_closed:
                    self.put(graph)

    def _is_needed(self) -> bool:
        return not self._is_closed and threading.main_thread().is_alive()

    def put(self, graph: Graph) -> None:
        """Use a graph in searches from now on; the caller holds the lock."""
        self.graph = graph
        self.builds_count += 1
        self._on_change()

    def wait(self) -> None:
        """Wait until no graph is being built."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Stop building, and release graph and table; the vectors leave RAM with their last user."""
        with self._lock:
            self._is_closed = True
        self.wait()
        with self._lock:
            self.graph = None
            self._on_change()
            # Breaks a reference cycle, which might not be collected for long, because the collector does not count
            # arrays.
            self._view, self._on_change = _raise_closed, lambda: None


def _raise_closed() -> TableView:
    raise AssertionError("a closed table has no graph to keep up")


class PastValues(NamedTuple):
    """Columns of some rows as of an earlier time, all of the same length."""

    rows: Any
    importance: Any
    accessed_ns: Any
    statuses: Sequence[str]


_PACKED: Final = ("matrix", "alive", "importance", "accessed", "statuses", "categories", "orders", "sources")


class VectorTable:
    """The rows of one project and one embedder; one thread at a time can write, any number can search.

    `since` is the seq from which the table has every row: it is filled with the rows alive then, and gets every later
    change. `crossover` fixes the number of rows from which a graph is used; without it, that number is measured. Close
    the table, because it might have a thread that builds a graph.
    """

    def __init__(
        self, dimensions: int, model: str, *, since: int = 0, crossover: Crossover | None = None, name: str = ""
    ) -> None:
        if not 0 < dimensions <= VECTOR_DIMENSIONS_MAX:
            raise InvalidInput(
                f"vectors of {dimensions} numbers; give 1 to VECTOR_DIMENSIONS_MAX ({VECTOR_DIMENSIONS_MAX})"
            )
        self.dimensions = dimensions
        self.model = model
        self.name = name or model  # The name that a packed graph carries.
        self.since = since
        self._columns = {
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
        self._vocabulary = Vocabulary()
        self.lock = self._vocabulary.lock
        self._latest: TableView | None = None
        self._short: ShortRows | None = None
        self.builder = GraphBuilder(self.lock, self.view, self._drop_view, crossover)

    def _drop_view(self) -> None:
        self._latest = None

    def __len__(self) -> int:
        return self._columns["born"].count

    @property
    def nbytes(self) -> int:
        """Approximate bytes in RAM."""
        with self.lock:
            graph = self.builder.graph
            own = sum(column.nbytes for column in self._columns.values()) + self._vocabulary.keywords.nbytes
            own += 0 if self._short is None else self._short.nbytes
            return own + (0 if graph is None else graph.nbytes)

    @property
    def parts_count(self) -> int:
        """The number of graphs built, plus one if rows were shortened; each of these changes the RAM in use."""
        return self.builder.builds_count + (self._short is not None)

    # Packing.

    def pack(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return all rows as values and arrays."""
        with self.lock:
            columns, vocabulary = self.view().columns, self._vocabulary
            values = {
                "name": self.name,
                "dimensions": self.dimensions,
                "epoch_ns": vocabulary.epoch_ns,
                "categories": list(vocabulary.category_ids),
                "statuses": list(vocabulary.status_ids),
            }
            return values, {name: getattr(columns, name) for name in _PACKED}

    def unpack(self, values: Mapping[str, Any], arrays: Mapping[str, Array], keywords: Sequence[Iterable[str]]) -> None:
        """Fill the empty table with packed rows and their keywords; each row counts as born at `since`.

        Raises `UnfitRows` for rows of other vectors, and unless the arguments are the result of `pack`.
        """
        if (values["name"], values["dimensions"]) != (self.name, self.dimensions):
            refuse(f"its vectors are {values['name']!r} of {values['dimensions']} numbers")
        columns = {name: arrays[name] for name in _PACKED}
        count = len(columns["sources"])
        if columns["matrix"].shape != (count, self.dimensions) or {len(array) for array in columns.values()} != {count}:
            refuse("its columns have other rows")
        for name in ("categories", "statuses"):
            if count and not 0 <= int(columns[name].min()) <= int(columns[name].max()) < len(values[name]):
                refuse(f"its {name} have no name")
        vocabulary = self._vocabulary
        with self.lock:
            vocabulary.category_ids = {name: number for number, name in enumerate(values["categories"])}
            vocabulary.status_ids = {name: number for number, name in enumerate(values["statuses"])}
            vocabulary.epoch_ns = values["epoch_ns"]
            for name, array in columns.items():
                self._columns[name] = Column.of(array)
            self._columns["born"].extend(self.since, count)
            self._columns["changed"].extend(self.since, count)
            self._columns["died"].extend(np.where(columns["alive"], _FOREVER, self.since), count)
            self._columns["days"].extend(self._days_of(columns["accessed"]), count)
            vocabulary.keywords.extend(keywords)
            self._latest = None

    # Writing.

    def add(
        self,
        seq: int,
        vector: Any,
        *,
        category: str,
        keywords: Iterable[str] = (),
        importance: float,
        accessed_ns: int,
        status: str = "active",
        order: int | None = None,
        source: int | None = None,
        is_unit: bool = False,
    ) -> int:
        """Add a row and return its number; `vector` is an array, a sequence, or raw float32.

        Of rows with equal scores and importance, the row with the lower `order` comes first; by default it is the row's
        number. `source` is the seq of the event that carries the vector, if that is not `seq`; with `is_unit`, the
        vector is an array of length 1.

        Raises `InvalidInput` for a vector that is zero or not finite and for a seq before the last row's;
        `EmbeddingMismatch` for a vector of another dimension. Nothing is changed then.
        """
        unit = vector if is_unit else normalise(vector, self.dimensions, count=1)[0]
        with self.lock:
            row, vocabulary = len(self), self._vocabulary
            self._check_order(seq, 1)
            status_id = self._status_id(status)
            if vocabulary.epoch_ns is None:
                vocabulary.epoch_ns = accessed_ns
            values = {
                "matrix": unit,
                "born": seq,
                "died": _FOREVER,
                "changed": seq,
                "alive": True,
                "importance": importance,
                "accessed": accessed_ns,
                "days": (accessed_ns - vocabulary.epoch_ns) / DAY_NS,
                "statuses": status_id,
                "categories": vocabulary.category_ids.setdefault(category, len(vocabulary.category_ids)),
                "orders": row if order is None else order,
                "sources": seq if source is None else source,
            }
            for name, column in self._columns.items():
                column.append(values[name])
            vocabulary.keywords.append(keywords)
            self._latest = None
            return row

    def extend(
        self,
        seqs: Any,
        vectors: Any,
        *,
        categories: Sequence[str],
        keywords: Sequence[Iterable[str]] = (),
        importance: Any,
        accessed_ns: Any,
        statuses: Sequence[str] = ("active",),
        orders: Any = None,
        sources: Any = None,
        are_units: bool = False,
    ) -> Rows:
        """Add many rows in the order of their seqs and return their numbers; a column of one value applies to all rows.

        With `are_units`, `vectors` is an array of vectors of length 1. Raises the errors of `add`; nothing is changed
        then.
        """
        units = vectors if are_units else normalise(vectors, self.dimensions)
        with self.lock:
            begin, count, vocabulary = len(self), len(units), self._vocabulary
            born = _broadcast(seqs, np.int64, count)
            times = _broadcast(accessed_ns, np.int64, count)
            weights = _broadcast(importance, np.float64, count)
            if len(keywords) not in {0, count} or (np.diff(born) < 0).any():
                raise InvalidInput(
                    f"{count} vectors with {len(keywords)} lists of keywords; give one for each row, in order of seqs"
                )
            self._check_order(int(born[0]), count)
            status_ids = _broadcast([self._status_id(status) for status in statuses], np.uint8, count)
            known = vocabulary.category_ids
            category_ids = _broadcast([known.setdefault(name, len(known)) for name in categories], np.int32, count)
            if vocabulary.epoch_ns is None:
                vocabulary.epoch_ns = int(times[0])
            values = {
                "matrix": units,
                "born": born,
                "died": _FOREVER,
                "changed": born,
                "alive": True,
                "importance": weights,
                "accessed": times,
                "days": self._days_of(times),
                "statuses": status_ids,
                "categories": category_ids,
                "orders": np.arange(begin, begin + count) if orders is None else _broadcast(orders, np.int64, count),
                "sources": born if sources is None else _broadcast(sources, np.int64, count),
            }
            for name, column in self._columns.items():
                column.extend(values[name], count)
            vocabulary.keywords.extend(keywords)
            vocabulary.keywords.pad(begin + count)
            self._latest = None
            return np.arange(begin, begin + count)

    def remove(self, seq: int, rows: Any) -> None:
        """Mark rows as dead from a seq on; rows that are already dead stay unchanged."""
        with self.lock:
            places = np.atleast_1d(np.asarray(rows, np.intp))
            going = places[self._columns["alive"].values[places]]
            if len(going):
                self._columns["died"].change(going, seq)
                self._columns["alive"].change(going, values=False)
                self._latest = None

    def change(
        self, seq: int, rows: Any, *, importance: Any = None, accessed_ns: Any = None, status: str | None = None
    ) -> None:
        """Change the importance, access or status of rows at a seq: one value for all, or one for each."""
        with self.lock:
            places = np.atleast_1d(np.asarray(rows, np.intp))
            values: dict[str, Any] = {"changed": seq}
            if importance is not None:
                values["importance"] = _broadcast(importance, np.float64, len(places))
            if accessed_ns is not None:
                values["accessed"] = _broadcast(accessed_ns, np.int64, len(places))
                values["days"] = self._days_of(values["accessed"])
            if status is not None:
                values["statuses"] = self._status_id(status)
            for name, changed in values.items():
                self._columns[name].change(places, changed)
            self._latest = None

    def vector_of(self, row: int) -> tuple[Array, int]:
        """Return the vector of a row, of length 1, and the seq of the event that carries it."""
        with self.lock:
            return self._columns["matrix"].values[row].copy(), int(self._columns["sources"].values[row])

    def sources(self) -> Array:
        """Return for each row the seq of the event that carries its vector."""
        with self.lock:
            return self._columns["sources"].view()

    def _check_order(self, seq: int, count: int) -> None:
        last = int(self._columns["born"].values[-1]) if len(self) else 0
        if seq < last or len(self) + count > ROWS_MAX:
            raise InvalidInput(
                f"{count} rows from seq {seq} on, behind {len(self)} up to seq {last}; "
                f"rows come in the order of their seqs, at most {ROWS_MAX}"
            )

    def _days_of(self, times: Array) -> Array:
        days: Array = (times - (self._vocabulary.epoch_ns or 0)) / DAY_NS
        return days

    def _status_id(self, status: str) -> int:
        ids = self._vocabulary.status_ids
        if status not in ids and len(ids) == STATUSES_MAX:
            raise InvalidInput(f"status {status!r} is one more than {STATUSES_MAX}; use one of those that rows have")
        return ids.setdefault(status, len(ids))

    # Views.

    def view(self) -> TableView:
        """Return the rows as of now, with the graph if there is one."""
        with self.lock:
            if self._latest is None:
                columns = TableColumns(**{name: self._columns[name].view() for name in TableColumns._fields})
                self._latest = TableView(columns, self._vocabulary, self.builder.graph)
            return self._latest

    def stale_rows(self, at: int) -> Rows:
        """Return the rows that were alive at a seq and have changed since; `view_at` needs their past values."""
        with self.lock:
            count = self._count_at(at)
            changed, died = self._columns["changed"].values[:count], self._columns["died"].values[:count]
            return np.flatnonzero((changed > at) & (died > at))

    def view_at(self, at: int, past: PastValues | None = None) -> TableView:
        """Return the rows as of a seq: those born by then and alive, with `past` values for rows changed since.

        Raises `InvalidInput` for a seq before `since`, because rows might be missing, and for a row changed later that
        has no value in `past`.
        """
        with self.lock:
            if at < self.since:
                raise InvalidInput(
                    f"seq {at} is before seq {self.since}, from which on this table knows every row; fill another"
                )
            count = self._count_at(at)
            unknown = np.setdiff1d(self.stale_rows(at), () if past is None else past.rows)
            if len(unknown):
                raise InvalidInput(
                    f"row {unknown[0]} and {len(unknown) - 1} more were changed after seq {at}; "
                    f"give what the rows of stale_rows({at}) were then"
                )
            columns = TableColumns(*(column[:count] for column in self.view().columns))
            columns = columns._replace(alive=self._columns["died"].values[:count] > at)
            if past is not None:
                names = ("importance", "accessed", "statuses", "days")
                importance, accessed, statuses, days = (getattr(columns, name).copy() for name in names)
                times = np.asarray(past.accessed_ns, np.int64)
                importance[past.rows] = past.importance
                accessed[past.rows] = times
                days[past.rows] = self._days_of(times)
                statuses[past.rows] = [self._status_id(status) for status in past.statuses]
                columns = columns._replace(importance=importance, accessed=accessed, statuses=statuses, days=days)
            return TableView(columns, self._vocabulary)

    def _count_at(self, at: int) -> int:
        return int(self._columns["born"].values.searchsorted(at, "right"))

    def short_rows(self, view: TableView) -> ShortRows | None:
        """Return the short rows for a search of a view, after shortening some more; `None` if they are not worth it."""
        matrix = view.columns.matrix
        if not shorts.should_shorten(view.count, self.dimensions):
            return None
        short = self._short
        if short is None or short.is_old(view.count):
            short = self._short = ShortRows(matrix)
        short.extend(matrix)
        return short

    # The graph.

    def graph_to_bytes(self, position: int) -> bytes | None:
        """Pack the graph without its vectors; `None` if there is none.

        `position` is the seq up to which the log was applied to this table.
        """
        view = self.view()
        return None if view.graph is None else hnsw.pack(view.graph, view.columns.sources, self.name, position)

    def graph_from_bytes(self, blob: bytes) -> None:
        """Restore a packed graph.

        All rows that it names must be in the table, alive or not: see `hnsw.seqs_of`. Raises `UnfitGraph` for other
        bytes or rows; nothing is changed then.
        """
        with self.lock:
            columns = self.view().columns
            self.builder.put(hnsw.unpack(blob, self.name, columns.matrix, columns.sources, columns.alive))

    def close(self) -> None:
        """Stop the thread that builds a graph; searches continue without a graph."""
        self.builder.close()


def _broadcast(values: Any, kind: Any, count: int) -> Array:
    column = np.asarray(values, kind).reshape(-1)
    if len(column) not in {1, count} or not count:
        raise InvalidInput(f"a column of {len(column)} values for {count} rows; give one for each, or one for all")
    return np.broadcast_to(column, count)
