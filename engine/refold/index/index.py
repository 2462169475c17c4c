"""The indexes of all projects of an engine: they select the rows that a search sees, and rank them.

The index of a live stream applies each of its events, and provides views of the seqs that it covers. An earlier state,
the state of a branch without events of its own, and that of an open batch each have a separate index, which takes
vectors from other indexes that have them.
"""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from refold.entry import ACTIVE, NO_VECTOR, Entry
from refold.errors import StoreCorrupt, logger
from refold.event import Event, is_same_json
from refold.index import hnsw
from refold.index.cache import IndexCache
from refold.index.columns import Array
from refold.index.packed import PackedArrays, UnfitRows, refuse
from refold.index.project import DECIMALS, IndexedStream, ProjectIndex, VectorLoader, exact_cosine, unit, vector_of
from refold.index.ranking import SIGNALS, TEXT_SIGNALS, Filter, Query
from refold.index.search import Match, Matches, nearest, recency_of, search, search_many
from refold.index.signals import TextIndex, weigh_signals
from refold.index.table import Crossover, TableView, VectorTable
from refold.limits import EPISODES_PARTS_COUNT, INDEX_PARTS_COUNT, PACKED_ROWS_BYTES_MAX, PACKED_ROWS_MIN
from refold.threads import enter_once
from refold.views.facts import FACTS, Facts, MemoryList

_NEVER: Final = Crossover(2**31, 2**31)
# The row counts from which live streams are searched with a graph; `None` to derive them from a timed product.
_MEASURED: Crossover | None = None
_NEAR: Final = 2 * 10.0**-DECIMALS
_CANDIDATES: Final = 8
_DRAFTS_MAX: Final = 2
# A graph that has grown by this factor since it was stored is stored with the next commit, not only by a flush.
_GRAPH_GROWTH: Final = 2
_REPACKED_SHARE: Final = 8  # Packed rows are stored again once one row in this many has changed.
_LOST_RATIO_MAX: Final = 0.25  # Maximum share of gone rows in a stored graph; only the graph needs their vectors.


class Neighbour(NamedTuple):
    """The memory most similar to a vector, their cosine, and the memory's own vector of length 1."""

    entry: Entry
    cosine: float
    own: Array


class IndexView(NamedTuple):
    """The immutable rows that a search sees, with the means to turn them into memories."""

    project: ProjectIndex
    table: TableView
    seq: int
    then: Mapping[str, Entry] | None
    """The memories of an earlier state, if the rows are those of a later one; `None` if `project` has the memories."""
    changes: dict[int, Entry | None] | None = None  # Memories that are not in the text index yet, if needed.
    by_row: Sequence[Entry | None] = ()  # The memories by row, if needed.

    def entries(self, rows: Sequence[int]) -> list[Entry] | None:
        """Return the memories of rows, or `None` if they changed too much since; the caller holds the state lock."""
        if self.then is not None:
            return [self.then[self.project.ids[row]] for row in rows]
        return self.project.entries_at(self.seq, rows)

    def query(self, query: Query) -> Query:
        """Return the query with its metadata filter resolved to rows."""
        required = query.filter.metadata
        if required is None:
            return query
        rows: list[int] = []
        for row, entry in enumerate(self.by_row[: self.table.count]):
            metadata = {} if entry is None else entry.metadata or {}
            is_match = all(name in metadata and is_same_json(metadata[name], required[name]) for name in required)
            if entry is not None and is_match:
                rows.append(row)
        return replace(query, filter=replace(query.filter, rows=np.array(rows, np.intp)))


class ViewOptions(NamedTuple):
    """Requirements of a search beyond the rows of a state."""

    own_rows: bool = False  # A view of later rows does not suffice.
    changes_of: ProjectIndex | None = None  # The index whose changed texts the search takes.
    by_row: bool = False  # The search needs the memories by row.


class FillRequest(NamedTuple):
    """An index to fill before a search: its memories, and the indexes whose vectors can be reused.

    It is filled without the state lock. All fields are as of the request, except `facts`, which identifies the state
    and keeps changing.
    """

    key: Hashable
    number: int
    seq: int
    facts: Facts
    model: str
    dimensions: int
    memories: MemoryList
    facts_seq: int
    donors: list[ProjectIndex]
    old: ProjectIndex | None
    pending: Sequence[Event]
    is_live: bool


class IndexSource(NamedTuple):
    """The parts of a store that the indexes need."""

    name: str
    readonly: bool
    memory_bytes: int
    state_lock: AbstractContextManager[Any]
    load_vectors: Callable[[Sequence[int]], list[bytes]]  # Returns the vectors of the events at seqs, as raw float32.
    stream: Callable[[str], IndexedStream | None]  # Returns the stream of a key, or `None` if it was never touched.
    place: Callable[[str, int], tuple[int, int]]
    """Returns the last event of a stream at or before a seq: the number of the stream that holds it, and its seq."""
    graph: Callable[[int], bytes | None]  # Returns the stored graph of a stream, by its number.
    store_graph: Callable[[int, bytes], None]  # Stores the graph of a stream, by its number, with the next commit.
    rows: Callable[[int], PackedArrays | None]
    """Returns the packed rows of a stream, by its number; raises `UnfitRows` if they cannot be read."""
    changed: Callable[[int, int, int], list[str] | None]
    """Returns the ids that the events of a stream, by its number, changed between two seqs; `None` for too many."""


class Indexes:
    """The indexes of all projects; `view`, `new_graphs` and `new_rows` need the state lock, other methods do not."""

    def __init__(self, source: IndexSource) -> None:
        self._source = source
        self.loader = VectorLoader(source.load_vectors)
        self._projects: IndexCache[ProjectIndex] = IndexCache(source.memory_bytes // INDEX_PARTS_COUNT)
        self._drafts: list[tuple[Facts, ProjectIndex]] = []  # The most recently searched states of open batches.
        self._episodes: IndexCache[VectorTable] = IndexCache(source.memory_bytes // EPISODES_PARTS_COUNT)
        self._episodes_lock = threading.RLock()
        self.is_closed = False

    def close(self) -> None:
        """Release all indexes, and end their threads."""
        self.is_closed = True
        self._drafts.clear()
        self._projects.close()
        self._episodes.close()

    @property
    def nbytes(self) -> int:
        """Approximate bytes of all indexes in RAM."""
        return self._projects.nbytes + self._episodes.nbytes

    # Views.

    def touch(self, index: ProjectIndex) -> None:
        """Mark an index as just used."""
        if index.key is not None:
            self._projects.touch(index.key, index)

    def view(
        self, key: str, facts: Facts, at: int | None, pending: Sequence[Event], needs: ViewOptions
    ) -> IndexView | FillRequest | None:
        """Return the rows of a state, a request to fill them, or `None` if there are none.

        `at` is the seq of the state, or `None` for a live state and for the state of an open batch with its `pending`
        events.
        """
        if not facts.count:
            return None
        stream = self._source.stream(key)
        is_live = stream is not None and stream.state is not None and stream.state.part(FACTS) is facts
        if stream is not None and is_live and stream.number:
            return self._live_view(stream, facts, needs)
        if stream is not None and (is_live or at is not None):
            at = stream.seq if at is None or is_live else at
            return self._past_view(stream, at, facts, needs, is_inherited=is_live)
        return self._draft_view(stream, facts, pending, needs)

    def _live_view(self, stream: IndexedStream, facts: Facts, needs: ViewOptions) -> IndexView | FillRequest:
        gone, index = stream.index, self._projects.peek(stream.number)
        if gone is not None and gone is not index:
            gone.detach()  # It was evicted from the cache, which no longer counts it.
        if index is not None and index.stream is not stream and not index.is_torn:
            is_same = (index.table.model, index.table.dimensions) == (facts.model, facts.dim)
            if is_same and index.catch_up(facts, stream.seq, partial(self.loader.load, dimensions=facts.dim)):
                index.attach(stream)
        if index is None or index.stream is not stream or index.is_worn:
            number = stream.number
            return self._request(number, number, facts, stream.seq, index or gone, is_live=True)
        return _view_of(index, needs)

    def _past_view(
        self, stream: IndexedStream, at: int, facts: Facts, needs: ViewOptions, *, is_inherited: bool
    ) -> IndexView | FillRequest:
        """Return a view of an immutable state, from the stream's own index if possible, else from one of that state."""
        number, seq = self._source.place(stream.key, at)
        live = self._projects.peek(number)
        if live is not None and not (needs.own_rows or is_inherited) and live.table.since <= seq <= live.seq:
            by_row = [facts.entries.get(entry_id) for entry_id in live.ids] if needs.by_row else ()
            return IndexView(live, live.view_at(seq, facts.entries), seq, facts.entries, by_row=by_row)
        index = self._projects.peek((number, seq))
        if index is None:
            return self._request((number, seq), number, facts, seq, None)
        return _view_of(index, needs)

    def _draft_view(
        self, stream: IndexedStream | None, facts: Facts, pending: Sequence[Event], needs: ViewOptions
    ) -> IndexView | FillRequest:
        load = partial(self.loader.load, pending=pending, dimensions=facts.dim)
        for state, index in self._drafts:
            is_fit = (index.table.model, index.table.dimensions) == (facts.model, facts.dim) and not index.is_worn
            if state is facts and is_fit and index.catch_up(facts, index.seq + 1, load):
                return _view_of(index, needs)
        self._drafts = [(state, index) for state, index in self._drafts if state is not facts]
        return self._request(None, 0 if stream is None else stream.number, facts, 1, None, pending)

    def _request(
        self,
        key: Hashable,
        number: int,
        facts: Facts,
        seq: int,
        old: ProjectIndex | None,
        pending: Sequence[Event] = (),
        *,
        is_live: bool = False,
    ) -> FillRequest:
        candidates = {id(index): index for index in (old, self._projects.peek(number)) if index is not None}.values()
        donors = [index for index in candidates if not index.is_torn and index.table.dimensions == facts.dim]
        return FillRequest(
            key=key,
            number=number,
            seq=seq,
            facts=facts,
            model=facts.model,
            dimensions=facts.dim,
            memories=facts.memories(),
            facts_seq=facts.seq,
            donors=donors,
            old=old,
            pending=pending,
            is_live=is_live,
        )

    # Filling.

    def fill(self, request: FillRequest, *, is_locked: bool = False) -> None:
        """Fill the index of a request, or wait for a thread that is filling it.

        With `is_locked` the caller holds the state lock, which such a thread may need: then this one does not wait.
        """
        if request.key is None:
            self._drafts = [*self._drafts, (request.facts, self._fill_index(request))][-_DRAFTS_MAX:]
            return
        if request.old is not None:
            self._projects.drop(request.key, request.old)
        if is_locked:
            index = self._fill_index(request)
            self._projects.put(request.key, index)
        else:
            index = self._projects.get(request.key, partial(self._fill_index, request))
        if self.is_closed:
            index.close()

    def _fill_index(self, request: FillRequest) -> ProjectIndex:
        if request.is_live and not request.donors:
            index = self._fill_stored(request)
            if index is not None:
                return index
        return self._fill_rows(request, (), range(len(request.memories)))

    def _fill_stored(self, request: FillRequest) -> ProjectIndex | None:
        """Fill an index from the rows and the graph in the store; return `None` if neither fits."""
        blob = self._source.graph(request.number)
        if blob is not None and hnsw.library() is None:
            blob = None
        index = self._unpack_index(request)
        try:
            if index is not None:
                if blob is not None:
                    index.table.graph_from_bytes(blob)
            elif blob is not None:
                index = self._fill_for_graph(request, blob)
        except (hnsw.UnfitGraph, StoreCorrupt) as error:
            logger().info("the stored graph of stream %d is built anew: %s", request.number, error)
        if index is not None:
            index.stored_graph = index.table.view().graph
        return index

    def _unpack_index(self, request: FillRequest) -> ProjectIndex | None:
        """Fill an index with packed rows and the changes since; return `None` if no fitting rows are stored."""
        try:
            packed = self._source.rows(request.number)
            if packed is None:
                return None
            changed = self._source.changed(request.number, packed.values["seq"], request.seq)
            if changed is None:
                refuse("too much changed since")
            index = self._new_index(request)
            index.unpack(packed, request.memories, changed, index.load)
        except (UnfitRows, LookupError, TypeError, ValueError) as error:
            logger().info("the rows of stream %d are filled from the log: %s", request.number, error)
            return None
        return index

    def _fill_for_graph(self, request: FillRequest, blob: bytes) -> ProjectIndex:
        """Fill an index for a stored graph: the graph's rows come first, in its order, dead ones included."""
        seqs: list[int] = hnsw.seqs_of(blob).tolist()
        entries = request.memories.all()
        places = {entry.vector_seq: place for place, entry in enumerate(entries)}
        if NO_VECTOR in places:
            raise hnsw.UnfitGraph("a vector that it was built with was erased")
        lost = [seq for seq in seqs if seq not in places]
        if len(lost) > _LOST_RATIO_MAX * len(seqs) or (lost and not 0 < min(lost) <= max(lost) <= request.seq):
            raise hnsw.UnfitGraph("too many of its rows are gone")
        places |= {seq: len(entries) + place for place, seq in enumerate(lost)}
        graph_places = [places[seq] for seq in seqs]
        in_graph = set(graph_places)
        other_places = [place for place in range(len(entries)) if place not in in_graph]
        index = self._fill_rows(request, lost, [*graph_places, *other_places])
        index.table.graph_from_bytes(blob)
        return index

    def _fill_rows(self, request: FillRequest, lost: Sequence[int], places: Sequence[int]) -> ProjectIndex:
        entries = request.memories.all()
        sources = [*(entry.vector_seq for entry in entries), *lost]
        seqs = [sources[place] for place in places]
        units = self.loader.load(seqs, request.donors, request.pending, dimensions=request.dimensions)
        index = self._new_index(request)
        index.fill(entries, lost, places, units)
        return index

    def _new_index(self, request: FillRequest) -> ProjectIndex:
        model, dimensions = request.model, request.dimensions
        table = VectorTable(
            dimensions,
            model,
            since=request.seq,
            crossover=_MEASURED if request.is_live else _NEVER,
            # Identifies the graph of this store, this stream and these vectors.
            name=f"{self._source.name}/{request.number}/{model}",
        )
        load = partial(self.loader.load, dimensions=dimensions)
        index = ProjectIndex(table, request.facts_seq, request.seq, load, self._source.state_lock)
        index.key = request.key
        return index

    # The nearest memory.

    def nearest(self, view: IndexView, packed: bytes, speaker: str | None, least: float) -> Neighbour | None:
        """Find the active memory of one user, or of nobody by name, that is most similar to a vector.

        Ties go to the most important, then to the oldest. Those whose cosine is under `least` need not be found.
        """
        vector, count = unit(packed), _CANDIDATES
        while True:
            query = Query(vector=packed, filter=Filter(statuses=(ACTIVE,)), top_k=count)
            hits = nearest(view.project.table, query, view=view.table).hits
            found = self._best_of(view, [hit.row for hit in hits], vector, speaker)
            if len(hits) < count or hits[-1].cosine < (least if found is None else found.cosine) - _NEAR:
                return found
            count *= _CANDIDATES

    def _best_of(self, view: IndexView, rows: Sequence[int], vector: Array, speaker: str | None) -> Neighbour | None:
        columns = view.table.columns
        ranks = {
            row: (exact_cosine(columns.matrix[row], vector), columns.importance[row], -columns.orders[row])
            for row in rows
        }
        for row in sorted(rows, key=ranks.__getitem__, reverse=True):
            with self._source.state_lock:
                entries = view.entries([row])
            if entries is not None and entries[0].speaker == speaker:
                return Neighbour(entries[0], ranks[row][0], columns.matrix[row])
        return None

    # Episodes.

    def vectors(self, key: str, dimensions: int, seqs: Sequence[int], pending: Sequence[Event]) -> Array:
        """Return the vectors of a stream's episodes at `seqs`, of length 1, and cache them under the key."""
        stored = sorted(seq for seq in seqs if seq > 0)
        units: Array = np.zeros((len(seqs), dimensions), np.float32)
        if stored:
            sources, matrix = self._episodes_of((key, dimensions), stored)
            places = [place for place, seq in enumerate(seqs) if seq > 0]
            units[places] = matrix[sources.searchsorted([seqs[place] for place in places])]
        for place, seq in enumerate(seqs):
            if seq < 0:
                units[place] = unit(vector_of(pending[-1 - seq]))
        return units

    def _episodes_of(self, key: tuple[str, int], seqs: Sequence[int]) -> tuple[Array, Array]:
        """Return the seqs, in order, and the vectors of all episodes cached under a key, among them those at `seqs`."""
        with enter_once(self._episodes_lock):
            table = self._episodes.find(key) or VectorTable(key[1], "", crossover=_NEVER)
            missing = np.setdiff1d(seqs, table.sources())
            if len(missing) and len(table) and missing[0] < table.sources()[-1]:
                # From another branch: rows are in the order of their seqs, so all are added again.
                missing = np.union1d(seqs, table.sources())
                table = VectorTable(key[1], "", crossover=_NEVER)
            if len(missing):
                fresh: list[int] = missing.tolist()
                units = self.loader.load(fresh, dimensions=key[1])
                table.extend(fresh, units, categories=[""], importance=0.0, accessed_ns=0, are_units=True)
                self._episodes.put(key, table)
            return table.sources(), table.view().columns.matrix

    # Graphs.

    def store_grown_graph(self, index: ProjectIndex) -> None:
        """Store a graph that has doubled since it was last stored, with the next commit.

        Packing is slow, so it holds no lock; it packs one view, which is enough.
        """
        graph, stream = index.table.view().graph, index.stream
        if graph is None or graph is index.grown_graph or stream is None or self._source.readonly:
            return
        before, index.grown_graph = index.grown_graph or index.stored_graph, graph
        if before is not None and graph.row_count < _GRAPH_GROWTH * before.row_count:
            index.grown_graph = before
            return
        blob = index.table.graph_to_bytes(index.seq)
        with self._source.state_lock:
            # Not after an erasure, which removes the graph's rows from the store.
            if blob is not None and not self.is_closed:
                self._source.store_graph(stream.number, blob)

    def new_graphs(self) -> list[tuple[int, bytes]]:
        """Return the graphs that the store lacks, by stream number; the caller holds the state lock."""
        rows: list[tuple[int, bytes]] = []
        for index in self._projects.all():
            graph = index.table.view().graph
            if index.stream is not None and graph is not None and graph is not index.stored_graph:
                blob = index.table.graph_to_bytes(index.seq)
                assert blob is not None, "a graph went under the state lock"
                rows.append((index.stream.number, blob))
                index.stored_graph = graph
        return rows

    def new_rows(self) -> list[tuple[int, bytes]]:
        """Return packed rows that the store lacks, by stream number; the caller holds the state lock.

        Only indexes with many changes since the last time are packed, which keeps the cost per change low.
        """
        blocks: list[tuple[int, bytes]] = []
        for index in self._projects.all():
            least = max(len(index) // _REPACKED_SHARE, PACKED_ROWS_MIN)
            is_due = not index.packed_seq or index.changes_count >= least
            is_small = index.table.nbytes <= PACKED_ROWS_BYTES_MAX
            if index.stream is None or not is_due or not is_small or len(index.rows) < PACKED_ROWS_MIN:
                continue
            block = index.pack()
            if block is not None:
                blocks.append((index.stream.number, block))
                index.packed_seq, index.changes_count = index.seq, 0
        return blocks


def _view_of(index: ProjectIndex, needs: ViewOptions) -> IndexView:
    return IndexView(
        index,
        index.table.view(),
        index.seq,
        None,
        index.take_changes() if needs.changes_of is index else None,
        index.all_entries() if needs.by_row else (),
    )


class TextScores(NamedTuple):
    """The text scores of each row: their weighted sum, and the signals one by one."""

    extra: Array | None
    parts: dict[str, Array]


def compare_texts(texts: TextIndex, orders: Array, query: Query) -> TextScores:
    """Compare a query with texts; `orders` maps each row of a table to its row among the texts."""
    weights = query.ranking.weights()
    names = [name for name in TEXT_SIGNALS if query.explain or name in weights]
    parts = texts.signals(query, names)
    scored = {name: part for name, part in parts.items() if name in weights}
    extra = np.take(weigh_signals(query.ranking, scored, texts.size), orders, mode="clip") if scored else None
    return TextScores(extra, {name: np.take(part, orders, mode="clip") for name, part in parts.items()})


def search_view(view: IndexView, query: Query, texts: TextScores | None) -> Matches:
    """Find the rows that answer a query best."""
    extra = None if texts is None else texts.extra
    return search(view.project.table, view.query(query), view=view.table, extra=extra)


def search_view_many(view: IndexView, queries: Sequence[Query], texts: Sequence[TextScores | None]) -> list[Matches]:
    """Answer queries that differ only in text and vector, as `search_view` does."""
    chosen = view.query(queries[0]).filter
    extras = [None if scores is None else scores.extra for scores in texts]
    return search_many(view.table, [replace(query, filter=chosen) for query in queries], extras)


def signals_of(
    view: IndexView, query: Query, texts: TextScores | None, pairs: Sequence[tuple[Match, Entry]]
) -> list[dict[str, float]]:
    """Compute the signals of each match: those with a weight, or all of them if the query is to be explained."""
    parts = {} if texts is None else texts.parts
    if not query.explain:
        names = tuple(query.ranking.weights())
        return [
            {name: float(parts[name][match.row]) if name in parts else getattr(match, name) for name in names}
            for match, _ in pairs
        ]
    keywords = set(query.keywords)
    wide = None if query.vector is None else unit(query.vector).astype(np.float64)
    explained: list[dict[str, float]] = []
    for match, entry in pairs:
        signals = {name: float(part[match.row]) for name, part in parts.items()}
        if wide is not None:
            product = float(np.add.reduce(view.table.columns.matrix[match.row] * wide))
            signals["cosine"] = min(1.0, max(-1.0, product))
        own = {word.lower() for word in entry.words}
        signals["keywords"] = len(keywords & own) / max(len(keywords | own), 1)
        signals["importance"] = entry.importance
        accessed_ns = int(view.table.columns.accessed[match.row])
        (signals["recency"],) = recency_of(query.ranking, query.now_ns or 0, [accessed_ns])
        explained.append({name: signals[name] for name in SIGNALS if name in signals})
    return explained
