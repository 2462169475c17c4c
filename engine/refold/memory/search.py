"""Searches of memories and episodes, which write nothing; recalls and new episodes, which are recorded."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from msgspec.structs import astuple, force_setattr, replace

from refold import checks
from refold.embedders import Vector, parse_vector
from refold.engine import batch as batches
from refold.engine.observer import SEARCH, measure
from refold.engine.origin import Origin
from refold.entry import ACTIVE, CATEGORIES, STATUSES, Entry, MemoriesRecalled
from refold.errors import StoreBusy
from refold.event import Event, Recorded, Stamp, pack_json, unpack_json
from refold.fold import State
from refold.index import index
from refold.index.columns import product
from refold.index.index import FillRequest, IndexView, TextScores, ViewOptions
from refold.index.project import unit
from refold.index.ranking import DEFAULT, RANKINGS, SIGNALS, Filter, Query, Ranking, ranking_of
from refold.index.search import Matches
from refold.index.signals import RowText, TextIndex
from refold.limits import (
    FILLS_COUNT_MAX,
    KEYWORDS_COUNT_MAX,
    NAME_BYTES_MAX,
    QUERIES_BYTES_MAX,
    QUERIES_COUNT_MAX,
    REDO_COUNT_MAX,
)
from refold.memory.core import Core
from refold.memory.facts import ProjectStream, check_keywords, check_model
from refold.memory.options import Options, conversation_id, nanoseconds
from refold.results import Hit, Hits, ProjectStats
from refold.text import keywords as keywords_of
from refold.threads import enter_once
from refold.views.episodes import EPISODES, KINDS, Episode, EpisodeRecorded, Episodes, episode_of, text_of
from refold.views.facts import FACTS
from refold.views.window import WINDOW

if TYPE_CHECKING:
    import datetime

    from numpy import float32
    from numpy.typing import NDArray


# The rows of a project: taken under the state lock in microseconds, searched without any lock.


def pending_events(core: Core) -> Sequence[Event]:
    """Return the events of this context's open batch."""
    batch = batches.active_batch(core.engine)
    return () if batch is None else batch.transaction.events


_PLAIN = ViewOptions()


def look(stream: ProjectStream, needs: ViewOptions = _PLAIN) -> IndexView | None:
    """Return the rows of a project for a search, or ``None`` if there are no memories.

    Missing rows are loaded first, without the state lock unless other writers write so much that the loaded rows are
    outdated at once.
    """
    core, reader = stream.core, stream.core.engine.reader
    key = core.key(stream.name)

    def query(state: State) -> IndexView | FillRequest | None:
        return reader.indexes.view(key, state.part(FACTS), stream.at, pending_events(core), needs)

    def view() -> IndexView | None:
        for _ in range(FILLS_COUNT_MAX):
            rows = core.read(stream.name, query, stream.at)
            if not isinstance(rows, FillRequest):
                if rows is not None:
                    reader.indexes.touch(rows.project)
                return rows
            reader.indexes.fill(rows)
        with reader.state_lock:
            while isinstance(rows := core.read(stream.name, query, stream.at), FillRequest):
                reader.indexes.fill(rows, is_locked=True)
            return rows

    return reader.index.guard(view)


# Queries: checked, then ready to be answered from any state.

BROWSE: Final = "browse"
_TOP_COUNT_MAX: Final = 1_000_000


def check_query(
    top_k: object,
    categories: object,
    statuses: object,
    min_importance: object,
    metadata: object,
    ranking: object,
    vector: object,
    now: "int | datetime.datetime | None",
    explain: bool,  # noqa: FBT001 - like the other options
    floor: object = None,
    approximate: bool = False,  # noqa: FBT001, FBT002 - like the other options
) -> Query:
    """Check the options of a search, and return a query without its text."""
    if metadata is not None and not isinstance(metadata, Mapping):
        checks.invalid(f"metadata must be a dict, not {type(metadata).__name__} ({checks.brief(metadata)})")
    return Query(
        vector=vector,
        filter=Filter(
            categories=_check_words(categories, "categories", CATEGORIES),
            statuses=_check_words(statuses, "statuses", STATUSES),
            min_importance=checks.fraction(min_importance, "min_importance"),
            metadata=cast("Mapping[str, Any] | None", metadata),
        ),
        ranking=ranking_of(ranking),
        now_ns=None if now is None else nanoseconds(now, "now"),
        top_k=checks.integer(top_k, "top_k", 1, _TOP_COUNT_MAX, "the most hits of a search"),
        explain=checks.flag(explain, "explain"),
        floor=None if floor is None else _check_floor(floor),
        approximate=checks.flag(approximate, "approximate"),
    )


def _check_floor(floor: object) -> float:
    if isinstance(floor, bool) or not isinstance(floor, (int, float)) or not 0 <= floor < math.inf:
        checks.invalid(f"floor is {checks.brief(floor)}; give a score that is 0 (for no floor) or greater")
    return float(floor)


def _check_words(value: object, what: str, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the chosen words, or ``None`` for all of them; a single word can be given as a str."""
    if value is None:
        return None
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, Sequence):
        checks.invalid(f"{what} must be a list of str, not {type(words).__name__} ({checks.brief(words)})")
    return tuple(checks.one_of(word, what, known) for word in cast("Sequence[object]", words))


class ReadyQuery(NamedTuple):
    """A query with its text, vector and time."""

    query: Query
    vector: Vector | None


def _prepare(stream: ProjectStream, queries: Sequence[Query], *, is_empty: bool) -> list[ReadyQuery]:
    """Return queries with their vectors, embedding the missing ones together, and the time that recency refers to.

    That is the given time, the clock, or the moment at which a handle is frozen.
    """
    embedding = stream.core.embedding_at(stream.at)
    # A vector of the caller can be of any model that the project had: which one, the dimension has to say.
    vectors = [None if query.vector is None else parse_vector(query.vector) for query in queries]
    if not is_empty:
        bare = [place for place, query in enumerate(queries) if query.vector is None and query.ranking.cosine]
        for place, vector in zip(bare, embedding.of_all([queries[place].text for place in bare]), strict=True):
            vectors[place] = vector
    ready: list[ReadyQuery] = []
    for query, own in zip(queries, vectors, strict=True):
        now_ns = stream.core.now_ns(stream.at) if query.now_ns is None else query.now_ns
        packed = None if own is None else own.packed
        is_calibrated = query.ranking == RANKINGS[DEFAULT] and query.text.strip() and embedding.is_model_of(own)
        rate = embedding.floor_rate if is_calibrated else 0.0
        ready.append(ReadyQuery(replace(query, vector=packed, now_ns=now_ns, floor_rate=rate), own))
    return ready


def _with_text(text: object, options: Query) -> Query:
    """Return a query with its checked text; an empty one without a vector browses."""
    text = checks.text(text, "query")
    is_empty = not text.strip() and options.vector is None
    return replace(options, text=text, ranking=RANKINGS[BROWSE] if is_empty else options.ranking)


# Searches, which write nothing. Many queries are answered from one state, and multiplied with its rows together.


class SearchOptions(TypedDict, total=False):
    """The options of a search that apply to all of its queries."""

    top_k: int
    categories: Sequence[str] | None
    statuses: Sequence[str] | None
    min_importance: float
    metadata: Mapping[str, Any] | None
    ranking: str | Ranking
    now: "int | datetime.datetime | None"
    explain: bool
    floor: float | None


DEFAULTS: Final[SearchOptions] = {
    "top_k": 10,
    "categories": None,
    "statuses": (ACTIVE,),
    "min_importance": 0.1,
    "metadata": None,
    "ranking": DEFAULT,
    "now": None,
    "explain": False,
    "floor": None,
}
"""The default options of a search."""


def search(stream: ProjectStream, text: object, options: Query) -> Hits:
    """Search the memories of a project."""
    options = _set_ranking(stream.core, options)
    with measure(stream.core.engine.reader.observer, SEARCH):
        return stream.retry(lambda: _search(stream, [_with_text(text, options)])[0])


def search_many(stream: ProjectStream, queries: object, vectors: object, options: SearchOptions) -> list[Hits]:
    """Answer many queries from one state."""
    texts = checks.texts(queries, "queries", "a query")
    if len(texts) > QUERIES_COUNT_MAX:
        checks.invalid(f"{len(texts)} queries are more than QUERIES_COUNT_MAX ({QUERIES_COUNT_MAX}); ask in parts")
    given: list[object] = [None] * len(texts)
    if vectors is not None:
        try:
            given = list(cast("Sequence[object]", vectors))
        except TypeError:
            checks.invalid(f"vectors must be a list, not {type(vectors).__name__} ({checks.brief(vectors)})")
    if len(given) != len(texts):
        checks.invalid(f"{len(given)} vectors for {len(texts)} queries; give one for each, or None in its place")
    unknown = sorted(options.keys() - DEFAULTS.keys())
    if unknown:
        raise TypeError(f"search_many() got unexpected options {unknown}; it takes vectors and {list(DEFAULTS)}")
    chosen: dict[str, Any] = {**DEFAULTS, **options}
    query = _set_ranking(stream.core, check_query(**chosen, vector=None))
    pairs = list(zip(texts, given, strict=True))
    with measure(stream.core.engine.reader.observer, SEARCH):
        return stream.retry(
            lambda: _search(stream, [_with_text(text, replace(query, vector=vector)) for text, vector in pairs])
        )


def _set_ranking(core: Core, query: Query) -> Query:
    """Return a query with the ranking of its scenario, unless it asks for its own."""
    is_own = core.ranking is None or query.ranking != RANKINGS[DEFAULT]
    return query if is_own else replace(query, ranking=core.ranking)


def _search(stream: ProjectStream, queries: Sequence[Query]) -> list[Hits]:
    ready = _prepare(stream, queries, is_empty=stream.read(lambda facts: not facts.count))
    for _ in range(REDO_COUNT_MAX):
        hits = stream.core.engine.reader.index.guard(lambda: _search_once(stream, ready))
        if hits is not None:
            return hits
    raise StoreBusy(f"{stream.name} changed faster than it could be searched; let its writers pause and call again")


def _search_once(stream: ProjectStream, queries: Sequence[ReadyQuery]) -> list[Hits] | None:
    """Return the hits of all queries, or ``None`` if memories changed too much since their rows were taken."""
    by_row = any(query.filter.metadata is not None for query, _ in queries)
    compares_texts = any(query.compares_texts for query, _ in queries)
    view = look(stream, ViewOptions(own_rows=compares_texts, by_row=by_row))
    if view is None:
        return [_no_hits(query) for query, _ in queries]
    if not compares_texts:
        return _answers(stream, view, queries, None)
    texts = view.project.texts
    with enter_once(texts.lock):
        view = look(stream, ViewOptions(own_rows=True, changes_of=view.project, by_row=by_row))
        if view is None or view.changes is None:
            return None
        texts.update(view.changes)
        return _answers(stream, view, queries, texts.index)


def _answers(
    stream: ProjectStream, view: IndexView, queries: Sequence[ReadyQuery], texts: TextIndex | None
) -> list[Hits] | None:
    table = view.project.table
    for _, vector in queries:
        if vector is not None:
            check_model((table.model, table.dimensions), vector, is_empty=False)
    answers: list[Hits] = []
    rows = 0
    for block in _blocks([query for query, _ in queries], view.table.count):
        scores = [
            index.compare_texts(texts, view.table.columns.orders, query)
            if texts is not None and query.compares_texts
            else None
            for query in block
        ]
        if len(queries) == 1:
            matches = [index.search_view(view, block[0], scores[0])]
        else:
            matches = index.search_view_many(view, block, scores)
        rows += sum(match.rows for match in matches)
        for query, score, match in zip(block, scores, matches, strict=True):
            hits = hits_of(stream, view, query, score, match)
            if hits is None:
                return None
            answers.append(hits)
    if (observer := stream.core.engine.reader.observer) is not None:
        observer.record_search(rows, exact=all(hits.exact for hits in answers))
    return answers


def _blocks(queries: Sequence[Query], rows: int) -> Iterator[list[Query]]:
    """Yield runs of consecutive queries with the same ranking, as long as the bound on their products allows."""
    size = max(1, QUERIES_BYTES_MAX // (8 * max(rows, 1)))
    for _, group in groupby(queries, key=lambda query: query.ranking):
        alike = list(group)
        for begin in range(0, len(alike), size):
            yield alike[begin : begin + size]


def _no_hits(query: Query) -> Hits:
    return Hits((), exact=True, query=query.text, ranking=query.ranking.name, floor=query.floor_of(0, {}))


def hits_of(
    stream: ProjectStream, view: IndexView, query: Query, texts: TextScores | None, matches: Matches
) -> Hits | None:
    """Return the memories of matching rows, or ``None`` if they changed too much since."""
    with stream.core.engine.reader.state_lock:
        entries = view.entries([match.row for match in matches.hits])
    if entries is None:
        return None
    stream.core.engine.reader.indexes.store_grown_graph(view.project)
    found = list(zip(matches.hits, entries, strict=True))
    best = index.signals_of(view, query, texts, found[:1])
    floor = query.floor_of(view.table.alive_count, best[0] if best else {})
    if floor and found and found[0][0].score < floor:
        return Hits((), matches.exact, query.text, query.ranking.name, floor)
    if query.floor is None and query.ranking == RANKINGS[DEFAULT]:
        found = [pair for pair in found if pair[0].score > 0]  # The query says nothing about the others.
    parts = index.signals_of(view, query, texts, found)
    scores = [match.score for match, _ in found]
    entries = [entry for _, entry in found]
    return Hits(tuple(map(Hit, entries, scores, parts)), matches.exact, query.text, query.ranking.name, floor)


# Recalls.


def recall(stream: ProjectStream, text: object, query: Query, conversation: object, options: Options) -> Hits:
    """Search, and record the hits."""
    stream.check_writable()
    core = stream.core
    name = conversation_id(conversation)
    sources = core.sources(options.sources)
    request = _recall_request(text, query, name)
    if options.request_id is not None and core.find_answer(options.request_id, stream.name, request) is not None:
        noted = stream.write(lambda _: None, request, options)
        assert noted is not None, "a recall is always recorded"
        return _recall_hits(stream, noted)
    hits = search(stream, text, query)
    if name is not None:
        live = core.read(f"conversation/{name}", lambda state: state.part(WINDOW).live(), None)
        if live and live[-1].stamp.seq not in sources:  # Provisional in an open batch.
            sources = (*sources, live[-1].stamp.seq)
    signals = {part: [hit.parts[part] for hit in hits] for part in (hits[0].parts if len(hits) else ())}
    event = MemoriesRecalled(
        sources,
        tuple(hit.entry.id for hit in hits),
        hits.exact,
        hits.query,
        hits.ranking,
        tuple(hit.score for hit in hits),
        pack_json(signals),
        name,
        hits.floor,
    )
    noted = stream.write(event, request, options)
    assert noted is not None, "a recall is always recorded"
    is_ours = noted[0] is event or noted[1].seq < 0 or options.request_id is None
    return hits if is_ours else _recall_hits(stream, noted)


def _recall_hits(stream: ProjectStream, noted: Recorded) -> Hits:
    """Return the hits of a recall's event, with the memories as they were then."""
    event, stamp = noted
    assert isinstance(event, MemoriesRecalled), event

    def query(state: State) -> list[Entry]:
        entries = state.part(FACTS).entries
        return [entries.get(entry_id) or Entry(entry_id, erased=True) for entry_id in event.ids]

    entries = stream.core.read_around(stream.name, query, stamp, is_before=True)
    signals: dict[str, list[float]] = {} if event.signals is None else unpack_json(event.signals)
    parts = [{name: values[row] for name, values in signals.items()} for row in range(len(entries))]
    scores = event.scores or (0.0,) * len(entries)
    hits = tuple(map(Hit, entries, scores, parts))
    return Hits(hits, exact=event.exact, query=event.query, ranking=event.ranking, floor=event.floor)


def _recall_request(text: object, query: Query, name: str | None) -> tuple[Any, ...]:
    """Return the fields that identify a request. Stored ones were hashed in this order."""
    chosen = query.filter
    metadata = None if chosen.metadata is None else dict(chosen.metadata)
    vector = None if query.vector is None else [float(number) for number in cast("Sequence[float]", query.vector)]
    options = (query.top_k, chosen.categories, chosen.statuses, chosen.min_importance, metadata)
    return ("recall", text, *options, repr(query.ranking), vector, query.now_ns, query.explain, query.floor, name)


# Counts.


def stats(stream: ProjectStream) -> ProjectStats:
    """Return the counts of a project."""

    def query(state: State) -> ProjectStats:
        entries = state.part(FACTS).entries.values()
        episodes = state.part(EPISODES).by_seq.values()
        return ProjectStats(
            len(entries),
            _counts(entry.category for entry in entries),
            _counts(entry.status for entry in entries),
            sum(entry.importance for entry in entries) / len(entries) if entries else 0.0,
            len(episodes),
            _counts(episode.kind for episode in episodes),
        )

    return stream.core.read(stream.name, query, stream.at)


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


# Episodes.

_IMPORTANCE: Final = 0.5  # Episodes have no importance of their own; all are equally important.


def record(
    stream: ProjectStream,
    kind: object,
    session: object,
    task: object,
    approach: object,
    outcome: object,
    tools: object,
    keywords: object,
    vector: object,
    occurred: "int | datetime.datetime | None",
    options: Options,
) -> Episode:
    """Record an episode and return it."""
    stream.check_writable()
    core = stream.core
    texts = checks.text(task, "task"), checks.text(approach, "approach"), checks.text(outcome, "outcome")
    if not texts[0].strip():
        checks.invalid("task is empty; say what was tried")
    fields = EpisodeRecorded(
        core.sources(options.sources),
        core.engine.reader.new_id(),
        checks.one_of(kind, "kind", KINDS),
        None if session is None else checks.text(session, "session", NAME_BYTES_MAX, "NAME_BYTES_MAX"),
        *texts,
        tuple(checks.texts(tools, "tools", "a tool")),
        keywords_of("\n".join(texts))[:KEYWORDS_COUNT_MAX] if keywords is None else check_keywords(keywords),
    )
    occurred_ns = None if occurred is None else nanoseconds(occurred, "occurred")
    given = None if vector is None else core.embedding.parse_vector(vector)
    request = ("record_episode", *astuple(fields)[2:-2], None if given is None else given.packed, occurred_ns)

    def attempt() -> Recorded | None:
        own = core.embedding.of(text_of(fields)) if given is None else given

        def decide(state: State) -> Event:
            episodes = state.part(EPISODES)
            model = check_model((episodes.model, episodes.dim), own, is_empty=not episodes.by_seq)
            return replace(fields, vector=own.packed, model=model)

        return stream.write(decide, request, options, origin=Origin(occurred_ns))

    noted = stream.retry(attempt)
    assert noted is not None, "an episode is always recorded"
    event, stamp = noted
    assert isinstance(event, EpisodeRecorded), event
    episode = episode_of(event, stamp)
    batch = batches.active_batch(core.engine)
    if batch is not None and stamp.seq < 0:
        batch.transaction.callbacks.append((stamp.seq, lambda settled: _settle(episode, settled)))
    return episode


def _settle(episode: Episode, stamp: Stamp) -> None:
    """Fill in an episode that a batch returned before the seq and the times of its event were known."""
    for field in ("seq", "time_ns", "occurred_ns"):
        force_setattr(episode, field, getattr(stamp, field))


def search_episodes(stream: ProjectStream, text: object, kinds: object, options: Query) -> Hits:
    """Search the episodes of a project."""
    chosen = (
        KINDS
        if kinds is None
        else tuple(checks.one_of(kind, "kinds", KINDS) for kind in cast("Sequence[object]", kinds))
    )

    def attempt() -> Hits:
        is_empty = stream.core.read(stream.name, lambda state: not state.part(EPISODES).by_seq, stream.at)
        (ready,) = _prepare(stream, [_with_text(text, options)], is_empty=is_empty)
        return stream.core.read(
            stream.name, lambda state: _episode_hits(stream, state.part(EPISODES), chosen, *ready), stream.at
        )

    with measure(stream.core.engine.reader.observer, SEARCH):
        return stream.retry(attempt)


def _episode_hits(
    stream: ProjectStream, episodes: Episodes, kinds: tuple[str, ...], query: Query, vector: Vector | None
) -> Hits:
    rows = list(episodes.by_seq.values())
    if not rows:
        return _no_hits(query)
    import numpy  # noqa: PLC0415 - loads when the first vector is needed

    texts = TextIndex()
    for row, episode in enumerate(rows):
        texts.add(
            row,
            RowText(text_of(episode)),
            keywords=episode.keywords,
            importance=_IMPORTANCE,
            accessed_ns=2**62 if episode.occurred_ns is None else episode.occurred_ns,
        )
    cosine = _cosines(stream, episodes, vector)
    total, parts = texts.score(query, cosine)
    if query.explain:
        parts = texts.signals(query, [name for name in SIGNALS if cosine is not None or name != "cosine"], cosine)
    chosen = numpy.array([row for row, episode in enumerate(rows) if episode.kind in kinds], dtype=numpy.intp)
    hits = tuple(
        Hit(rows[row], score, {name: float(part[row]) for name, part in parts.items()})
        for row, score in texts.best(total, query.top_k, chosen)
    )
    if (observer := stream.core.engine.reader.observer) is not None:
        observer.record_search(len(rows), exact=True)
    floor = query.floor_of(len(rows), hits[0].parts if hits else {})
    is_below = bool(floor and hits) and hits[0].score < floor
    return Hits(() if is_below else hits, exact=True, query=query.text, ranking=query.ranking.name, floor=floor)


def _cosines(stream: ProjectStream, episodes: Episodes, vector: Vector | None) -> "NDArray[float32] | None":
    if vector is None:
        return None
    check_model((episodes.model, episodes.dim), vector, is_empty=False)
    core, log_reader = stream.core, stream.core.engine.reader
    key, seqs, pending = core.key(stream.name), episodes.vector_seqs(), pending_events(core)
    rows = log_reader.index.guard(lambda: log_reader.indexes.vectors(key, episodes.dim, seqs, pending))
    return cast("NDArray[float32]", product(rows, unit(vector.packed)))
