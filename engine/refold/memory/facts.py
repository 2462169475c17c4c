"""Memories of a project: what callers give, checked, and how each event is decided."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from refold import checks
from refold.engine import batch as batches
from refold.engine.transaction import Decide, Noted
from refold.entry import (
    CATEGORIES,
    STATUSES,
    Entry,
    MemoriesCleared,
    MemoryAdded,
    MemoryDeleted,
    MemoryReviewed,
    MemoryUpdated,
    entry_of,
)
from refold.errors import EmbeddingMismatch, InvalidInput, LimitExceeded, NotFound, StoreBusy
from refold.event import Event
from refold.fold import State
from refold.limits import CONTEXT_BYTES_MAX, KEYWORDS_COUNT_MAX, NAME_BYTES_MAX, REDO_COUNT_MAX
from refold.memory.options import Door, Options, nanoseconds
from refold.memory.vectors import Embedding, Vector, fitting
from refold.text import keywords as keywords_of
from refold.views.facts import FACTS, Facts, updated

if TYPE_CHECKING:
    import datetime


# What callers say of a memory that is to be added or changed, checked.


class Draft(NamedTuple):
    """A memory to be: everything that a caller says of it, checked."""

    content: str
    category: str
    keywords: tuple[str, ...]
    importance: float
    status: str
    extra: bytes | None
    session: str | None
    origin: int
    context: str | None
    vector: Vector | None
    occurred_ns: int | None
    sources: tuple[int, ...]

    def asked(self, verb: str, *more: Any) -> tuple[Any, ...]:
        """Return what makes two of them the same request."""
        packed = None if self.vector is None else self.vector.packed
        return (verb, *self[:9], packed, self.occurred_ns, *more)

    def event(self, entry_id: str, vector: bytes, model: str) -> MemoryAdded:
        """Return the event that adds it."""
        said = (self.content, self.category, self.keywords, self.importance, self.status, self.extra)
        return MemoryAdded(self.sources, entry_id, self.origin, *said, self.session, self.context, vector, model)


def drafted(
    door: Door,
    content: object,
    category: object,
    keywords: object,
    importance: object,
    metadata: object,
    source: object,
    source_context: object,
    status: object,
    vector: object,
    occurred: "int | datetime.datetime | None",
    options: Options,
) -> Draft:
    """Return a memory to be, whose parts were checked."""
    text = checks.text(content, "content")
    session, origin = _source(door, source)
    sources = door.sources(options.sources)
    if origin and origin not in sources:
        sources = (*sources, origin)
    return Draft(
        text,
        one_of(category, "category", CATEGORIES),
        keywords_of(text)[:KEYWORDS_COUNT_MAX] if keywords is None else checked_keywords(keywords),
        fraction(importance, "importance"),
        one_of(status, "status", STATUSES),
        None if metadata is None else checks.json_object(metadata, "metadata"),
        session,
        origin,
        None
        if source_context is None
        else checks.text(source_context, "source_context", CONTEXT_BYTES_MAX, "CONTEXT_BYTES_MAX"),
        None if vector is None else door.embedding.given(vector),
        None if occurred is None else nanoseconds(occurred, "occurred"),
        sources,
    )


def _source(door: Door, source: object) -> tuple[str | None, int]:
    """Return the session that a source is, or is in, and its seq: 0 for a session's name."""
    if source is None:
        return None, 0
    if isinstance(source, str):
        return checks.text(source, "source", NAME_BYTES_MAX, "NAME_BYTES_MAX") or None, 0
    (seq,) = door.sources((source,))
    if seq < 0:
        batch = batches.active(door.engine)
        assert batch is not None, "a provisional source outside a batch"
        stream = batch.pending.noted(-seq - 1)[1].stream
    else:
        stream = door.engine.loader.recorded([seq])[0].stamp.stream
    kind, _, name = stream.partition("/")
    return (name if kind == "conversation" else None), seq


def one_of(value: object, what: str, known: tuple[str, ...]) -> str:
    """Return one of the known words."""
    if not isinstance(value, str) or value not in known:
        checks.invalid(f"{what} is {checks.shown(value)}; give one of {', '.join(known)}")
    return value


def fraction(value: object, what: str) -> float:
    """Return a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        checks.invalid(f"{what} must be a number, not {type(value).__name__} ({checks.shown(value)})")
    if not 0 <= value <= 1:
        checks.invalid(f"{what} is {checks.shown(value)}; give a number from 0 to 1")
    return float(value)


def checked_keywords(keywords: object) -> tuple[str, ...]:
    """Return given keywords: lower-cased, without spaces around them, each once, in their order."""
    if isinstance(keywords, (str, bytes)) or not isinstance(keywords, Sequence):
        checks.invalid(f"keywords must be a list of str, not {type(keywords).__name__} ({checks.shown(keywords)})")
    words = (checks.text(word, "a keyword").strip().lower() for word in cast("Sequence[object]", keywords))
    found = tuple(dict.fromkeys(word for word in words if word))
    if len(found) > KEYWORDS_COUNT_MAX:
        raise LimitExceeded(
            f"{len(found)} keywords are over KEYWORDS_COUNT_MAX = {KEYWORDS_COUNT_MAX}; give the telling ones"
        )
    return found


def checked_id(entry_id: object) -> str:
    """Return the id of a memory, given as such or as the memory."""
    if isinstance(entry_id, Entry):
        return entry_id.id
    return checks.text(entry_id, "id")


class Changes(NamedTuple):
    """What an update is to change, checked; ``None`` is left as it is."""

    content: str | None
    category: str | None
    keywords: tuple[str, ...] | None
    importance: float | None
    extra: bytes | None
    vector: Vector | None


def changes(
    embedding: Embedding,
    content: object,
    category: object,
    keywords: object,
    importance: object,
    metadata: object,
    vector: object,
) -> Changes:
    """Return what an update is to change."""
    text = None if content is None else checks.text(content, "content")
    if text is not None and not text.strip():
        checks.invalid("content is empty; give a memory something to say, or delete it")
    return Changes(
        text,
        None if category is None else one_of(category, "category", CATEGORIES),
        None if keywords is None else checked_keywords(keywords),
        None if importance is None else fraction(importance, "importance"),
        None if metadata is None else checks.json_object(metadata, "metadata"),
        None if vector is None else embedding.given(vector),
    )


T = TypeVar("T")


class Stale(Exception):
    """What was prepared for a decision does not fit the state that it is made on: prepare it anew."""


class Place(NamedTuple):
    """What the verbs of a project share: the door, the stream, and the seq at which the handle is frozen."""

    door: Door
    stream: str
    at: int | None

    def check_writable(self) -> None:
        """Raise unless something can be written here."""
        self.door.refuse_frozen(self.stream, self.at)
        self.door.engine.check_writable()

    def read(self, query: Callable[[Facts], T]) -> T:
        """Return what a query makes of the memories."""
        return self.door.read(self.stream, lambda state: query(state.part(FACTS)), self.at)

    def note(self, make: Event | Decide, asked: tuple[Any, ...], options: Options, **more: Any) -> Noted | None:
        """Commit one event, or add it to the open batch."""
        return self.door.note(
            self.stream,
            make,
            at=self.at,
            asked=asked,
            expected=options.expected,
            request_id=options.request_id,
            **more,
        )

    def after(self, noted: Noted, entry_id: str) -> Entry:
        """Return a memory as an event that was answered before had left it."""
        seq = noted[1].seq
        found = self.door.read_written(self.stream, lambda state: state.part(FACTS).entries.get(entry_id), seq)
        return Entry(entry_id, erased=True) if found is None else found

    def handed_out(self, entry: Entry) -> Entry:
        """Return a memory whose seqs and times the engine fills in when this context's batch is committed."""
        if entry.body_seq < 0 or entry.updated_ns is None:
            batch = batches.active(self.door.engine)
            assert batch is not None, "a provisional memory outside a batch"
            entry = replace(entry)
            batch.pending.entries.append(entry)
        return entry


def settled(attempt: Callable[[], T], place: Place) -> T:
    """Return what an attempt returns, made anew as long as its preparation turns out to be stale.

    That is so, too, where the memory was embedded anew after the attempt had embedded its text.
    """
    for _ in range(REDO_COUNT_MAX):
        embedding = place.door.embedding_at(place.at)
        try:
            return attempt()
        except Stale:
            continue
        except EmbeddingMismatch:
            if not place.door.has_switched(place.at, embedding):
                raise
    raise StoreBusy(
        f"{place.stream} was written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts; let its writers pause "
        f"and call again"
    )


def missing(place: Place, entry_id: str) -> NotFound:
    """Return the error for an id that no memory has."""
    return NotFound(f"{place.stream} has no memory {checks.shown(entry_id)}; list() and search() show those it has")


# The verbs.


def add(place: Place, draft: Draft, options: Options) -> Entry:
    """Add a memory, unless one of exactly its content is there; return it, or the one that is there."""
    place.check_writable()
    if not draft.content.strip():
        checks.invalid("content is empty; give a memory something to say")
    entry_id = place.door.engine.new_id()

    def attempt() -> Entry:
        found: list[Entry] = []
        decide = _adding(draft, entry_id, _vector(place, draft), found)
        noted = place.note(decide, draft.asked("add"), options, occurred_ns=draft.occurred_ns)
        if noted is not None:
            return place.handed_out(entry_of(_as(noted, MemoryAdded), noted[1]))
        held = found[-1] if found else place.read(lambda facts: facts.same(draft.content))
        if held is None:
            raise missing(place, draft.content)
        return held

    return settled(attempt, place)


def _vector(place: Place, draft: Draft) -> Vector | None:
    """Return the vector of a draft, ``None`` where a memory of its content is there, so that none is needed."""
    if draft.vector is not None:
        return draft.vector
    if place.read(lambda facts: facts.same(draft.content)) is not None:
        return None
    return place.door.embedding.of(draft.content)


def _adding(draft: Draft, entry_id: str, vector: Vector | None, found: list[Entry]) -> Decide:
    def decide(state: State) -> Event | None:
        facts = state.part(FACTS)
        held = facts.same(draft.content)
        if held is not None:
            found.append(held)
            return None
        return added(facts, draft, entry_id, vector)

    return decide


def added(facts: Facts, draft: Draft, entry_id: str, vector: Vector | None) -> MemoryAdded:
    """Return the event that adds a draft to memories; ``Stale`` if it was not embedded."""
    if vector is None:
        raise Stale
    model = fitting((facts.model, facts.dim), vector, is_empty=not facts.entries)
    return draft.event(entry_id, vector.packed, model)


def _as(noted: Noted, kind: type[T]) -> T:
    event = noted[0]
    assert isinstance(event, kind), event
    return event


def update(place: Place, entry_id: str, wanted: Changes, options: Options) -> Entry:
    """Change fields of a memory; return it as it is then."""
    place.check_writable()
    cited = place.door.sources(options.sources)
    packed = None if wanted.vector is None else wanted.vector.packed
    asked = ("update", entry_id, *wanted[:-1], packed)

    def attempt() -> Entry:
        held = place.read(lambda facts: facts.entries.get(entry_id))
        vector = wanted.vector
        if held is not None and vector is None and wanted.content not in (None, held.content):
            vector = place.door.embedding.of(wanted.content or "")
        seen: list[Entry] = []
        noted = place.note(_updating(place, entry_id, (cited, wanted, vector), seen), asked, options)
        if not seen:
            return held or Entry(entry_id, erased=True) if noted is None else place.after(noted, entry_id)
        if noted is None:
            return seen[-1]
        return place.handed_out(updated(seen[-1], noted[1], _as(noted, MemoryUpdated)))

    return settled(attempt, place)


def _updating(
    place: Place, entry_id: str, given: tuple[tuple[int, ...], Changes, Vector | None], seen: list[Entry]
) -> Decide:
    cited, wanted, vector = given

    def decide(state: State) -> Event | None:
        facts = state.part(FACTS)
        held = facts.entries.get(entry_id)
        if held is None:
            raise missing(place, entry_id)
        seen.append(held)
        target = _target(held, wanted)
        changed = tuple(name for name in _CHANGEABLE if getattr(held, name) != getattr(target, name))
        if "content" in changed:
            refuse_twin(facts, held, target.content)
            if vector is None:
                raise Stale
        if not changed and (vector is None or wanted.vector is None):
            return None
        return _update_event(facts, (held, target), changed, vector, cited)

    return decide


_CHANGEABLE = ("content", "category", "keywords", "importance", "metadata")


def _target(held: Entry, wanted: Changes) -> Entry:
    """Return a memory with what is wanted; keywords that were those of its content are those of its new one."""
    content = held.content if wanted.content is None else wanted.content
    words = held.words if wanted.keywords is None else wanted.keywords
    if wanted.keywords is None and held.words == keywords_of(held.content)[:KEYWORDS_COUNT_MAX]:
        words = keywords_of(content)[:KEYWORDS_COUNT_MAX]
    return replace(
        held,
        content=content,
        category=held.category if wanted.category is None else wanted.category,
        words=words,
        importance=held.importance if wanted.importance is None else wanted.importance,
        extra=held.extra if wanted.extra is None else wanted.extra,
    )


def refuse_twin(facts: Facts, held: Entry, content: str) -> None:
    """Raise ``InvalidInput`` if another memory says exactly what one is about to say."""
    twin = facts.same(content)
    if twin is not None and twin.id != held.id:
        raise InvalidInput(f"the memory {twin.id} says exactly this; delete one of the two, or update that one")


def _update_event(
    facts: Facts,
    pair: tuple[Entry, Entry],
    changed: tuple[str, ...],
    vector: Vector | None,
    cited: tuple[int, ...],
) -> MemoryUpdated:
    held, target = pair
    has_body = not {"content", "keywords", "metadata"}.isdisjoint(changed)
    if vector is not None:
        changed = (*changed, "vector")
    packed, model = b"", ""
    if vector is not None:
        is_alone = len(facts.entries) == 1
        packed, model = vector.packed, fitting((facts.model, facts.dim), vector, is_empty=is_alone)
    if has_body and held.body_seq not in cited:
        cited = (*cited, held.body_seq)
    return MemoryUpdated(
        cited,
        held.id,
        changed,
        target.content if has_body else None,
        target.category if "category" in changed else None,
        target.words if has_body else (),
        target.importance if "importance" in changed else None,
        target.extra if has_body else None,
        packed,
        model,
    )


def delete(place: Place, entry_id: str, options: Options) -> None:
    """Remove a memory."""
    cited = place.door.sources(options.sources)

    def decide(state: State) -> Event | None:
        if entry_id not in state.part(FACTS).entries:
            raise missing(place, entry_id)
        return MemoryDeleted(cited, entry_id)

    place.note(decide, ("delete", entry_id), options)


def clear(place: Place, options: Options) -> int:
    """Remove every memory; return how many there were."""
    cited = place.door.sources(options.sources)
    counted: list[int] = []

    def decide(state: State) -> Event | None:
        counted.append(len(state.part(FACTS).entries))
        return MemoriesCleared(cited) if counted[-1] else None

    noted = place.note(decide, ("clear",), options)
    if counted or noted is None:
        return counted[-1] if counted else 0
    return place.door.read_written(place.stream, lambda state: len(state.part(FACTS).entries), noted[1].seq - 1)


def review(place: Place, entry_id: str, status: object, options: Options) -> Entry:
    """Give a memory a status; return it as it is then."""
    wanted = one_of(status, "status", STATUSES)
    cited = place.door.sources(options.sources)
    seen: list[Entry] = []

    def decide(state: State) -> Event | None:
        held = state.part(FACTS).entries.get(entry_id)
        if held is None:
            raise missing(place, entry_id)
        seen.append(held)
        return None if held.status == wanted else MemoryReviewed(cited, entry_id, wanted)

    noted = place.note(decide, ("review", entry_id, wanted), options)
    if not seen:
        held = place.read(lambda facts: facts.entries.get(entry_id)) if noted is None else place.after(noted, entry_id)
        return held or Entry(entry_id, erased=True)
    if noted is None:
        return seen[-1]
    time_ns = noted[1].time_ns if noted[1].seq > 0 else None
    return place.handed_out(replace(seen[-1], status=wanted, updated_ns=time_ns))
