"""The index of an engine: the rows of each project that is searched, and rankings answered from them."""

import logging
import math
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from refold.entry import ACTIVE, NO_VECTOR, Entry
from refold.errors import StoreCorrupt
from refold.event import Event
from refold.index import hnsw
from refold.index.columns import NEAREST, Array, Scoring, faded
from refold.index.hnsw import library
from refold.index.project import DECIMALS, Followed, Stock, Units, exact, unit, vector_of
from refold.index.ranking import SIGNALS, Columns, Query, Ranking, score
from refold.index.rows import Filters, Moment
from refold.index.search import Match, Matches, Wish
from refold.index.search import Query as Asked
from refold.index.vectors import Crossover, Shelf, Shelves
from refold.limits import EPISODES_PARTS_COUNT, GRAPH_GROWTH_RATIO, LOST_RATIO_MAX, STOCKED_PARTS_COUNT
from refold.text import keywords
from refold.views.facts import FACTS, Facts

# What an engine keeps of the vectors of memories: for each project that is searched its rows on a shelf.
#
# The one cache of vectors. The rows of a live stream are told of each of its events, so that they stand where it
# stands, and give the moments that they know. What they cannot give - an earlier state, one of a branch that has no
# events of its own, one of an open batch - has rows of its own, whose vectors are taken from others where they are
# there.

_logger = logging.getLogger("refold")

_NEVER: Final = Crossover(2**31, 2**31)
_MEASURED: Crossover | None = None
"""From where on the rows of live streams are searched with a graph: what a timed product tells."""

_NEAR: Final = 2 * 10.0**-DECIMALS
_CANDIDATES: Final = 8
_DRAFTS_COUNT_MAX: Final = 2


class Neighbour(NamedTuple):
    """The memory that is most alike to a vector, their cosine, and the memory's own vector of length 1."""

    entry: Entry
    cosine: float
    own: Array


class Sight(NamedTuple):
    """What a search looks at: a moment for good, and how its rows become memories."""

    stock: Stock
    moment: Moment
    seq: int
    then: Mapping[str, Entry] | None
    """The memories of an earlier state that the rows of a later one show; ``None`` where ``stock`` has them."""
    changes: dict[int, Entry | None] | None = None
    """What the columns of texts do not know yet, if that was asked."""
    everyone: Sequence[Entry | None] = ()
    """The memories by row, if that was asked."""

    def entries(self, rows: Sequence[int]) -> list[Entry] | None:
        """Return the memories of rows, ``None`` if they changed too much since; the state lock is held."""
        if self.then is not None:
            return [self.then[self.stock.ids[row]] for row in rows]
        return self.stock.entries_at(self.seq, rows)


class Missing(NamedTuple):
    """Rows that have to be filled before a search: what they hold, and whose vectors may be used."""

    key: Hashable
    number: int
    seq: int
    facts: Facts
    entries: list[Entry]
    model: str
    dimensions: int
    facts_seq: int
    donors: list[Stock]
    old: Stock | None
    pending: Sequence[Event]
    is_live: bool


class Wanted(NamedTuple):
    """What of a state is looked for beside its rows."""

    needs_own: bool = False
    """No moment of later rows will do."""
    changes_of: Stock | None = None
    """The rows whose changed texts are taken."""
    needs_everyone: bool = False


class Source(NamedTuple):
    """The store that the rows are of, as far as they ask for it."""

    name: str
    readonly: bool
    memory_bytes: int
    state_lock: AbstractContextManager[Any]
    load_vectors: Callable[[Sequence[int]], list[bytes]]
    """Returns the vectors of the events at seqs, as raw float32."""
    stream: Callable[[str], Followed | None]
    """Returns the stream of a key, ``None`` where none was touched."""
    place: Callable[[str, int], tuple[int, int]]
    """Returns the last event of a stream at or before a seq: the number of the stream that holds it, and its seq."""
    graph: Callable[[int], bytes | None]
    """Returns the stored graph of the stream of a number."""
    store_graph: Callable[[int, bytes], None]
    """Stores the graph of the stream of a number with the next commit."""


class Similarity:
    """The rows of all projects; ``glance`` is called with the state lock, everything else without."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.units = Units(source.load_vectors)
        self._stocks: Shelves[Stock] = Shelves(source.memory_bytes // STOCKED_PARTS_COUNT)
        self._drafts: list[tuple[Facts, Stock]] = []
        """The states of open batches that were searched last."""
        self._episodes: Shelves[Shelf] = Shelves(source.memory_bytes // EPISODES_PARTS_COUNT)
        self._episodes_lock = threading.Lock()
        self.is_closed = False

    def close(self) -> None:
        """Let everything go, and end the threads."""
        self.is_closed = True
        self._drafts.clear()
        self._stocks.close()
        self._episodes.close()

    @property
    def nbytes(self) -> int:
        """What all rows take in RAM."""
        return self._stocks.nbytes + self._episodes.nbytes

    # Looking.

    def touch(self, stock: Stock) -> None:
        """Take note that rows were looked at: those that were not for longest leave first."""
        if stock.key is not None:
            self._stocks.touch(stock.key, stock)

    def glance(
        self, key: str, facts: Facts, at: int | None, pending: Sequence[Event], wanted: Wanted
    ) -> Sight | Missing | None:
        """Return the rows of a state, what is needed to fill them, or ``None`` if there are none.

        ``at`` is the seq of the state, ``None`` for a live one, or that of an open batch with its ``pending`` events.
        """
        if not facts.entries:
            return None
        slot = self._source.stream(key)
        is_live = slot is not None and slot.state is not None and slot.state.part(FACTS) is facts
        if slot is not None and is_live and slot.number:
            return self._live(slot, facts, wanted)
        if slot is not None and (is_live or at is not None):
            return self._earlier(slot, slot.seq if at is None or is_live else at, facts, wanted, is_inherited=is_live)
        return self._draft(slot, facts, pending, wanted)

    def _live(self, slot: Followed, facts: Facts, wanted: Wanted) -> Sight | Missing:
        gone, stock = slot.stock, self._stocks.peek(slot.number)
        if gone is not None and gone is not stock:
            gone.detach()  # It had to leave, and is counted by nobody any more.
        if stock is not None and stock.slot is not slot and not stock.is_torn:
            is_there = (stock.shelf.model, stock.shelf.dimensions) == (facts.model, facts.dim)
            if is_there and stock.catch_up(facts, slot.seq, partial(self.units.load, dimensions=facts.dim)):
                stock.attach(slot)
        if stock is None or stock.slot is not slot or stock.is_worn:
            return self._missing(slot.number, slot.number, facts, slot.seq, stock or gone, is_live=True)
        return _sight(stock, wanted)

    def _earlier(self, slot: Followed, at: int, facts: Facts, wanted: Wanted, *, is_inherited: bool) -> Sight | Missing:
        """Return the rows of a state that changes no more: a moment of the stream's own, or rows for it alone."""
        number, seq = self._source.place(slot.key, at)
        live = self._stocks.peek(number)
        if live is not None and not (wanted.needs_own or is_inherited) and live.shelf.since <= seq <= live.seq:
            sight = Sight(live, live.past(seq, facts.entries), seq, facts.entries)
            if wanted.needs_everyone:
                sight = sight._replace(everyone=[facts.entries.get(entry_id) for entry_id in live.ids])
            return sight
        stock = self._stocks.peek((number, seq))
        if stock is None:
            return self._missing((number, seq), number, facts, seq, None, is_live=False)
        return _sight(stock, wanted)

    def _draft(self, slot: Followed | None, facts: Facts, pending: Sequence[Event], wanted: Wanted) -> Sight | Missing:
        """Return the rows of a state of an open batch, brought up to date."""
        load = partial(self.units.load, pending=pending, dimensions=facts.dim)
        for held, stock in self._drafts:
            is_fit = (stock.shelf.model, stock.shelf.dimensions) == (facts.model, facts.dim) and not stock.is_worn
            if held is facts and is_fit and stock.catch_up(facts, stock.seq + 1, load):
                return _sight(stock, wanted)
        self._drafts = [(held, stock) for held, stock in self._drafts if held is not facts]
        number = 0 if slot is None else slot.number
        return self._missing(None, number, facts, 1, None, pending=pending, is_live=False)

    def _missing(
        self,
        key: Hashable,
        number: int,
        facts: Facts,
        seq: int,
        old: Stock | None,
        *,
        pending: Sequence[Event] = (),
        is_live: bool,
    ) -> Missing:
        entries = list(facts.entries.values())
        found = {id(stock): stock for stock in (old, self._stocks.peek(number))}.values()
        donors = [
            stock for stock in found if stock is not None and not stock.is_torn and stock.shelf.dimensions == facts.dim
        ]
        return Missing(
            key, number, seq, facts, entries, facts.model, facts.dim, facts.seq, donors, old, pending, is_live
        )

    # Filling.

    def fill(self, missing: Missing) -> None:
        """Fill rows that are missing."""
        if missing.key is None:
            self._drafts = [*self._drafts, (missing.facts, self._filled(missing))][-_DRAFTS_COUNT_MAX:]
            return
        if missing.old is not None:
            self._stocks.drop(missing.key, missing.old)
        stock = self._stocks.get(missing.key, partial(self._filled, missing))
        if self.is_closed:
            stock.close()

    def _filled(self, missing: Missing) -> Stock:
        blob = self._source.graph(missing.number) if missing.is_live else None
        if blob is not None and not missing.donors and library() is not None:
            try:
                return self._filled_for(missing, blob)
            except (hnsw.UnfitGraph, StoreCorrupt) as error:
                _logger.info("the stored graph of stream %d is built anew: %s", missing.number, error)
        return self._filled_with(missing, (), range(len(missing.entries)))

    def _filled_for(self, missing: Missing, blob: bytes) -> Stock:
        """Return rows with a stored graph: those that it names stand first, in its order, gone ones too."""
        names: list[int] = hnsw.names_of(blob).tolist()
        places = {entry.vector_seq: place for place, entry in enumerate(missing.entries)}
        if NO_VECTOR in places:
            raise hnsw.UnfitGraph("a vector that it was built with was erased")
        lost = [seq for seq in names if seq not in places]
        if len(lost) > LOST_RATIO_MAX * len(names) or (lost and not 0 < min(lost) <= max(lost) <= missing.seq):
            raise hnsw.UnfitGraph("too many of its rows are gone")
        places |= {seq: len(missing.entries) + place for place, seq in enumerate(lost)}
        first = [places[seq] for seq in names]
        known = set(first)
        rest = [place for place in range(len(missing.entries)) if place not in known]
        stock = self._filled_with(missing, lost, [*first, *rest])
        stock.shelf.graph_from_bytes(blob)
        stock.stored_graph = stock.shelf.now().graph
        return stock

    def _filled_with(self, missing: Missing, lost: Sequence[int], places: Sequence[int]) -> Stock:
        shelf = Shelf(
            missing.dimensions,
            missing.model,
            since=missing.seq,
            crossover=_MEASURED if missing.is_live else _NEVER,
            name=self._name(missing),
        )
        sources = [*(entry.vector_seq for entry in missing.entries), *lost]
        load = partial(self.units.load, dimensions=missing.dimensions)
        units = load([sources[place] for place in places], missing.donors, missing.pending)
        stock = Stock(shelf, missing.facts_seq, missing.seq, load, self._source.state_lock)
        stock.key = missing.key
        stock.fill(missing.entries, lost, places, units)
        return stock

    def _name(self, missing: Missing) -> str:
        """Return what a stored graph is known by: of this store, this stream and these vectors."""
        return f"{self._source.name}/{missing.number}/{missing.model}"

    # Answers.

    def best(self, sight: Sight, packed: bytes) -> list[tuple[int, float]]:
        """Return the active rows that are most alike to a vector, with their cosines: those that tie for the first."""
        active = Filters(statuses=(ACTIVE,))
        vector, count = unit(packed), _CANDIDATES
        while True:
            wish = Wish(now_ns=0, top_k=count, scoring=NEAREST, filters=active)
            hits = sight.stock.shelf.nearest(packed, wish, moment=sight.moment).hits
            if len(hits) < count or hits[-1].cosine < hits[0].cosine - _NEAR:
                break
            count *= _CANDIDATES
        found = [(hit.row, exact(sight.moment.frame.matrix[hit.row], vector)) for hit in hits]
        most = max((cosine for _, cosine in found), default=0.0)
        return [pair for pair in found if pair[1] == most]

    def match(self, sight: Sight, packed: bytes) -> Neighbour | None:
        """Return the active memory that is most alike to a vector; of several the most important, then the oldest."""
        found = self.best(sight, packed)
        with self._source.state_lock:
            entries = sight.entries([row for row, _ in found])
        if not found or entries is None:
            return None
        frame = sight.moment.frame
        place = max(range(len(found)), key=lambda at: (frame.importance[found[at][0]], -frame.orders[found[at][0]]))
        row, cosine = found[place]
        return Neighbour(entries[place], cosine, frame.matrix[row])

    # Episodes.

    def vectors(self, key: str, dimensions: int, seqs: Sequence[int], pending: Sequence[Event]) -> Array:
        """Return the vectors of a stream's episodes at seqs, of length 1; they stay on a shelf under the key."""
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
        """Return seqs, in order, and vectors of the episodes under a key, with all that are asked for among them."""
        with self._episodes_lock:
            shelf = self._episodes.get(key, lambda: Shelf(key[1], "", crossover=_NEVER))
            missing = np.setdiff1d(seqs, shelf.sources())
            if len(missing) and len(shelf) and missing[0] < shelf.sources()[-1]:
                # Of another branch: rows stand in the order of their seqs, so all are laid out anew.
                missing = np.union1d(seqs, shelf.sources())
                self._episodes.drop(key, shelf)
                shelf = self._episodes.get(key, lambda: Shelf(key[1], "", crossover=_NEVER))
            if len(missing):
                found: list[int] = missing.tolist()
                units = self.units.load(found, dimensions=key[1])
                shelf.extend(found, units, categories=[""], importance=0.0, accessed_ns=0, are_units=True)
            return shelf.sources(), shelf.now().frame.matrix

    # Graphs.

    def keep_grown(self, stock: Stock) -> None:
        """Let the row of a graph that has doubled since it was stored travel with the next commit.

        Packing it takes a while, so that no lock is held meanwhile; what is packed is of a moment, which is enough.
        """
        graph, slot = stock.shelf.now().graph, stock.slot
        if graph is None or graph is stock.grown_graph or slot is None or self._source.readonly:
            return
        before, stock.grown_graph = stock.grown_graph or stock.stored_graph, graph
        if before is not None and graph.covered < GRAPH_GROWTH_RATIO * before.covered:
            stock.grown_graph = before
            return
        blob = stock.shelf.graph_to_bytes(stock.seq)
        with self._source.state_lock:
            # Not after an erasure: the rows that it is of are gone from the store.
            if blob is not None and not self.is_closed:
                self._source.store_graph(slot.number, blob)

    def new_graphs(self) -> list[tuple[int, bytes]]:
        """Return the graphs that the store does not have yet, by number of stream; the state lock is held."""
        rows: list[tuple[int, bytes]] = []
        for _, stock in self._stocks.all():
            graph = stock.shelf.now().graph
            if stock.slot is not None and graph is not None and graph is not stock.stored_graph:
                blob = stock.shelf.graph_to_bytes(stock.seq)
                assert blob is not None, "a graph went while the state lock was held"
                rows.append((stock.slot.number, blob))
                stock.stored_graph = graph
        return rows


def _sight(stock: Stock, wanted: Wanted) -> Sight:
    return Sight(
        stock,
        stock.shelf.now(),
        stock.seq,
        None,
        stock.changes() if wanted.changes_of is stock else None,
        list(stock.entries) if wanted.needs_everyone else (),
    )


TEXTUAL: Final = ("bm25", "idf_cosine", "coverage", "question")
"""The signals that compare texts; the others are columns of a shelf."""

_LINEAR: Final = tuple(name for name in SIGNALS if name not in TEXTUAL)
_AT_ONCE: Final = 1e18
"""The rate of a recency that is gone after a moment."""


class Filter(NamedTuple):
    """Which memories a search may find."""

    categories: tuple[str, ...] | None
    statuses: tuple[str, ...] | None
    min_importance: float
    metadata: Mapping[str, Any] | None

    def lets(self, entry: Entry) -> bool:
        """Return whether a memory has the metadata that is asked for."""
        held = entry.metadata or {}
        return all(name in held and held[name] == value for name, value in (self.metadata or {}).items())

    def of(self, sight: Sight) -> Filters:
        """Return the filter as a shelf takes it."""
        rows = None
        if self.metadata is not None:
            passing = [row for row, entry in enumerate(sight.everyone) if entry is not None and self.lets(entry)]
            rows = np.array([row for row in passing if row < sight.moment.count], np.intp)
        least = self.min_importance or None
        return Filters(categories=self.categories, statuses=self.statuses, min_importance=least, rows=rows)


class Question(NamedTuple):
    """What is looked for, ready for any state."""

    text: str
    ranking: Ranking
    packed: bytes | None
    now_ns: int
    top_k: int
    filter: Filter
    explains: bool

    @property
    def needs_texts(self) -> bool:
        """Whether texts have to be compared."""
        return self.explains or any(getattr(self.ranking, name) for name in TEXTUAL)


class TextScores(NamedTuple):
    """What the comparison of texts says of each row, weighted, and signal by signal."""

    extra: Array | None
    parts: dict[str, Array]


@lru_cache(maxsize=64)
def scoring_of(ranking: Ranking) -> Scoring:
    """Return the part of a ranking that is linear in what a shelf knows."""
    is_exponential = ranking.recency_curve == "exponential"
    rate = ranking.recency_rate
    if is_exponential:
        rate = -math.log(ranking.recency_weekly) / 7 if ranking.recency_weekly else _AT_ONCE
    return Scoring(
        cosine=ranking.cosine,
        keywords=ranking.keywords,
        importance=ranking.importance,
        recency=ranking.recency,
        fading="exponential" if is_exponential else "hyperbolic",
        rate=max(rate, 0.0),
    )


def compared(columns: Columns, orders: Array, question: Question) -> TextScores:
    """Return what the texts say of each row; ``orders`` are the rows' places among them."""
    ranking = question.ranking
    weights = {name: getattr(ranking, name) for name in TEXTUAL}
    query = Query(text=question.text, now_ns=question.now_ns)
    nothing = dict.fromkeys(_LINEAR, 0.0)
    extra: Array | None = None
    parts: dict[str, Array] = {}
    if any(weights.values()):
        total, parts = score(replace(ranking, **nothing), query, columns)
        extra = np.take(total, orders, mode="clip")
    if question.explains:
        parts = score(replace(ranking, **nothing, **dict.fromkeys(TEXTUAL, 1.0)), query, columns)[1]
    return TextScores(extra, {name: np.take(part, orders, mode="clip") for name, part in parts.items()})


def found(sight: Sight, question: Question, texts: TextScores | None) -> Matches:
    """Return the rows that answer a question best."""
    return sight.stock.shelf.search(_asked(question, texts), _wish(question, sight), moment=sight.moment)


def found_together(sight: Sight, questions: Sequence[Question], texts: Sequence[TextScores | None]) -> list[Matches]:
    """Return what ``found`` returns for questions that differ in what is looked for alone."""
    asked = list(map(_asked, questions, texts))
    return sight.stock.shelf.search_many(asked, _wish(questions[0], sight), moment=sight.moment)


def _asked(question: Question, texts: TextScores | None) -> Asked:
    ranking = question.ranking
    return Asked(
        question.packed if ranking.cosine else None,
        keywords(question.text) if ranking.keywords else (),
        None if texts is None else texts.extra,
    )


def _wish(question: Question, sight: Sight) -> Wish:
    scoring = scoring_of(question.ranking)
    return Wish(now_ns=question.now_ns, top_k=question.top_k, scoring=scoring, filters=question.filter.of(sight))


def parts_of(
    sight: Sight, question: Question, texts: TextScores | None, pairs: Sequence[tuple[Match, Entry]]
) -> list[dict[str, float]]:
    """Return the signals of each match: those that have a weight, or all of them."""
    ranking = question.ranking
    if not question.explains:
        names = tuple(ranking.weights())
        if texts is None:
            return [{name: getattr(match, name) for name in names} for match, _ in pairs]
        return [
            {
                name: float(texts.parts[name][match.row]) if name in texts.parts else getattr(match, name)
                for name in names
            }
            for match, _ in pairs
        ]
    assert texts is not None, "an explanation compares texts"
    asked = set(keywords(question.text))
    wide = None if question.packed is None else unit(question.packed).astype(np.float64)
    explained: list[dict[str, float]] = []
    for match, entry in pairs:
        signals = {} if wide is None else {"cosine": _cosine(sight, match.row, wide)}
        own = {word.lower() for word in entry.words}
        signals["keywords"] = len(asked & own) / max(len(asked | own), 1)
        signals |= {name: float(part[match.row]) for name, part in texts.parts.items()}
        signals["importance"] = entry.importance
        (signals["recency"],) = faded(
            scoring_of(ranking), question.now_ns, [int(sight.moment.frame.accessed[match.row])]
        )
        explained.append({name: signals[name] for name in SIGNALS if name in signals})
    return explained


def _cosine(sight: Sight, row: int, wide: Array) -> float:
    return min(1.0, max(-1.0, float(np.add.reduce(sight.moment.frame.matrix[row] * wide))))
