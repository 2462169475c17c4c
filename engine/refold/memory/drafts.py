"""What callers say of a memory that is to be added or changed, checked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from refold import checks
from refold.engine import batch as batches
from refold.entry import CATEGORIES, STATUSES, Entry, MemoryAdded
from refold.errors import LimitExceeded
from refold.limits import CONTEXT_BYTES_MAX, KEYWORDS_COUNT_MAX, NAME_BYTES_MAX
from refold.memory.door import Door, Options
from refold.memory.embedding import Embedding, Vector
from refold.memory.moments import nanoseconds
from refold.text import keywords as keywords_of

if TYPE_CHECKING:
    import datetime


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


def drafted(  # noqa: PLR0917 - what a memory is made of, checked in one place
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
        message = f"{len(found)} keywords are over KEYWORDS_COUNT_MAX = {KEYWORDS_COUNT_MAX}; give the telling ones"
        raise LimitExceeded(message)
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


def changes(  # noqa: PLR0917 - as in drafted
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
