"""Episodes: recording what was tried, and finding what was tried before."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import astuple, force_setattr, replace

from refold import checks
from refold.engine import batch as batches
from refold.engine.pending import Noted
from refold.engine.units import unit
from refold.event import Event
from refold.fold import State
from refold.limits import KEYWORDS_COUNT_MAX, NAME_BYTES_MAX
from refold.memory.door import Options
from refold.memory.drafts import checked_keywords, one_of
from refold.memory.embedding import Vector, fitting
from refold.memory.finding import Wanted, checked_query, moment, query_vector, scored
from refold.memory.looking import pending_events
from refold.memory.moments import nanoseconds
from refold.memory.remembering import Place, settled
from refold.rank import Columns
from refold.rank.products import product
from refold.results import Hit, Hits
from refold.text import keywords as keywords_of
from refold.views.episodes import EPISODES, KINDS, Episode, EpisodeRecorded, Episodes, episode_of, text_of

if TYPE_CHECKING:
    import datetime

_IMPORTANCE = 0.5
"""Episodes have none of their own: one is as important as another."""


def record(  # noqa: PLR0917 - what an episode is made of, checked in one place
    place: Place,
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
        door.engine.new_id(),
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
    place: Place, said: EpisodeRecorded, given: Vector | None, options: Options, occurred_ns: int | None
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

    noted = settled(attempt, place)
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


def search(place: Place, query: object, kinds: object, asked: Wanted) -> Hits:
    """Return the episodes that answer a query best."""
    return settled(lambda: _searched(place, query, kinds, asked), place)


def _searched(place: Place, query: object, kinds: object, asked: Wanted) -> Hits:
    door = place.door
    chosen = KINDS if kinds is None else tuple(one_of(kind, "kinds", KINDS) for kind in cast("Sequence[object]", kinds))
    text, ranking = checked_query(query, asked)

    def is_any(state: State) -> bool:
        return bool(state.part(EPISODES).by_seq)

    is_needed = door.read(place.stream, is_any, place.at)
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

    return door.read(place.stream, find, place.at)


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


def _cosines(place: Place, episodes: Episodes, vector: Vector | None) -> Any:
    if vector is None:
        return None
    fitting((episodes.model, episodes.dim), vector, is_empty=False)
    door = place.door
    seqs, pending = episodes.vector_seqs(), pending_events(door)
    key = door.key(place.stream)
    rows = door.engine.kept.whole(lambda: door.engine.similarity.vectors(key, episodes.dim, seqs, pending))
    return product(rows, unit(vector.packed))
