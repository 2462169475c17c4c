"""The shelf of a project: its vectors in one matrix, what a score needs beside them, and a graph where it pays.

A row is added once, with the seq of the event that carries its vector, and its place is never used again. So rows
stand in the order of their births, and a search as of a seq is a search in the first rows. What may change of a row
(importance, access, status, that it is gone) says at which seq it last did. Everything here is a cache: thrown away
and filled again from the log, a shelf gives the same answers.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from refold.errors import InvalidInput
from refold.limits import STATUSES_COUNT_MAX, VECTOR_DIMENSIONS_MAX, VECTOR_ROWS_MAX
from refold.store import graph_bytes
from refold.store.answering import Query, Wish, answer, answers, near
from refold.store.columns import Array, Column, Rows
from refold.store.graphing import Crossover, Grower
from refold.store.moments import Frame, Moment, Shared
from refold.store.normalising import normalised
from refold.store.postings import Postings
from refold.store.scanning import Matches
from refold.store.scoring import DAY_NS

_FOREVER: Final = 2**63 - 1
"""The seq at which a row goes that is alive."""


class Past(NamedTuple):
    """What rows were at another time than now: columns of one length."""

    rows: Any
    importance: Any
    accessed_ns: Any
    statuses: Sequence[str]


class Shelf:
    """The rows of one project and one embedder; one thread at a time writes, any number search.

    ``crossover`` fixes from how many rows on a graph is used; without it that is measured. Close it: it may have a
    thread that builds a graph.
    """

    def __init__(self, dimensions: int, model: str, *, crossover: Crossover | None = None) -> None:
        if not 0 < dimensions <= VECTOR_DIMENSIONS_MAX:
            message = f"vectors of {dimensions} numbers; give 1 to VECTOR_DIMENSIONS_MAX ({VECTOR_DIMENSIONS_MAX})"
            raise InvalidInput(message)
        self.dimensions = dimensions
        self.model = model
        self.lock = threading.RLock()
        self._matrix = Column(np.float32, dimensions)
        self._born, self._died, self._changed = Column(np.int64), Column(np.int64), Column(np.int64)
        self._alive, self._days = Column(np.bool_), Column(np.float32)
        self._importance, self._accessed = Column(np.float64), Column(np.int64)
        self._statuses, self._categories = Column(np.uint8), Column(np.int32)
        self._status_ids: dict[str, int] = {}
        self._category_ids: dict[str, int] = {}
        self._postings = Postings()
        self._epoch_ns: int | None = None
        self._now: Moment | None = None
        self._grower = Grower(self.lock, self.now, self._forget, crossover)

    def __len__(self) -> int:
        """Return how many rows there are, those that are gone included."""
        return self._born.count

    @property
    def nbytes(self) -> int:
        """Return about what the shelf takes in RAM."""
        with self.lock:
            columns = (self._matrix, self._born, self._died, self._changed, self._alive, self._days)
            more = (self._importance, self._accessed, self._statuses, self._categories)
            graph = self._grower.graph
            own = sum(column.nbytes for column in (*columns, *more)) + self._postings.nbytes
            return own + (0 if graph is None else graph.nbytes)

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
    ) -> int:
        """Add a row and return its place; ``vector`` is an array, a sequence, or raw float32.

        Raises ``InvalidInput`` for a vector that is zero or not finite and for a seq before the last row's;
        ``EmbeddingMismatch`` for one of another dimension. Then nothing is changed.
        """
        (unit,) = normalised(vector, self.dimensions, count=1)
        with self.lock:
            row = self._born.count
            self._check(seq, 1)
            status_id = self._status_id(status)
            if self._epoch_ns is None:
                self._epoch_ns = accessed_ns
            self._accessed.append(accessed_ns)
            self._importance.append(importance)
            self._days.append((accessed_ns - self._epoch_ns) / DAY_NS)
            self._matrix.append(unit)
            self._born.append(seq)
            self._died.append(_FOREVER)
            self._changed.append(seq)
            self._alive.append(value=True)
            self._statuses.append(status_id)
            self._categories.append(self._category_ids.setdefault(category, len(self._category_ids)))
            self._postings.append(keywords)
            self._now = None
            return row

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
    ) -> Rows:
        """Add many rows in the order of their seqs and return their places; a column of length 1 is for all of them.

        Raises what ``add`` raises; then nothing is changed.
        """
        units = normalised(vectors, self.dimensions)
        count = len(units)
        born = _column(seqs, np.int64, count)
        times = _column(accessed_ns, np.int64, count)
        weights = _column(importance, np.float64, count)
        if len(keywords) not in (0, count) or (np.diff(born) < 0).any():
            message = f"{count} vectors with {len(keywords)} lists of keywords; give one for each row, in order of seqs"
            raise InvalidInput(message)
        with self.lock:
            begin = self._born.count
            self._check(int(born[0]), count)
            status_ids = _column([self._status_id(status) for status in statuses], np.uint8, count)
            ids = [self._category_ids.setdefault(name, len(self._category_ids)) for name in categories]
            category_ids = _column(ids, np.int32, count)
            if self._epoch_ns is None:
                self._epoch_ns = int(times[0])
            self._matrix.extend(units, count)
            self._born.extend(born, count)
            self._died.extend(_FOREVER, count)
            self._changed.extend(born, count)
            self._alive.extend(values=True, count=count)
            self._importance.extend(weights, count)
            self._accessed.extend(times, count)
            self._days.extend(self._days_of(times), count)
            self._statuses.extend(status_ids, count)
            self._categories.extend(category_ids, count)
            self._postings.extend(keywords, count)
            self._now = None
            return np.arange(begin, begin + count)

    def remove(self, seq: int, rows: Any) -> None:
        """Let rows go at a seq; what is gone already went when it did."""
        with self.lock:
            places = np.atleast_1d(np.asarray(rows, np.intp))
            going = places[self._alive.view()[places]]
            if len(going):
                self._died.change(going, seq)
                self._alive.change(going, values=False)
                self._now = None

    def change(
        self, seq: int, rows: Any, *, importance: Any = None, accessed_ns: Any = None, status: str | None = None
    ) -> None:
        """Give rows another importance, access or status at a seq: one value for all, or one for each."""
        with self.lock:
            status_id = None if status is None else self._status_id(status)
            places = np.atleast_1d(np.asarray(rows, np.intp))
            weights = None if importance is None else _column(importance, np.float64, len(places))
            times = None if accessed_ns is None else _column(accessed_ns, np.int64, len(places))
            self._changed.change(places, seq)
            if weights is not None:
                self._importance.change(places, weights)
            if times is not None:
                self._accessed.change(places, times)
                self._days.change(places, self._days_of(times))
            if status_id is not None:
                self._statuses.change(places, status_id)
            self._now = None

    # Moments.

    def now(self) -> Moment:
        """Return the rows as they are, with the graph if there is one."""
        with self.lock:
            if self._now is None:
                frame = Frame(
                    matrix=self._matrix.view(),
                    born=self._born.view(),
                    categories=self._categories.view(),
                    alive=self._alive.view(),
                    importance=self._importance.view(),
                    accessed=self._accessed.view(),
                    statuses=self._statuses.view(),
                    days=self._days.view(),
                )
                self._now = Moment(frame, self._shared(), self._grower.graph)
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
            return np.flatnonzero((self._changed.view()[:count] > at) & (self._died.view()[:count] > at))

    def moment(self, at: int, past: Past | None = None) -> Moment:
        """Return the rows as of a seq: those born by then and not gone, and what ``past`` says of those changed since.

        Raises ``InvalidInput`` if a row was changed since and ``past`` does not say what it was.
        """
        with self.lock:
            count = self._count_at(at)
            unknown = np.setdiff1d(self.stale(at), () if past is None else past.rows)
            if len(unknown):
                message = (
                    f"row {unknown[0]} and {len(unknown) - 1} more were changed after seq {at}; "
                    f"give what the rows of stale({at}) were then"
                )
                raise InvalidInput(message)
            frame = Frame(*(column[:count] for column in self.now().frame))
            return self._moment_of(frame._replace(alive=self._died.view()[:count] > at), past)

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
        return graph_bytes.packed(moment.graph, moment.frame.born, self.model, position)

    def graph_from_bytes(self, blob: bytes) -> int:
        """Put a graph in place that was packed, and return the seq at which it was.

        All rows that it names have to be here, alive or not: ``graph_bytes.seqs_of`` tells them. Raises
        ``UnfitGraph``, with the reason, for bytes that are not what was packed or of other rows; then nothing is
        changed, and the graph is built when it is wanted.
        """
        with self.lock:
            moment = self.now()
            graph, position = graph_bytes.unpacked(blob, moment.frame, self.model)
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
        return Shared(self.lock, self._postings, self._category_ids, self._status_ids, self._epoch_ns or 0)

    def _count_at(self, at: int) -> int:
        return int(self._born.view().searchsorted(at, "right"))

    def _days_of(self, times: Array) -> Array:
        days: Array = (times - (self._epoch_ns or 0)) / DAY_NS
        return days

    def _status_id(self, status: str) -> int:
        if status not in self._status_ids and len(self._status_ids) == STATUSES_COUNT_MAX:
            message = f"status {status!r} is one more than STATUSES_COUNT_MAX ({STATUSES_COUNT_MAX}); use another one"
            raise InvalidInput(message)
        return self._status_ids.setdefault(status, len(self._status_ids))

    def _check(self, seq: int, count: int) -> None:
        last = int(self._born.at(self._born.count - 1)) if self._born.count else 0
        if seq < last or self._born.count + count > VECTOR_ROWS_MAX:
            message = (
                f"{count} rows from seq {seq} on, where {self._born.count} stand up to seq {last}; "
                f"rows come in the order of their seqs, VECTOR_ROWS_MAX ({VECTOR_ROWS_MAX}) at most"
            )
            raise InvalidInput(message)

    def _moment_of(self, frame: Frame, past: Past | None) -> Moment:
        """Return a moment with some columns as they were."""
        if past is None:
            return Moment(frame, self._shared())
        names = ("importance", "accessed", "statuses", "days")
        importance, accessed, statuses, days = (getattr(frame, name).copy() for name in names)
        times = np.asarray(past.accessed_ns, np.int64)
        importance[past.rows] = past.importance
        accessed[past.rows] = times
        days[past.rows] = self._days_of(times)
        statuses[past.rows] = [self._status_id(status) for status in past.statuses]
        changed = frame._replace(importance=importance, accessed=accessed, statuses=statuses, days=days)
        return Moment(changed, self._shared())


def _column(values: Any, kind: Any, count: int) -> Array:
    """Return a value for each row; ``InvalidInput`` if there are neither that many nor one."""
    column = np.asarray(values, kind).reshape(-1)
    if len(column) not in (1, count) or not count:
        message = f"a column of {len(column)} values for {count} rows; give one for each, or one for all"
        raise InvalidInput(message)
    return np.broadcast_to(column, count)
