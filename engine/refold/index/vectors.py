"""The vectors of a project in one matrix, with a graph where it pays, and many projects within a bound of RAM.

A row is added once, with the seq of the event that carries its vector, and its place is never used again. So rows
stand in the order of their births, and a search as of a seq is a search in the first rows. What may change of a row
(importance, access, status, that it is gone) says at which seq it last did. Everything here is a cache: thrown away
and filled again from the log, a shelf gives the same answers.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from refold.errors import InvalidInput
from refold.index import hnsw
from refold.index.columns import Array, Frame, Rows, normalised, product
from refold.index.hnsw import Graph, built, library
from refold.index.rows import Moment, RowTable, Shared
from refold.index.search import Matches, Query, Wish, answer, answers, near
from refold.limits import (
    CALIBRATED_ROWS_MIN,
    GRAPH_FRESH_ROWS_MIN,
    GRAPH_GONE_RATIO_MAX,
    HYBRID_NS,
    NEAREST_NS,
    SHELVES_BYTES_DEFAULT,
    VECTOR_DIMENSIONS_MAX,
)
from refold.threads import Worker

# When a shelf gets a graph, when it gets another, and the thread that builds it.

_logger = logging.getLogger("refold")

_TIMINGS: Final = 3
_FRESH_SHARE: Final = 20
"""One row behind a graph for so many in it may wait to be built in."""


class Crossover(NamedTuple):
    """From how many rows on a graph is faster than a pass over all of them."""

    nearest_rows: int
    hybrid_rows: int

    def least(self, *, is_hybrid: bool) -> int:
        """Return the number for one kind of search."""
        return self.hybrid_rows if is_hybrid else self.nearest_rows


def measured(moment: Moment) -> Crossover:
    """Return the crossover of this machine for rows like these, by timing one product with all of them."""
    matrix = moment.frame.matrix
    times: list[int] = []
    for _ in range(_TIMINGS):
        begin = time.perf_counter_ns()
        product(matrix, matrix[0])
        times.append(time.perf_counter_ns() - begin)
    row_ns = max(min(times) / len(matrix), 0.01)
    return Crossover(
        max(CALIBRATED_ROWS_MIN, round(NEAREST_NS / row_ns)), max(2 * CALIBRATED_ROWS_MIN, round(HYBRID_NS / row_ns))
    )


class Grower:
    """The graph of a shelf, and the one thread that builds the next one while the shelf is in use.

    A graph is built when a search would gain by it. It is built on where many rows came since, and anew where many of
    its rows are gone.
    """

    def __init__(
        self,
        lock: threading.RLock,
        now: Callable[[], Moment],
        swapped: Callable[[], None],
        crossover: Crossover | None,
    ) -> None:
        self._lock = lock
        self._now = now
        self._swapped = swapped
        self.fixed = crossover
        self._crossover: Crossover | None = None
        self._calibrated_count = 0
        self._uses = {True: False, False: False}
        self._thread: Worker | None = None
        self._is_closed = False
        self._refused_count = 0
        """How many rows there were when a graph was not worth having; at twice as many it is tried again."""
        self.graph: Graph | None = None
        self.builds_count = 0

    def pays(self, moment: Moment, *, is_hybrid: bool) -> bool:
        """Return whether the moment's graph is to be asked; where it is missing or old, begin to build another."""
        if self._is_closed:
            return False
        floor = self.fixed.least(is_hybrid=is_hybrid) if self.fixed is not None else CALIBRATED_ROWS_MIN
        count = moment.alive_count if 2 * moment.count >= floor else 0
        if 2 * count < floor:
            self._uses[is_hybrid] = False
            return False
        least = self._bounds(moment).least(is_hybrid=is_hybrid)
        # Once in use a graph is used until half of the rows are gone, so that it is not built for every second search.
        self._uses[is_hybrid] = count >= least or (self._uses[is_hybrid] and 2 * count >= least)
        if self._uses[is_hybrid] and moment is self._now():
            self._keep_up(moment)
        return self._uses[is_hybrid] and moment.graph is not None

    def _bounds(self, moment: Moment) -> Crossover:
        if self.fixed is not None:
            return self.fixed
        if self._crossover is None or moment.count >= 2 * self._calibrated_count:
            self._crossover = measured(moment)
            self._calibrated_count = moment.count
        return self._crossover

    def _keep_up(self, moment: Moment) -> None:
        """Begin to build a graph, if the one that is there is not good enough and nobody builds one."""
        if (self._thread is not None and not self._thread.is_over) or moment.count < 2 * self._refused_count:
            return
        graph = moment.graph
        if graph is not None:
            gone = graph.covered - int(np.count_nonzero(moment.frame.alive[: graph.end]))
            fresh = moment.count - graph.end
            is_worn = gone > GRAPH_GONE_RATIO_MAX * graph.covered
            if not is_worn and fresh <= max(GRAPH_FRESH_ROWS_MIN, graph.covered // _FRESH_SHARE):
                return
            graph = None if is_worn else graph
        self._start(moment, graph)

    def _start(self, moment: Moment, base: Graph | None) -> None:
        if library() is None:
            self._refused_count = moment.count
            return
        with self._lock:
            if (self._thread is None or self._thread.is_over) and not self._is_closed:
                # No daemon: a thread that is killed inside of a library may take the process with it.
                self._thread = Worker(partial(self._build, moment, base), "refold-graph", daemon=False)
                self._thread.start()

    def _build(self, moment: Moment, base: Graph | None) -> None:
        graph = None
        try:
            graph = built(moment.frame.matrix, moment.frame.alive, base, self._is_wanted)
        except (MemoryError, RuntimeError):
            _logger.exception("a graph of %d rows could not be built; searches pass over all rows", moment.count)
        finally:
            with self._lock:
                self._thread = None
                if graph is None:
                    self._refused_count = moment.count
                elif not self._is_closed:
                    self.take(graph)

    def _is_wanted(self) -> bool:
        """Return whether to go on building: neither the shelf was closed nor does the program end."""
        return not self._is_closed and threading.main_thread().is_alive()

    def take(self, graph: Graph) -> None:
        """Let searches that begin from now on ask this graph; the lock is held."""
        self.graph = graph
        self.builds_count += 1
        self._swapped()

    def settle(self) -> None:
        """Return once nothing is being built."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Stop building, and let the graph go, and the shelf: its vectors leave RAM with the last who uses it."""
        with self._lock:
            self._is_closed = True
        self.settle()
        with self._lock:
            self.graph = None
            self._swapped()
            # Each holds the other until here, and nobody may collect such cycles for long: arrays do not count there.
            self._now, self._swapped = _closed, _nothing


def _nothing() -> None:
    """Do nothing."""


def _closed() -> Moment:
    raise AssertionError("a closed shelf has no graph to keep up")


class Past(NamedTuple):
    """What rows were at another time than now: columns of one length."""

    rows: Any
    importance: Any
    accessed_ns: Any
    statuses: Sequence[str]


class Shelf:
    """The rows of one project and one embedder; one thread at a time writes, any number search.

    ``since`` is the seq from which on it knows every row: it is filled with those that were alive then, and told of
    everything that happens later. ``crossover`` fixes from how many rows on a graph is used; without it that is
    measured. Close it: it may have a thread that builds a graph.
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
        self.name = name or model
        """What a packed graph is known by."""
        self.since = since
        self.lock = threading.RLock()
        self._table = RowTable(dimensions)
        self._now: Moment | None = None
        self._grower = Grower(self.lock, self.now, self._forget, crossover)

    def __len__(self) -> int:
        """Return how many rows there are, those that are gone included."""
        return self._table.count

    @property
    def nbytes(self) -> int:
        """Return about what the shelf takes in RAM."""
        with self.lock:
            graph = self._grower.graph
            return self._table.nbytes + (0 if graph is None else graph.nbytes)

    @property
    def parts_count(self) -> int:
        """Return how many graphs came to it: each takes other room."""
        return self.builds_count

    # Writing.

    def add(
        self,
        seq: int,
        vector: Any,
        *,
        category: str,
        keywords: Sequence[str] = (),
        importance: float,
        accessed_ns: int,
        status: str = "active",
        order: int | None = None,
        source: int | None = None,
        is_unit: bool = False,
    ) -> int:
        """Add a row and return its place; ``vector`` is an array, a sequence, or raw float32.

        Of rows with equal scores that of the lower ``order`` is found first, which is its place where none is given.
        ``source`` is the seq of the event that carries the vector, if that is not ``seq``;
        ``is_unit`` says that the vector is an array of length 1.

        Raises ``InvalidInput`` for a vector that is zero or not finite and for a seq before the last row's;
        ``EmbeddingMismatch`` for one of another dimension. Then nothing is changed.
        """
        unit = vector if is_unit else normalised(vector, self.dimensions, count=1)[0]
        with self.lock:
            row = self._table.add(
                seq,
                unit,
                category=category,
                keywords=keywords,
                importance=importance,
                accessed_ns=accessed_ns,
                status=status,
                order=order,
                source=source,
            )
            self._now = None
            return row

    def again(
        self,
        seq: int,
        row: int,
        *,
        category: str,
        keywords: Sequence[str],
        importance: float,
        accessed_ns: int,
        status: str,
        order: int,
    ) -> int:
        """Add a row with the vector of another, which goes if it is still there, and return its place."""
        with self.lock:
            unit, source = self._table.view("matrix")[row].copy(), int(self._table.view("sources")[row])
            self._table.remove(seq, row)
            added = self._table.add(
                seq,
                unit,
                category=category,
                keywords=keywords,
                importance=importance,
                accessed_ns=accessed_ns,
                status=status,
                order=order,
                source=source,
            )
            self._now = None
            return added

    def extend(
        self,
        seqs: Any,
        vectors: Any,
        *,
        categories: Sequence[str],
        keywords: Sequence[Sequence[str]] = (),
        importance: Any,
        accessed_ns: Any,
        statuses: Sequence[str] = ("active",),
        orders: Any = None,
        sources: Any = None,
        are_units: bool = False,
    ) -> Rows:
        """Add many rows in the order of their seqs and return their places; a column of length 1 is for all of them.

        ``are_units`` says that the vectors are an array that is of length 1 already, of another shelf for instance.

        Raises what ``add`` raises; then nothing is changed.
        """
        units = vectors if are_units else normalised(vectors, self.dimensions)
        with self.lock:
            rows = self._table.extend(
                seqs,
                units,
                categories=categories,
                keywords=keywords,
                importance=importance,
                accessed_ns=accessed_ns,
                statuses=statuses,
                orders=orders,
                sources=sources,
            )
            self._now = None
            return rows

    def remove(self, seq: int, rows: Any) -> None:
        """Let rows go at a seq; what is gone already went when it did."""
        with self.lock:
            if self._table.remove(seq, rows):
                self._now = None

    def change(
        self, seq: int, rows: Any, *, importance: Any = None, accessed_ns: Any = None, status: str | None = None
    ) -> None:
        """Give rows another importance, access or status at a seq: one value for all, or one for each."""
        with self.lock:
            self._table.change(seq, rows, importance=importance, accessed_ns=accessed_ns, status=status)
            self._now = None

    @property
    def is_worn(self) -> bool:
        """Return whether more rows are gone than alive, so that searches would be faster without them."""
        with self.lock:
            return 2 * int(np.count_nonzero(self._table.view("alive"))) < len(self)

    def compacted(self, seq: int) -> "Shelf":
        """Return another shelf with the rows alone that are alive, which knows every row from ``seq`` on.

        ``seq`` is the last one of which this shelf was told.
        """
        with self.lock:
            other = Shelf(self.dimensions, self.model, since=seq, crossover=self._grower.fixed)
            other._table = self._table.of(np.flatnonzero(self._table.view("alive")))
            return other

    def sources(self) -> Array:
        """Return for each row the seq of the event that carries its vector."""
        with self.lock:
            return self._table.view("sources")

    # Moments.

    def now(self) -> Moment:
        """Return the rows as they are, with the graph if there is one."""
        with self.lock:
            if self._now is None:
                self._now = Moment(self._table.frame(), self._shared(), self._grower.graph)
            return self._now

    def rows_of(self, seqs: Any) -> Rows:
        """Return the first row that was born at each seq, -1 where there is none."""
        born, wanted = self.now().frame.born, np.asarray(seqs, np.int64)
        places = born.searchsorted(wanted)
        is_there = np.append(born, -1)[places] == wanted
        return np.where(is_there, places, -1)

    def stale(self, at: int) -> Rows:
        """Return the rows that lived at a seq and were changed since: what ``moment`` has to be told of."""
        with self.lock:
            count = self._count_at(at)
            return np.flatnonzero((self._table.view("changed")[:count] > at) & (self._table.view("died")[:count] > at))

    def moment(self, at: int, past: Past | None = None) -> Moment:
        """Return the rows as of a seq: those born by then and not gone, and what ``past`` says of those changed since.

        Raises ``InvalidInput`` for a seq before ``since``, where rows may be missing that were gone by then, and if a
        row was changed later and ``past`` does not say what it was.
        """
        with self.lock:
            if at < self.since:
                raise InvalidInput(
                    f"seq {at} is before seq {self.since}, from which on this shelf knows every row; fill another"
                )
            count = self._count_at(at)
            unknown = np.setdiff1d(self.stale(at), () if past is None else past.rows)
            if len(unknown):
                raise InvalidInput(
                    f"row {unknown[0]} and {len(unknown) - 1} more were changed after seq {at}; "
                    f"give what the rows of stale({at}) were then"
                )
            frame = Frame(*(column[:count] for column in self.now().frame))
            return self._moment_of(frame._replace(alive=self._table.view("died")[:count] > at), past)

    def view(self, past: Past) -> Moment:
        """Return a moment of some rows alone, all alive, with columns of their own: for forks, and any other past."""
        with self.lock:
            frame = self.now().frame
            alive: Array = np.zeros(len(frame.born), np.bool_)
            alive[past.rows] = True
            return self._moment_of(frame._replace(alive=alive), past)

    # Searching.

    def search(self, query: Query, wish: Wish, *, moment: Moment | None = None, exact: bool = False) -> Matches:
        """Return the rows with the best scores, ties to the higher importance, then to the lower seq.

        ``exact`` asks no graph. Raises ``InvalidInput`` and ``EmbeddingMismatch`` as ``add`` does of the vector, and
        ``InvalidInput`` for weights and extra scores that are not finite.
        """
        moment = moment or self.now()
        asks_graph = not exact and query.vector is not None and self._grower.pays(moment, is_hybrid=True)
        return answer(moment, query, wish, asks_graph=asks_graph)

    def search_many(self, queries: Sequence[Query], wish: Wish, *, moment: Moment | None = None) -> list[Matches]:
        """Return what an exact ``search`` returns for each query, all multiplied with the rows at once."""
        return answers(moment or self.now(), queries, wish)

    def nearest(self, vector: Any, wish: Wish, *, moment: Moment | None = None, exact: bool = False) -> Matches:
        """Return the rows with the highest cosines; of the wish only its filters and its ``top_k`` count."""
        moment = moment or self.now()
        asks_graph = not exact and self._grower.pays(moment, is_hybrid=False)
        return near(moment, vector, wish, asks_graph=asks_graph)

    # The graph.

    @property
    def builds_count(self) -> int:
        """Return how many graphs were put in place."""
        return self._grower.builds_count

    def graph_to_bytes(self, position: int) -> bytes | None:
        """Return the graph without its vectors, to be kept until the log is opened next; ``None`` if there is none.

        ``position`` is the seq up to which the log was applied to this shelf.
        """
        moment = self.now()
        if moment.graph is None:
            return None
        return hnsw.packed(moment.graph, moment.frame.sources, self.name, position)

    def graph_from_bytes(self, blob: bytes) -> int:
        """Put a graph in place that was packed, and return the seq at which it was.

        All rows that it names have to be here, alive or not: ``graph_bytes.seqs_of`` tells them. Raises
        ``UnfitGraph``, with the reason, for bytes that are not what was packed or of other rows; then nothing is
        changed, and the graph is built when it is wanted.
        """
        with self.lock:
            moment = self.now()
            graph, position = hnsw.unpacked(blob, moment.frame, self.name)
            self._grower.take(graph)
            return position

    def settle(self) -> None:
        """Return once no graph is being built."""
        self._grower.settle()

    def close(self) -> None:
        """End the thread that builds a graph, if there is one; searches go on without a graph."""
        self._grower.close()

    # Parts.

    def _forget(self) -> None:
        self._now = None

    def _shared(self) -> Shared:
        table = self._table
        return Shared(self.lock, table.postings, table.category_ids, table.status_ids, table.epoch_ns)

    def _count_at(self, at: int) -> int:
        return int(self._table.view("born").searchsorted(at, "right"))

    def _moment_of(self, frame: Frame, past: Past | None) -> Moment:
        """Return a moment with some columns as they were."""
        if past is None:
            return Moment(frame, self._shared())
        names = ("importance", "accessed", "statuses", "days")
        importance, accessed, statuses, days = (getattr(frame, name).copy() for name in names)
        times = np.asarray(past.accessed_ns, np.int64)
        importance[past.rows] = past.importance
        accessed[past.rows] = times
        days[past.rows] = self._table.days_of(times)
        statuses[past.rows] = [self._table.status_id(status) for status in past.statuses]
        changed = frame._replace(importance=importance, accessed=accessed, statuses=statuses, days=days)
        return Moment(changed, self._shared())


# The shelves of many projects within a bound of RAM: what was not used for longest leaves, and is filled again.

_WEIGHED_SHARE: Final = 16
"""A shelf is weighed anew when it has grown by one row for so many, and when it has more parts than rows."""


class Weighed(Protocol):
    """A shelf, or what holds one."""

    def __len__(self) -> int:
        """Return how many rows there are."""
        ...

    @property
    def nbytes(self) -> int:
        """Return about what it takes in RAM."""
        ...

    @property
    def parts_count(self) -> int:
        """Return how much has come to it beside rows; another number says that it has to be weighed."""
        ...

    def close(self) -> None:
        """End its threads."""


S = TypeVar("S", bound=Weighed)


class _Held(Generic[S]):
    """A shelf in RAM, with its bytes, rows and parts as they were when it was last weighed."""

    __slots__ = ("nbytes", "parts", "rows", "shelf")

    def __init__(self, shelf: S) -> None:
        self.shelf = shelf
        self.weigh()

    def weigh(self) -> None:
        self.nbytes, self.rows, self.parts = self.shelf.nbytes, len(self.shelf), self.shelf.parts_count

    @property
    def has_grown(self) -> bool:
        grown = (len(self.shelf) - self.rows) * _WEIGHED_SHARE > self.rows
        return grown or self.shelf.parts_count != self.parts


class Shelves(Generic[S]):
    """Shelves by key. Who has one in hand may go on with it after it has left; it only is not given out again."""

    def __init__(self, bytes_max: int = SHELVES_BYTES_DEFAULT) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._shelves: OrderedDict[Hashable, _Held[S]] = OrderedDict()
        self._filling: dict[Hashable, threading.Lock] = {}
        self._sum_bytes = 0

    def __len__(self) -> int:
        """Return how many shelves are in RAM."""
        return len(self._shelves)

    @property
    def nbytes(self) -> int:
        """Return about what the shelves take in RAM, as they were when each was last asked for."""
        return self._sum_bytes

    def get(self, key: Hashable, fill: Callable[[], S]) -> S:
        """Return the shelf of a key, filled if it is not in RAM: once, however many threads ask for it.

        Shelves that were not asked for longest leave until the others fit; the one that is returned stays.
        """
        shelf = self._found(key)
        if shelf is not None:
            return shelf
        with self._lock:
            filling = self._filling.setdefault(key, threading.Lock())
        leaving: list[S] = []
        with filling:
            shelf = self._found(key)
            if shelf is None:
                shelf = fill()
                leaving = self._put(key, shelf)
        _close(leaving)  # Without that lock: closing may take others.
        return shelf

    def _found(self, key: Hashable) -> S | None:
        with self._lock:
            held = self._shelves.get(key)
            if held is None:
                return None
            self._shelves.move_to_end(key)
            if not held.has_grown:
                return held.shelf
            held.weigh()
            leaving = self._leaving()
        _close(leaving)
        return held.shelf

    def _put(self, key: Hashable, shelf: S) -> list[S]:
        """Hold a shelf, and return those that leave for it."""
        held = _Held(shelf)
        with self._lock:
            self._shelves[key] = held
            self._filling.pop(key, None)
            return self._leaving()

    def _leaving(self) -> list[S]:
        """Return the shelves that leave until the others fit."""
        # Summed anew, so that nothing that cuts this off leaves a sum that is wrong for good.
        self._sum_bytes = sum(held.nbytes for held in self._shelves.values())
        leaving: list[S] = []
        while self._sum_bytes > self._bytes_max and len(self._shelves) > 1:
            leaving.append(self._remove(next(iter(self._shelves))))
        return leaving

    def _remove(self, key: Hashable) -> S:
        held = self._shelves.pop(key)
        self._sum_bytes -= held.nbytes
        return held.shelf

    def touch(self, key: Hashable, shelf: S) -> None:
        """Take note that a shelf was asked for, if it is the one in RAM; it is weighed anew if it has grown."""
        if self.peek(key) is shelf:
            self._found(key)

    def peek(self, key: Hashable) -> S | None:
        """Return the shelf of a key if it is in RAM; it does not count as asked for."""
        held = self._shelves.get(key)
        return None if held is None else held.shelf

    def all(self) -> list[tuple[Hashable, S]]:
        """Return all shelves that are in RAM, with their keys."""
        with self._lock:
            return [(key, held.shelf) for key, held in self._shelves.items()]

    def drop(self, key: Hashable, only: S | None = None) -> None:
        """Let the shelf of a key go, if it is in RAM, and if it is that one: after an error in writing to it."""
        with self._lock:
            held = self._shelves.get(key)
            leaving = [self._remove(key)] if held is not None and only in (None, held.shelf) else []
        _close(leaving)

    def close(self) -> None:
        """Let all shelves go, and end their threads."""
        with self._lock:
            leaving = [self._remove(key) for key in list(self._shelves)]
        _close(leaving)


def _close(shelves: Sequence[Weighed]) -> None:
    for shelf in shelves:
        shelf.close()
