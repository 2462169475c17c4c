"""Search of memories and episodes, which is pure, recalls, which are recorded, and episodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from msgspec.structs import astuple, force_setattr, replace

from refold import checks
from refold.engine import batch as batches
from refold.engine import reader
from refold.engine.transaction import Noted
from refold.entry import ACTIVE, CATEGORIES, STATUSES, Entry, MemoriesRecalled, touched
from refold.errors import StoreBusy
from refold.event import Event, Recorded, pack_json, unpack_json
from refold.fold import State
from refold.index import index
from refold.index.columns import product
from refold.index.index import Filter, Missing, Question, Sight, TextScores
from refold.index.index import Wanted as Sought
from refold.index.project import unit
from refold.index.ranking import RANKINGS, SIGNALS, Columns, Query, Ranking, best, ranking_of, score
from refold.index.search import Matches
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
    return () if batch is None else batch.pending.events


_PLAIN = Sought()


def look(place: ProjectStream, wanted: Sought = _PLAIN) -> Sight | None:
    """Return what a search of a project looks at, ``None`` where there are no memories.

    Rows that are not there are filled first; nobody waits for that, unless others write so much meanwhile that what was
    filled is old at once.
    """
    return place.door.engine.reader.index.whole(lambda: _look(place, wanted))


def _look(place: ProjectStream, wanted: Sought) -> Sight | None:
    engine = place.door.engine
    for _ in range(FILLS_COUNT_MAX):
        found = _glance(place, wanted)
        if not isinstance(found, Missing):
            if found is not None:
                engine.reader.similarity.touch(found.stock)
            return found
        engine.reader.similarity.fill(found)
    with engine.reader.state_lock:
        found = _glance(place, wanted)
        while isinstance(found, Missing):
            engine.reader.similarity.fill(found)
            found = _glance(place, wanted)
        return found


def _glance(place: ProjectStream, wanted: Sought) -> Sight | Missing | None:
    door = place.door

    def query(state: State) -> Sight | Missing | None:
        key, facts = door.key(place.name), state.part(FACTS)
        return door.engine.reader.similarity.glance(key, facts, place.at, pending_events(door), wanted)

    return door.read(place.name, query, place.at)


# Finding memories: searches, which are pure, and recalls, which are recorded.

BROWSE: Final = "browse"
_TOP_COUNT_MAX: Final = 1_000_000


class Wanted(NamedTuple):
    """What a search asks for beside its text, checked."""

    top_k: int
    filter: Filter
    ranking: Ranking
    vector: object
    now_ns: int | None
    explain: bool


def wanted(
    top_k: object,
    categories: object,
    statuses: object,
    min_importance: object,
    metadata: object,
    ranking: object,
    vector: object,
    now: "int | datetime.datetime | None",
    explain: bool,  # noqa: FBT001 - as the others
) -> Wanted:
    """Return what a search asks for."""
    if metadata is not None and not isinstance(metadata, Mapping):
        checks.invalid(f"metadata must be a dict, not {type(metadata).__name__} ({checks.shown(metadata)})")
    return Wanted(
        checks.integer(top_k, "top_k", 1, _TOP_COUNT_MAX, "the most hits of a search"),
        Filter(
            _words(categories, "categories", CATEGORIES),
            _words(statuses, "statuses", STATUSES),
            fraction(min_importance, "min_importance"),
            cast("Mapping[str, Any] | None", metadata),
        ),
        ranking_of(ranking),
        vector,
        None if now is None else nanoseconds(now, "now"),
        checks.flag(explain, "explain"),
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


def search(place: ProjectStream, query: object, asked: Wanted) -> Hits:
    """Return the memories that answer a query best."""
    return place.retry(lambda: _search_memories(place, query, asked))


def _search_memories(place: ProjectStream, query: object, asked: Wanted) -> Hits:
    text, ranking = checked_query(query, asked)
    is_needed = asked.vector is None and place.read(lambda facts: bool(facts.entries))
    vector = query_vector(place, text, ranking, asked, is_needed=is_needed)
    packed = None if vector is None else vector.packed
    question = Question(text, ranking, packed, moment(place, asked.now_ns), asked.top_k, asked.filter, asked.explain)
    for _ in range(REDO_COUNT_MAX):
        attempt = _texts_attempt if question.needs_texts else _search_once
        hits = place.door.engine.reader.index.whole(lambda: attempt(place, question, vector))  # noqa: B023 - called at once
        if hits is not None:
            return hits
    raise too_fast(place)


def too_fast(place: ProjectStream) -> StoreBusy:
    """Return the error of a search that others outran."""
    return StoreBusy(f"{place.name} changed faster than it could be searched; let its writers pause and call again")


def _search_once(place: ProjectStream, question: Question, vector: Vector | None) -> Hits | None:
    """Return the hits of a question, ``None`` if memories changed too much while they were looked for."""
    sight = look(place, Sought(needs_everyone=question.filter.metadata is not None))
    if sight is None:
        return no_hits(question)
    return _answered_by(place, sight, question, vector, None)


def no_hits(question: Question) -> Hits:
    """Return the hits of a question where there are no memories."""
    return Hits((), exact=True, query=question.text, ranking=question.ranking.name)


def _texts_attempt(place: ProjectStream, question: Question, vector: Vector | None) -> Hits | None:
    """Return the hits of a question that compares texts; ``None`` if others took the place of what was looked at."""
    sight = look(place, Sought(needs_own=True))
    if sight is None:
        return no_hits(question)
    texts = sight.stock.texts
    with texts.lock:
        needs_everyone = question.filter.metadata is not None
        sight = look(place, Sought(needs_own=True, changes_of=sight.stock, needs_everyone=needs_everyone))
        if sight is None or sight.changes is None:
            return None
        texts.update(sight.changes)
        compared = index.compared(texts.columns, sight.moment.frame.orders, question)
    return _answered_by(place, sight, question, vector, compared)


def _answered_by(
    place: ProjectStream, sight: Sight, question: Question, vector: Vector | None, texts: TextScores | None
) -> Hits | None:
    check_fits(sight, vector)
    return hits_of(place, sight, question, texts, index.found(sight, question, texts))


def check_fits(sight: Sight, vector: Vector | None) -> None:
    """Raise ``EmbeddingMismatch`` for a vector of another model or dimension than the rows have."""
    shelf = sight.stock.shelf
    if vector is not None:
        fitting((shelf.model, shelf.dimensions), vector, is_empty=False)


def hits_of(
    place: ProjectStream, sight: Sight, question: Question, texts: TextScores | None, found: Matches
) -> Hits | None:
    """Return the memories of rows that were found, ``None`` if they changed too much since."""
    with place.door.engine.reader.state_lock:
        entries = sight.entries([match.row for match in found.hits])
    if entries is None:
        return None
    place.door.engine.reader.similarity.keep_grown(sight.stock)
    parts = index.parts_of(sight, question, texts, list(zip(found.hits, entries, strict=True)))
    scores = [match.score for match in found.hits]
    return Hits(tuple(map(Hit, entries, scores, parts)), found.exact, question.text, question.ranking.name)


def checked_query(query: object, asked: Wanted) -> tuple[str, Ranking]:
    """Return the text of a query and the ranking that answers it: an empty one browses."""
    text = checks.text(query, "query")
    is_empty = not text.strip() and asked.vector is None
    return text, RANKINGS[BROWSE] if is_empty else asked.ranking


def query_vector(place: ProjectStream, text: str, ranking: Ranking, asked: Wanted, *, is_needed: bool) -> Vector | None:
    """Return the vector of a query, given or embedded, ``None`` where the ranking has no use for one."""
    embedding = place.door.embedding_at(place.at)
    if asked.vector is not None:
        return embedding.given(asked.vector)
    return embedding.of(text) if is_needed and ranking.cosine else None


def moment(place: ProjectStream, now_ns: int | None) -> int:
    """Return what recency is counted from: as given, the clock, or the time of the seq at which a handle is frozen."""
    if now_ns is not None:
        return now_ns
    engine = place.door.engine
    return engine.reader.now_ns() if place.at is None else reader.time_at_seq(engine.reader.log, place.at)


Asked = tuple[str, Ranking, Vector | None, int]


def scored(
    columns: Columns, query: Asked, cosine: "NDArray[float32] | None", asked: Wanted, rows: Any
) -> list[tuple[int, float, dict[str, float]]]:
    """Return the best rows, each with its score and its signals."""
    text, ranking, _, now_ns = query
    given = Query(text=text, now_ns=now_ns, cosine=cosine)
    total, parts = score(ranking, given, columns)
    if asked.explain:
        parts = score(_all_signals(ranking, has_cosine=cosine is not None), given, columns)[1]
    return [
        (row, found, {name: float(part[row]) for name, part in parts.items()})
        for row, found in best(total, columns, asked.top_k, rows)
    ]


def _all_signals(ranking: Ranking, *, has_cosine: bool) -> Ranking:
    """Return a ranking of the same shapes that weighs every signal."""
    return replace(ranking, **{name: 1.0 for name in SIGNALS if has_cosine or name != "cosine"})


# Recalls.


def recall(place: ProjectStream, query: object, asked: Wanted, conversation: object, options: Options) -> Hits:
    """Search, and record what was found."""
    place.check_writable()
    door = place.door
    name = None if conversation is None else checks.name(getattr(conversation, "id", conversation), "conversation")
    cited = door.sources(options.sources)
    request_id, said = options.request_id, _asked(query, asked, name)
    if request_id is not None and door.answered(request_id, place.name, said) is not None:
        return _recorded_recall(place, said, options)
    hits = search(place, query, asked)
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


def _asked(query: object, asked: Wanted, name: str | None) -> tuple[Any, ...]:
    """Return what makes two recalls the same request."""
    chosen = asked.filter
    metadata = None if chosen.metadata is None else dict(chosen.metadata)
    vector = None if asked.vector is None else [float(number) for number in cast("Sequence[float]", asked.vector)]
    said = (asked.top_k, chosen.categories, chosen.statuses, chosen.min_importance, metadata)
    return ("recall", query, *said, repr(asked.ranking), vector, asked.now_ns, asked.explain, name)


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


class _Posed(NamedTuple):
    """A query, ready for any state, and its vector."""

    question: Question
    vector: Vector | None


def search_many(place: ProjectStream, queries: object, vectors: object, options: SearchOptions) -> list[Hits]:
    """Return the hits of each query."""
    said = _texts(queries)
    given, asked = _given(vectors, len(said)), _wanted(options)
    return place.retry(lambda: _search_queries(place, said, given, asked))


def _search_queries(place: ProjectStream, said: Sequence[str], given: Sequence[object], asked: Wanted) -> list[Hits]:
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


def _wanted(options: SearchOptions) -> Wanted:
    unknown = sorted(options.keys() - DEFAULTS.keys())
    if unknown:
        raise TypeError(f"search_many() got unexpected options {unknown}; it takes vectors and {list(DEFAULTS)}")
    chosen: dict[str, Any] = {**DEFAULTS, **options}
    return wanted(**chosen, vector=None)


def _posed(place: ProjectStream, said: Sequence[str], given: Sequence[object], asked: Wanted) -> list[_Posed]:
    """Return the queries with their vectors: those that are missing are made at once."""
    pairs = [checked_query(text, asked._replace(vector=one)) for text, one in zip(said, given, strict=True)]
    embedding, now_ns = place.door.embedding_at(place.at), moment(place, asked.now_ns)
    vectors = [None if one is None else embedding.given(one) for one in given]
    if place.read(lambda facts: bool(facts.entries)):
        bare = [number for number, (_, ranking) in enumerate(pairs) if vectors[number] is None and ranking.cosine]
        for number, made in zip(bare, embedding.of_all([said[number] for number in bare]), strict=True):
            vectors[number] = made
    return [
        _Posed(
            Question(
                text=text,
                ranking=ranking,
                packed=None if vector is None else vector.packed,
                now_ns=now_ns,
                top_k=asked.top_k,
                filter=asked.filter,
                explains=asked.explain,
            ),
            vector,
        )
        for (text, ranking), vector in zip(pairs, vectors, strict=True)
    ]


def _search_many_once(place: ProjectStream, posed: Sequence[_Posed]) -> list[Hits] | None:
    """Return the hits of all queries, ``None`` if memories changed too much while they were looked for."""
    needs_everyone = any(one.question.filter.metadata is not None for one in posed)
    needs_texts = any(one.question.needs_texts for one in posed)
    sight = look(place, Sought(needs_own=needs_texts, needs_everyone=needs_everyone))
    if sight is None:
        return [no_hits(one.question) for one in posed]
    if not needs_texts:
        return _answers_of(place, sight, posed, None)
    texts = sight.stock.texts
    with texts.lock:
        sight = look(place, Sought(needs_own=True, changes_of=sight.stock, needs_everyone=needs_everyone))
        if sight is None or sight.changes is None:
            return None
        texts.update(sight.changes)
        return _answers_of(place, sight, posed, texts.columns)


def _answers_of(
    place: ProjectStream, sight: Sight, posed: Sequence[_Posed], columns: Columns | None
) -> list[Hits] | None:
    for one in posed:
        check_fits(sight, one.vector)
    answers: list[Hits] = []
    for block in _blocks(posed, sight.moment.count):
        questions = [one.question for one in block]
        orders = sight.moment.frame.orders
        texts = [
            index.compared(columns, orders, question) if columns is not None and question.needs_texts else None
            for question in questions
        ]
        for question, text, found in zip(questions, texts, index.found_together(sight, questions, texts), strict=True):
            hits = hits_of(place, sight, question, text, found)
            if hits is None:
                return None
            answers.append(hits)
    return answers


def _blocks(posed: Sequence[_Posed], rows: int) -> Iterator[list[_Posed]]:
    """Yield queries that follow each other and are ranked alike: as many as there is room for what texts say."""
    size = max(1, QUERIES_BYTES_MAX // (8 * max(rows, 1)))
    for _, group in groupby(posed, key=lambda one: one.question.ranking):
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

    def attempt() -> Noted | None:
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
        batch.pending.later.append((stamp.seq, lambda settled: _settle(episode, settled)))
    return episode


def _settle(episode: Episode, stamp: Any) -> None:
    """Give an episode that a batch handed out the seq and the times that its event got."""
    for field, value in (("seq", stamp.seq), ("time_ns", stamp.time_ns), ("occurred_ns", stamp.occurred_ns)):
        force_setattr(episode, field, value)


def _tools(tools: object) -> tuple[str, ...]:
    if isinstance(tools, (str, bytes)) or not isinstance(tools, Sequence):
        checks.invalid(f"tools must be a list of str, not {type(tools).__name__} ({checks.shown(tools)})")
    return tuple(checks.text(tool, "a tool") for tool in cast("Sequence[object]", tools))


def search_episodes(place: ProjectStream, query: object, kinds: object, asked: Wanted) -> Hits:
    """Return the episodes that answer a query best."""
    return place.retry(lambda: _search_episodes(place, query, kinds, asked))


def _search_episodes(place: ProjectStream, query: object, kinds: object, asked: Wanted) -> Hits:
    door = place.door
    chosen = KINDS if kinds is None else tuple(one_of(kind, "kinds", KINDS) for kind in cast("Sequence[object]", kinds))
    text, ranking = checked_query(query, asked)

    def is_any(state: State) -> bool:
        return bool(state.part(EPISODES).by_seq)

    is_needed = door.read(place.name, is_any, place.at)
    vector = query_vector(place, text, ranking, asked, is_needed=is_needed)
    now_ns = moment(place, asked.now_ns)

    def find(state: State) -> Hits:
        episodes = state.part(EPISODES)
        held = list(episodes.by_seq.items())
        if not held:
            return Hits((), exact=True, query=text, ranking=ranking.name)
        columns, cosine = _columns(held), _cosines(place, episodes, vector)
        import numpy  # noqa: PLC0415 - loads when the first vector is looked at

        rows = numpy.array([row for row, (_, episode) in enumerate(held) if episode.kind in chosen], dtype=numpy.intp)
        found = scored(columns, (text, ranking, vector, now_ns), cosine, asked, rows)
        hits = tuple(Hit(held[row][1], total, parts) for row, total, parts in found)
        return Hits(hits, exact=True, query=text, ranking=ranking.name)

    return door.read(place.name, find, place.at)


def _columns(held: Sequence[tuple[int, Episode]]) -> Columns:
    columns = Columns()
    for row, (_, episode) in enumerate(held):
        columns.add(
            row,
            text_of(episode),
            keywords=episode.keywords,
            importance=_IMPORTANCE,
            accessed_ns=2**62 if episode.occurred_ns is None else episode.occurred_ns,
        )
    return columns


def _cosines(place: ProjectStream, episodes: Episodes, vector: Vector | None) -> Any:
    if vector is None:
        return None
    fitting((episodes.model, episodes.dim), vector, is_empty=False)
    door = place.door
    seqs, pending = episodes.vector_seqs(), pending_events(door)
    key = door.key(place.name)
    rows = door.engine.reader.index.whole(
        lambda: door.engine.reader.similarity.vectors(key, episodes.dim, seqs, pending)
    )
    return product(rows, unit(vector.packed))
