"""Finding memories: searches, which are pure, and recalls, which are recorded."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec.structs import replace

from refold import checks
from refold.engine import searching, times
from refold.engine.loader import Recorded
from refold.engine.searching import Filter, Question, Texts
from refold.engine.similarity import Sight
from refold.engine.similarity import Wanted as Sought
from refold.entry import CATEGORIES, STATUSES, Entry, MemoriesRecalled, touched
from refold.errors import StoreBusy
from refold.event import pack_json, unpack_json
from refold.fold import State
from refold.limits import REDO_COUNT_MAX
from refold.memory.door import Door, Options
from refold.memory.drafts import fraction, one_of
from refold.memory.embedding import Vector, fitting
from refold.memory.looking import look
from refold.memory.moments import nanoseconds
from refold.memory.remembering import Place, missing, settled
from refold.rank import RANKINGS, SIGNALS, Columns, Query, Ranking, best, ranking_of, score
from refold.results import Hit, Hits, ProjectStats
from refold.store.scanning import Matches
from refold.views.episodes import EPISODES
from refold.views.facts import FACTS
from refold.views.window import WINDOW

if TYPE_CHECKING:
    import datetime

    from numpy import float32
    from numpy.typing import NDArray

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


def wanted(  # noqa: PLR0917 - the options of a search, checked in one place
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


def search(place: Place, query: object, asked: Wanted) -> Hits:
    """Return the memories that answer a query best."""
    return settled(lambda: _searched(place, query, asked), place)


def _searched(place: Place, query: object, asked: Wanted) -> Hits:
    text, ranking = checked_query(query, asked)
    is_needed = asked.vector is None and place.read(lambda facts: bool(facts.entries))
    vector = query_vector(place, text, ranking, asked, is_needed=is_needed)
    packed = None if vector is None else vector.packed
    question = Question(text, ranking, packed, moment(place, asked.now_ns), asked.top_k, asked.filter, asked.explain)
    for _ in range(REDO_COUNT_MAX):
        attempt = _texts_attempt if question.needs_texts else _attempt
        hits = place.door.engine.kept.whole(lambda: attempt(place, question, vector))  # noqa: B023 - called at once
        if hits is not None:
            return hits
    raise too_fast(place)


def too_fast(place: Place) -> StoreBusy:
    """Return the error of a search that others outran."""
    return StoreBusy(f"{place.stream} changed faster than it could be searched; let its writers pause and call again")


def _attempt(place: Place, question: Question, vector: Vector | None) -> Hits | None:
    """Return the hits of a question, ``None`` if memories changed too much while they were looked for."""
    sight = look(place, Sought(needs_everyone=question.filter.metadata is not None))
    if sight is None:
        return nothing(question)
    return _answered_by(place, sight, question, vector, None)


def nothing(question: Question) -> Hits:
    """Return the hits of a question where there are no memories."""
    return Hits((), exact=True, query=question.text, ranking=question.ranking.name)


def _texts_attempt(place: Place, question: Question, vector: Vector | None) -> Hits | None:
    """Return the hits of a question that compares texts; ``None`` if others took the place of what was looked at."""
    sight = look(place, Sought(needs_own=True))
    if sight is None:
        return nothing(question)
    texts = sight.stock.texts
    with texts.lock:
        needs_everyone = question.filter.metadata is not None
        sight = look(place, Sought(needs_own=True, changes_of=sight.stock, needs_everyone=needs_everyone))
        if sight is None or sight.changes is None:
            return None
        texts.update(sight.changes)
        compared = searching.compared(texts.columns, sight.moment.frame.orders, question)
    return _answered_by(place, sight, question, vector, compared)


def _answered_by(
    place: Place, sight: Sight, question: Question, vector: Vector | None, texts: Texts | None
) -> Hits | None:
    check_fits(sight, vector)
    return hits_of(place, sight, question, texts, searching.found(sight, question, texts))


def check_fits(sight: Sight, vector: Vector | None) -> None:
    """Raise ``EmbeddingMismatch`` for a vector of another model or dimension than the rows have."""
    shelf = sight.stock.shelf
    if vector is not None:
        fitting((shelf.model, shelf.dimensions), vector, is_empty=False)


def hits_of(place: Place, sight: Sight, question: Question, texts: Texts | None, found: Matches) -> Hits | None:
    """Return the memories of rows that were found, ``None`` if they changed too much since."""
    with place.door.engine.state_lock:
        entries = sight.entries([match.row for match in found.hits])
    if entries is None:
        return None
    place.door.engine.similarity.keep_grown(sight.stock)
    parts = searching.parts_of(sight, question, texts, list(zip(found.hits, entries, strict=True)))
    scores = [match.score for match in found.hits]
    return Hits(tuple(map(Hit, entries, scores, parts)), found.exact, question.text, question.ranking.name)


def checked_query(query: object, asked: Wanted) -> tuple[str, Ranking]:
    """Return the text of a query and the ranking that answers it: an empty one browses."""
    text = checks.text(query, "query")
    is_empty = not text.strip() and asked.vector is None
    return text, RANKINGS[BROWSE] if is_empty else asked.ranking


def query_vector(place: Place, text: str, ranking: Ranking, asked: Wanted, *, is_needed: bool) -> Vector | None:
    """Return the vector of a query, given or embedded, ``None`` where the ranking has no use for one."""
    embedding = place.door.embedding_at(place.at)
    if asked.vector is not None:
        return embedding.given(asked.vector)
    return embedding.of(text) if is_needed and ranking.cosine else None


def moment(place: Place, now_ns: int | None) -> int:
    """Return what recency is counted from: as given, the clock, or the time of the seq at which a handle is frozen."""
    if now_ns is not None:
        return now_ns
    engine = place.door.engine
    return engine.now_ns() if place.at is None else times.time_at_seq(engine.log, place.at)


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


def recall(place: Place, query: object, asked: Wanted, conversation: object, options: Options) -> Hits:
    """Search, and record what was found."""
    place.check_writable()
    door = place.door
    name = None if conversation is None else checks.name(getattr(conversation, "id", conversation), "conversation")
    cited = door.sources(options.sources)
    request_id, said = options.request_id, _asked(query, asked, name)
    if request_id is not None and door.answered(request_id, place.stream, said) is not None:
        return _answered(place, said, options)
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


def _answered(place: Place, said: tuple[Any, ...], options: Options) -> Hits:
    """Return what the same request found before."""
    noted = place.note(lambda _: None, said, options)
    assert noted is not None, "a recall is always recorded"
    return _told(place, noted)


def _told(place: Place, noted: Any) -> Hits:
    """Return the hits that an event says were found, the memories as they were then."""
    event, stamp = noted
    assert isinstance(event, MemoriesRecalled), event

    def query(state: State) -> list[Entry]:
        entries = state.part(FACTS).entries
        return [entries.get(entry_id) or Entry(entry_id, erased=True) for entry_id in event.ids]

    entries = place.door.read_written(place.stream, query, stamp.seq - 1)
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


def held(place: Place, entry_id: str) -> Entry | None:
    """Return a memory, only its id where it was erased, ``None`` where there is none."""
    return place.read(
        lambda facts: Entry(entry_id, erased=True) if entry_id in facts.erased else facts.entries.get(entry_id)
    )


def page(place: Place, category: object, status: object, offset: object, limit: object) -> list[Entry]:
    """Return some of the memories in the order of their adding."""
    begin = checks.count(offset, "offset")
    end = None if limit is None else begin + checks.count(limit, "limit")
    return listed(place, category, status)[begin:end]


def history(place: Place, events: Iterable[Recorded], entry_id: str) -> list[Recorded]:
    """Return those of the events that touched a memory; ``NotFound`` if there are none."""
    found = [recorded for recorded in events if entry_id in (touched(recorded.event) or ())]
    if not found:
        raise missing(place, entry_id)
    return found


def listed(place: Place, category: object, status: object) -> list[Entry]:
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


def stats(place: Place) -> ProjectStats:
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

    return place.door.read(place.stream, query, place.at)


def _counts(names: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))
