"""The shelf of a project: its vectors in one matrix, what a score needs beside them, and a graph where it pays.

A row is added once, with the seq of the event that carries its vector, and its place is never used again. So rows
stand in the order of their births, and a search as of a seq is a search in the first rows. What may change of a row
(importance, access, status, that it is gone) says at which seq it last did. Everything here is a cache: thrown away
and filled again from the log, a shelf gives the same answers.
"""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refold.errors import InvalidInput
from refold.limits import VECTOR_DIMENSIONS_MAX
from refold.store import graph_bytes
from refold.store.answering import Query, Wish, answer, answers, near
from refold.store.columns import Array, Rows
from refold.store.graphing import Crossover, Grower
from refold.store.moments import Frame, Moment, Shared
from refold.store.normalising import normalised
from refold.store.rows import RowTable
from refold.store.scanning import Matches


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
            message = f"vectors of {dimensions} numbers; give 1 to VECTOR_DIMENSIONS_MAX ({VECTOR_DIMENSIONS_MAX})"
            raise InvalidInput(message)
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
                message = f"seq {at} is before seq {self.since}, from which on this shelf knows every row; fill another"
                raise InvalidInput(message)
            count = self._count_at(at)
            unknown = np.setdiff1d(self.stale(at), () if past is None else past.rows)
            if len(unknown):
                message = (
                    f"row {unknown[0]} and {len(unknown) - 1} more were changed after seq {at}; "
                    f"give what the rows of stale({at}) were then"
                )
                raise InvalidInput(message)
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
        return graph_bytes.packed(moment.graph, moment.frame.sources, self.name, position)

    def graph_from_bytes(self, blob: bytes) -> int:
        """Put a graph in place that was packed, and return the seq at which it was.

        All rows that it names have to be here, alive or not: ``graph_bytes.seqs_of`` tells them. Raises
        ``UnfitGraph``, with the reason, for bytes that are not what was packed or of other rows; then nothing is
        changed, and the graph is built when it is wanted.
        """
        with self.lock:
            moment = self.now()
            graph, position = graph_bytes.unpacked(blob, moment.frame, self.name)
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
