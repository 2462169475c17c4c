"""Search of memories and episodes, which is pure, recalls, which are recorded, and episodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, cast

from msgspec.structs import astuple, force_setattr, replace

from refold import checks
from refold.engine import batch as batches
from refold.engine import reader
from refold.entry import ACTIVE, CATEGORIES, STATUSES, Entry, MemoriesRecalled, touched
from refold.errors import StoreBusy
from refold.event import Event, Recorded, pack_json, unpack_json
from refold.fold import State
from refold.index import index
from refold.index.columns import product
from refold.index.index import FillRequest, IndexView, Needs, TextScores
from refold.index.project import unit
from refold.index.ranking import RANKINGS, SIGNALS, Filter, Query, Ranking, ranking_of
from refold.index.search import Matches
from refold.index.text import Text, TextIndex
from refold.limits import (
    FILLS_COUNT_MAX,
    KEYWORDS_COUNT_MAX,
    NAME_BYTES_MAX,
    QUERIES_BYTES_MAX,
    QUERIES_COUNT_MAX,
    REDO_COUNT_MAX,
)
from refold.memory.facts import ProjectStream, checked_keywords, fraction, one_of
from refold.memory.options import Door, Options, nanoseconds
from refold.memory.vectors import Vector, fitting
from refold.results import Hit, Hits, ProjectStats
from refold.text import keywords as keywords_of
from refold.views.episodes import EPISODES, KINDS, Episode, EpisodeRecorded, Episodes, episode_of, text_of
from refold.views.facts import FACTS
from refold.views.window import WINDOW

if TYPE_CHECKING:
    import datetime

    from numpy import float32
    from numpy.typing import NDArray


# Looking at a project's rows: taken under the state lock in microseconds, searched without any lock.


def pending_events(door: Door) -> Sequence[Event]:
    """Return the events of this context's open batch."""
    batch = batches.active(door.engine)
    return () if batch is None else batch.transaction.events


_PLAIN = Needs()


def look(place: ProjectStream, needs: Needs = _PLAIN) -> IndexView | None:
    """Return what a search of a project looks at, ``None`` where there are no memories.

    Rows that are not there are filled first; nobody waits for that, unless others write so much meanwhile that what was
    filled is old at once.
    """
    return place.door.engine.reader.index.whole(lambda: _look(place, needs))


def _look(place: ProjectStream, needs: Needs) -> IndexView | None:
    engine = place.door.engine
    for _ in range(FILLS_COUNT_MAX):
        found = _view(place, needs)
        if not isinstance(found, FillRequest):
            if found is not None:
                engine.reader.indexes.touch(found.project)
            return found
        engine.reader.indexes.fill(found)
    with engine.reader.state_lock:
        found = _view(place, needs)
        while isinstance(found, FillRequest):
            engine.reader.indexes.fill(found)
            found = _view(place, needs)
        return found


def _view(place: ProjectStream, needs: Needs) -> IndexView | FillRequest | None:
    door = place.door

    def query(state: State) -> IndexView | FillRequest | None:
        key, facts = door.key(place.name), state.part(FACTS)
        return door.engine.reader.indexes.view(key, facts, place.at, pending_events(door), needs)

    return door.read(place.name, query, place.at)


# Finding memories: searches, which are pure, and recalls, which are recorded.

BROWSE: Final = "browse"
_TOP_COUNT_MAX: Final = 1_000_000


def checked_options(
    top_k: object,
    categories: object,
    statuses: object,
    min_importance: object,
    metadata: object,
    ranking: object,
    vector: object,
    now: "int | datetime.datetime | None",
    explain: bool,  # noqa: FBT001 - as the others
) -> Query:
    """Return a query without its text."""
    if metadata is not None and not isinstance(metadata, Mapping):
        checks.invalid(f"metadata must be a dict, not {type(metadata).__name__} ({checks.shown(metadata)})")
    return Query(
        vector=vector,
        filter=Filter(
            categories=_words(categories, "categories", CATEGORIES),
            statuses=_words(statuses, "statuses", STATUSES),
            min_importance=fraction(min_importance, "min_importance"),
            metadata=cast("Mapping[str, Any] | None", metadata),
        ),
        ranking=ranking_of(ranking),
        now_ns=None if now is None else nanoseconds(now, "now"),
        top_k=checks.integer(top_k, "top_k", 1, _TOP_COUNT_MAX, "the most hits of a search"),
        explain=checks.flag(explain, "explain"),
    )


def _words(given: object, what: str, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return chosen words, ``None`` for all of them; one alone may be given as such."""
    if given is None:
        return None
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Sequence):
        checks.invalid(f"{what} must be a list of str, not {type(given).__name__} ({checks.shown(given)})")
    return tuple(one_of(word, what, known) for word in cast("Sequence[object]", given))


def search(place: ProjectStream, text: object, options: Query) -> Hits:
    """Search the memories of a project."""
    return place.retry(lambda: _search_memories(place, text, options))


def _search_memories(place: ProjectStream, text: object, options: Query) -> Hits:
    query = with_text(text, options)
    is_needed = query.vector is None and place.read(lambda facts: bool(facts.entries))
    vector = query_vector(place, query, is_needed=is_needed)
    query = with_vector(query, vector, moment(place, query.now_ns))
    for _ in range(REDO_COUNT_MAX):
        attempt = _search_texts_once if query.compares_texts else _search_once
        hits = place.door.engine.reader.index.whole(lambda: attempt(place, query, vector))  # noqa: B023 - called at once
        if hits is not None:
            return hits
    raise too_fast(place)


def too_fast(place: ProjectStream) -> StoreBusy:
    """Return the error of a search that others outran."""
    return StoreBusy(f"{place.name} changed faster than it could be searched; let its writers pause and call again")


def _search_once(place: ProjectStream, query: Query, vector: Vector | None) -> Hits | None:
    """Return the hits of a query, ``None`` if memories changed too much while they were looked for."""
    view = look(place, Needs(by_row=query.filter.metadata is not None))
    if view is None:
        return no_hits(query)
    check_fits(view, vector)
    return hits_of(place, view, query, None, index.search_view(view, query, None))


def no_hits(query: Query) -> Hits:
    """Return the hits of a query where there are no memories."""
    return Hits((), exact=True, query=query.text, ranking=query.ranking.name)


def _search_texts_once(place: ProjectStream, query: Query, vector: Vector | None) -> Hits | None:
    """Return the hits of a query that compares texts; ``None`` if others took the place of what was looked at."""
    view = look(place, Needs(own_rows=True))
    if view is None:
        return no_hits(query)
    texts = view.project.texts
    with texts.lock:
        by_row = query.filter.metadata is not None
        view = look(place, Needs(own_rows=True, changes_of=view.project, by_row=by_row))
        if view is None or view.changes is None:
            return None
        texts.update(view.changes)
        scores = index.compare_texts(texts.index, view.table.columns.orders, query)
    check_fits(view, vector)
    return hits_of(place, view, query, scores, index.search_view(view, query, scores))


def check_fits(view: IndexView, vector: Vector | None) -> None:
    """Raise ``EmbeddingMismatch`` for a vector of another model or dimension than the rows have."""
    table = view.project.table
    if vector is not None:
        fitting((table.model, table.dimensions), vector, is_empty=False)


def hits_of(
    place: ProjectStream, view: IndexView, query: Query, texts: TextScores | None, found: Matches
) -> Hits | None:
    """Return the memories of rows that were found, ``None`` if they changed too much since."""
    with place.door.engine.reader.state_lock:
        entries = view.entries([match.row for match in found.hits])
    if entries is None:
        return None
    place.door.engine.reader.indexes.store_grown(view.project)
    parts = index.signals_of(view, query, texts, list(zip(found.hits, entries, strict=True)))
    scores = [match.score for match in found.hits]
    return Hits(tuple(map(Hit, entries, scores, parts)), found.exact, query.text, query.ranking.name)


def with_text(text: object, options: Query) -> Query:
    """Return a query with its text, checked; an empty one browses."""
    text = checks.text(text, "query")
    is_empty = not text.strip() and options.vector is None
    return replace(options, text=text, ranking=RANKINGS[BROWSE] if is_empty else options.ranking)


def with_vector(query: Query, vector: Vector | None, now_ns: int) -> Query:
    """Return a query with its vector and the time that recency is counted from, ready to be answered."""
    return replace(query, vector=None if vector is None else vector.packed, now_ns=now_ns)


def query_vector(place: ProjectStream, query: Query, *, is_needed: bool) -> Vector | None:
    """Return the vector of a query, given or embedded, ``None`` where the ranking has no use for one."""
    embedding = place.door.embedding_at(place.at)
    if query.vector is not None:
        return embedding.given(query.vector)
    return embedding.of(query.text) if is_needed and query.ranking.cosine else None


def moment(place: ProjectStream, now_ns: int | None) -> int:
    """Return what recency is counted from: as given, the clock, or the time of the seq at which a handle is frozen."""
    if now_ns is not None:
        return now_ns
    engine = place.door.engine
    return engine.reader.now_ns() if place.at is None else reader.time_at_seq(engine.reader.log, place.at)


def scored(
    texts: TextIndex, query: Query, cosine: "NDArray[float32] | None", rows: Any
) -> list[tuple[int, float, dict[str, float]]]:
    """Return the best rows, each with its score and its signals."""
    total, parts = texts.score(query, cosine)
    if query.explain:
        parts = texts.signals(query, [name for name in SIGNALS if cosine is not None or name != "cosine"], cosine)
    return [
        (row, found, {name: float(part[row]) for name, part in parts.items()})
        for row, found in texts.best(total, query.top_k, rows)
    ]


# Recalls.


def recall(place: ProjectStream, text: object, query: Query, conversation: object, options: Options) -> Hits:
    """Search, and record what was found."""
    place.check_writable()
    door = place.door
    name = None if conversation is None else checks.name(getattr(conversation, "id", conversation), "conversation")
    cited = door.sources(options.sources)
    request_id, said = options.request_id, _asked(text, query, name)
    if request_id is not None and door.answered(request_id, place.name, said) is not None:
        return _recorded_recall(place, said, options)
    hits = search(place, text, query)
    last = None if name is None else _last_message(door, name)
    if last is not None and last not in cited:
        cited = (*cited, last)
    signals = {part: [hit.parts[part] for hit in hits] for part in (hits[0].parts if len(hits) else ())}
    event = MemoriesRecalled(
        cited,
        tuple(hit.entry.id for hit in hits),
        hits.exact,
        hits.query,
        hits.ranking,
        tuple(hit.score for hit in hits),
        pack_json(signals),
        name,
    )
    noted = place.note(event, said, options)
    assert noted is not None, "a recall is always recorded"
    return hits if noted[0] is event or noted[1].seq < 0 or options.request_id is None else _told(place, noted)


def _recorded_recall(place: ProjectStream, said: tuple[Any, ...], options: Options) -> Hits:
    """Return what the same request found before."""
    noted = place.note(lambda _: None, said, options)
    assert noted is not None, "a recall is always recorded"
    return _told(place, noted)


def _told(place: ProjectStream, noted: Any) -> Hits:
    """Return the hits that an event says were found, the memories as they were then."""
    event, stamp = noted
    assert isinstance(event, MemoriesRecalled), event

    def query(state: State) -> list[Entry]:
        entries = state.part(FACTS).entries
        return [entries.get(entry_id) or Entry(entry_id, erased=True) for entry_id in event.ids]

    entries = place.door.read_written(place.name, query, stamp.seq - 1)
    signals: dict[str, list[float]] = {} if event.signals is None else unpack_json(event.signals)
    parts = [{name: values[row] for name, values in signals.items()} for row in range(len(entries))]
    scores = event.scores or (0.0,) * len(entries)
    hits = tuple(map(Hit, entries, scores, parts))
    return Hits(hits, exact=event.exact, query=event.query, ranking=event.ranking)


def _asked(text: object, query: Query, name: str | None) -> tuple[Any, ...]:
    """Return what makes two recalls the same request."""
    chosen = query.filter
    metadata = None if chosen.metadata is None else dict(chosen.metadata)
    vector = None if query.vector is None else [float(number) for number in cast("Sequence[float]", query.vector)]
    said = (query.top_k, chosen.categories, chosen.statuses, chosen.min_importance, metadata)
    return ("recall", text, *said, repr(query.ranking), vector, query.now_ns, query.explain, name)


def _last_message(door: Door, name: str) -> int | None:
    """Return the seq of the last message in a conversation's window, provisional in an open batch."""
    live = door.read(f"conversation/{name}", lambda state: state.part(WINDOW).live(), None)
    return live[-1].stamp.seq if live else None


# Lists and counts.


def held(place: ProjectStream, entry_id: str) -> Entry | None:
    """Return a memory, only its id where it was erased, ``None`` where there is none."""
    return place.read(
        lambda facts: Entry(entry_id, erased=True) if entry_id in facts.erased else facts.entries.get(entry_id)
    )


def page(place: ProjectStream, category: object, status: object, offset: object, limit: object) -> list[Entry]:
    """Return some of the memories in the order of their adding."""
    begin = checks.count(offset, "offset")
    end = None if limit is None else begin + checks.count(limit, "limit")
    return listed(place, category, status)[begin:end]


def history(place: ProjectStream, events: Iterable[Recorded], entry_id: str) -> list[Recorded]:
    """Return those of the events that touched a memory; ``NotFound`` if there are none."""
    found = [recorded for recorded in events if entry_id in (touched(recorded.event) or ())]
    if not found:
        raise place.missing(entry_id)
    return found


def listed(place: ProjectStream, category: object, status: object) -> list[Entry]:
    """Return the memories in the order of their adding, of one category or status if given."""
    wanted_category = None if category is None else one_of(category, "category", CATEGORIES)
    wanted_status = None if status is None else one_of(status, "status", STATUSES)
    return place.read(
        lambda facts: [
            entry
            for entry in facts.entries.values()
            if wanted_category in (None, entry.category) and wanted_status in (None, entry.status)
        ]
    )


def stats(place: ProjectStream) -> ProjectStats:
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

    return place.door.read(place.name, query, place.at)


def _counts(names: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


# Many queries at once: all of one state, multiplied with the rows together.


class SearchOptions(TypedDict, total=False):
    """What of a search is the same for all queries."""

    top_k: int
    categories: Sequence[str] | None
    statuses: Sequence[str] | None
    min_importance: float
    metadata: Mapping[str, Any] | None
    ranking: str | Ranking
    now: "int | datetime.datetime | None"
    explain: bool


DEFAULTS: Final[SearchOptions] = {
    "top_k": 10,
    "categories": None,
    "statuses": (ACTIVE,),
    "min_importance": 0.1,
    "metadata": None,
    "ranking": "seed",
    "now": None,
    "explain": False,
}
"""Those of a search for one query."""


def search_many(place: ProjectStream, queries: object, vectors: object, options: SearchOptions) -> list[Hits]:
    """Answer many queries."""
    said = _texts(queries)
    given, asked = _given(vectors, len(said)), _wanted(options)
    return place.retry(lambda: _search_queries(place, said, given, asked))


def _search_queries(place: ProjectStream, said: Sequence[str], given: Sequence[object], asked: Query) -> list[Hits]:
    posed = _posed(place, said, given, asked)
    for _ in range(REDO_COUNT_MAX):
        hits = place.door.engine.reader.index.whole(lambda: _search_many_once(place, posed))
        if hits is not None:
            return hits
    raise too_fast(place)


def _texts(queries: object) -> list[str]:
    if isinstance(queries, (str, bytes)) or not isinstance(queries, Sequence):
        checks.invalid(f"queries must be a list of str, not {type(queries).__name__} ({checks.shown(queries)})")
    said = [checks.text(query, "a query") for query in cast("Sequence[object]", queries)]
    if len(said) > QUERIES_COUNT_MAX:
        checks.invalid(f"{len(said)} queries are more than QUERIES_COUNT_MAX ({QUERIES_COUNT_MAX}); ask in parts")
    return said


def _given(vectors: object, count: int) -> list[object]:
    """Return the vector of each query, ``None`` where it is to be made."""
    if vectors is None:
        return [None] * count
    try:
        given = list(cast("Sequence[object]", vectors))
    except TypeError:
        checks.invalid(f"vectors must be a list, not {type(vectors).__name__} ({checks.shown(vectors)})")
    if len(given) != count:
        checks.invalid(f"{len(given)} vectors for {count} queries; give one for each, or None in its place")
    return given


def _wanted(options: SearchOptions) -> Query:
    unknown = sorted(options.keys() - DEFAULTS.keys())
    if unknown:
        raise TypeError(f"search_many() got unexpected options {unknown}; it takes vectors and {list(DEFAULTS)}")
    chosen: dict[str, Any] = {**DEFAULTS, **options}
    return checked_options(**chosen, vector=None)


_Posed: TypeAlias = tuple[Query, Vector | None]
"""A query, ready for any state, and its vector."""


def _posed(place: ProjectStream, said: Sequence[str], given: Sequence[object], asked: Query) -> list[_Posed]:
    """Return the queries with their vectors: those that are missing are made at once."""
    queries = [with_text(text, replace(asked, vector=one)) for text, one in zip(said, given, strict=True)]
    embedding, now_ns = place.door.embedding_at(place.at), moment(place, asked.now_ns)
    vectors = [None if one is None else embedding.given(one) for one in given]
    if place.read(lambda facts: bool(facts.entries)):
        bare = [place for place, query in enumerate(queries) if vectors[place] is None and query.ranking.cosine]
        for number, made in zip(bare, embedding.of_all([said[number] for number in bare]), strict=True):
            vectors[number] = made
    return [(with_vector(query, vector, now_ns), vector) for query, vector in zip(queries, vectors, strict=True)]


def _search_many_once(place: ProjectStream, posed: Sequence[_Posed]) -> list[Hits] | None:
    """Return the hits of all queries, ``None`` if memories changed too much while they were looked for."""
    by_row = any(query.filter.metadata is not None for query, _ in posed)
    compares_texts = any(query.compares_texts for query, _ in posed)
    view = look(place, Needs(own_rows=compares_texts, by_row=by_row))
    if view is None:
        return [no_hits(query) for query, _ in posed]
    if not compares_texts:
        return _answers_of(place, view, posed, None)
    texts = view.project.texts
    with texts.lock:
        view = look(place, Needs(own_rows=True, changes_of=view.project, by_row=by_row))
        if view is None or view.changes is None:
            return None
        texts.update(view.changes)
        return _answers_of(place, view, posed, texts.index)


def _answers_of(
    place: ProjectStream, view: IndexView, posed: Sequence[_Posed], texts: TextIndex | None
) -> list[Hits] | None:
    for _, vector in posed:
        check_fits(view, vector)
    answers: list[Hits] = []
    orders = view.table.columns.orders
    for queries in _blocks([query for query, _ in posed], view.table.count):
        scores = [
            index.compare_texts(texts, orders, query) if texts is not None and query.compares_texts else None
            for query in queries
        ]
        matches = index.search_view_many(view, queries, scores)
        for query, score, found in zip(queries, scores, matches, strict=True):
            hits = hits_of(place, view, query, score, found)
            if hits is None:
                return None
            answers.append(hits)
    return answers


def _blocks(queries: Sequence[Query], rows: int) -> Iterator[list[Query]]:
    """Yield queries that follow each other and are ranked alike: as many as there is room for what texts say."""
    size = max(1, QUERIES_BYTES_MAX // (8 * max(rows, 1)))
    for _, group in groupby(queries, key=lambda query: query.ranking):
        alike = list(group)
        for begin in range(0, len(alike), size):
            yield alike[begin : begin + size]


_IMPORTANCE = 0.5
"""Episodes have none of their own: one is as important as another."""


def record(
    place: ProjectStream,
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
    place.check_writable()
    door = place.door
    texts = [checks.text(text, what) for text, what in ((task, "task"), (approach, "approach"), (outcome, "outcome"))]
    if not texts[0].strip():
        checks.invalid("task is empty; say what was tried")
    said = EpisodeRecorded(
        door.sources(options.sources),
        door.engine.reader.new_id(),
        one_of(kind, "kind", KINDS),
        None if session is None else checks.text(session, "session", NAME_BYTES_MAX, "NAME_BYTES_MAX"),
        texts[0],
        texts[1],
        texts[2],
        _tools(tools),
        keywords_of("\n".join(texts))[:KEYWORDS_COUNT_MAX] if keywords is None else checked_keywords(keywords),
    )
    occurred_ns = None if occurred is None else nanoseconds(occurred, "occurred")
    given = None if vector is None else door.embedding.given(vector)
    return _recorded(place, said, given, options, occurred_ns)


def _recorded(
    place: ProjectStream, said: EpisodeRecorded, given: Vector | None, options: Options, occurred_ns: int | None
) -> Episode:
    door = place.door
    asked = ("record_episode", *astuple(said)[2:-2], None if given is None else given.packed, occurred_ns)

    def attempt() -> Recorded | None:
        found = door.embedding.of(text_of(said)) if given is None else given

        def decide(state: State) -> Event:
            episodes = state.part(EPISODES)
            model = fitting((episodes.model, episodes.dim), found, is_empty=not episodes.by_seq)
            return replace(said, vector=found.packed, model=model)

        return place.note(decide, asked, options, occurred_ns=occurred_ns)

    noted = place.retry(attempt)
    assert noted is not None, "an episode is always recorded"
    event, stamp = noted
    assert isinstance(event, EpisodeRecorded), event
    episode = episode_of(event, stamp)
    batch = batches.active(door.engine)
    if batch is not None and stamp.seq < 0:
        batch.transaction.callbacks.append((stamp.seq, lambda settled: _settle(episode, settled)))
    return episode


def _settle(episode: Episode, stamp: Any) -> None:
    """Give an episode that a batch handed out the seq and the times that its event got."""
    for field, value in (("seq", stamp.seq), ("time_ns", stamp.time_ns), ("occurred_ns", stamp.occurred_ns)):
        force_setattr(episode, field, value)


def _tools(tools: object) -> tuple[str, ...]:
    if isinstance(tools, (str, bytes)) or not isinstance(tools, Sequence):
        checks.invalid(f"tools must be a list of str, not {type(tools).__name__} ({checks.shown(tools)})")
    return tuple(checks.text(tool, "a tool") for tool in cast("Sequence[object]", tools))


def search_episodes(place: ProjectStream, text: object, kinds: object, options: Query) -> Hits:
    """Search the episodes of a project."""
    return place.retry(lambda: _search_episodes(place, text, kinds, options))


def _search_episodes(place: ProjectStream, text: object, kinds: object, options: Query) -> Hits:
    door = place.door
    chosen = KINDS if kinds is None else tuple(one_of(kind, "kinds", KINDS) for kind in cast("Sequence[object]", kinds))
    query = with_text(text, options)

    def is_any(state: State) -> bool:
        return bool(state.part(EPISODES).by_seq)

    is_needed = door.read(place.name, is_any, place.at)
    vector = query_vector(place, query, is_needed=is_needed)
    query = with_vector(query, vector, moment(place, query.now_ns))

    def find(state: State) -> Hits:
        episodes = state.part(EPISODES)
        held = list(episodes.by_seq.items())
        if not held:
            return no_hits(query)
        texts, cosine = _texts_of(held), _cosines(place, episodes, vector)
        import numpy  # noqa: PLC0415 - loads when the first vector is looked at

        rows = numpy.array([row for row, (_, episode) in enumerate(held) if episode.kind in chosen], dtype=numpy.intp)
        found = scored(texts, query, cosine, rows)
        hits = tuple(Hit(held[row][1], total, parts) for row, total, parts in found)
        return Hits(hits, exact=True, query=query.text, ranking=query.ranking.name)

    return door.read(place.name, find, place.at)


def _texts_of(held: Sequence[tuple[int, Episode]]) -> TextIndex:
    texts = TextIndex()
    for row, (_, episode) in enumerate(held):
        texts.add(
            row,
            Text(text_of(episode)),
            keywords=episode.keywords,
            importance=_IMPORTANCE,
            accessed_ns=2**62 if episode.occurred_ns is None else episode.occurred_ns,
        )
    return texts


def _cosines(place: ProjectStream, episodes: Episodes, vector: Vector | None) -> Any:
    if vector is None:
        return None
    fitting((episodes.model, episodes.dim), vector, is_empty=False)
    door = place.door
    seqs, pending = episodes.vector_seqs(), pending_events(door)
    key = door.key(place.name)
    rows = door.engine.reader.index.whole(lambda: door.engine.reader.indexes.vectors(key, episodes.dim, seqs, pending))
    return product(rows, unit(vector.packed))
