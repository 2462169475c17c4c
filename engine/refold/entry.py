"""A project's memory: the events that make, change and embed one anew, and the form in which it is handed out."""

from collections.abc import Callable, Iterable, Mapping
from sys import intern
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from refold import checks
from refold.errors import InvalidInput
from refold.event import FLAG_OCCURRED, Event, Stamp, decode_json, pack_json, unpack_json
from refold.limits import CONTEXT_BYTES_MAX, FLOAT_BYTES, NAME_BYTES_MAX, TIME_NS_MAX, VECTOR_DIMENSIONS_MAX

# Vectors of another embedder: the events that bring them, and where they wait until all of them are there.
#
# A memory is embedded anew in pages, while it is read and written as before; then one event lets all the new vectors
# count at once, so that no search ever sees two kinds of them.

NO_VECTOR = 0
"""For the seq of a vector that was erased while its text stays; ``reembed`` makes another one."""


class VectorRenewed(Event, frozen=True, tag=34):
    """A memory or an episode got a vector of another embedder, which does not count yet.

    ``prior`` is the seq of the vector that counted when this one was made.
    """

    sentence: ClassVar[str] = "memory {id!s} got another vector"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    is_visible: ClassVar[bool] = False

    id: str
    prior: int
    vector: bytes = b""
    model: str = ""

    def check(self, *, is_erased: bool) -> None:
        """Raise for a vector without a direction."""
        if not is_erased:
            checks.vector(self.vector, "vector")


class EmbedderSwitched(Event, frozen=True, tag=35):
    """The renewed vectors of a project count from here on."""

    sentence: ClassVar[str] = "the vectors of {model} count from here on"

    is_visible: ClassVar[bool] = False

    model: str
    dim: int

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased one has its dimension
        """Raise for a dimension that no vector may have."""
        checks.integer(self.dim, "dim", 1, VECTOR_DIMENSIONS_MAX, "VECTOR_DIMENSIONS_MAX")


class PendingVectors:
    """The vectors that wait: the seqs of those of one embedder, by what they are of."""

    __slots__ = ("dim", "model", "seqs")

    def __init__(self) -> None:
        self.model: str = ""
        self.dim: int = 0
        self.seqs: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.seqs)

    def copy(self) -> "PendingVectors":
        """Return the same, to go on by itself."""
        other = PendingVectors()
        other.model, other.dim, other.seqs = self.model, self.dim, dict(self.seqs)
        return other

    def take(self, seq: int, event: VectorRenewed) -> None:
        """Let a vector wait; those of another embedder wait no longer."""
        kind = event.model, len(event.vector) // FLOAT_BYTES
        if kind != (self.model, self.dim):
            self.seqs.clear()
            self.model, self.dim = kind
        self.seqs[event.id] = seq

    def of(self, model: str, dim: int) -> Mapping[str, int]:
        """Return the vectors of an embedder that wait."""
        return self.seqs if (model, dim) == (self.model, self.dim) else {}

    def forget(self, entry_id: str) -> None:
        """Let the vector go that waits for something which changed meanwhile."""
        self.seqs.pop(entry_id, None)

    def clear(self) -> None:
        """Let everything go."""
        self.model, self.dim, self.seqs = "", 0, {}

    def packed(self) -> list[Any]:
        """Return the form of a checkpoint row: empty where nothing waits."""
        return [[self.model, self.dim, list(self.seqs), list(self.seqs.values())]] if self.seqs else []

    @staticmethod
    def unpacked(packed: Any) -> "PendingVectors":
        """Return the inverse of ``packed``."""
        coming = PendingVectors()
        for row in msgspec.convert(packed, list[tuple[str, int, list[str], list[int]]]):
            coming.model, coming.dim, ids, seqs = row
            coming.seqs = dict(zip(ids, seqs, strict=True))
        return coming

    def logical(self) -> list[Any]:
        """Return the form in which two states are compared."""
        return [self.model, self.dim, sorted(self.seqs.items())] if self.seqs else []


CATEGORIES: Final = ("preference", "convention", "pattern", "correction", "fact")
CHANGEABLE: Final = ("content", "category", "keywords", "importance", "metadata", "vector")
STATUSES: Final = ("active", "pending_review", "rejected", "archived")
ACTIVE: Final = "active"
"""The status of those that are searched, merged and compacted."""


class MemoryAdded(Event, frozen=True, tag=23):
    """A memory was added to a project; ``origin`` is the seq of the event that it was made of, 0 for none."""

    sentence: ClassVar[str] = "the memory {content} was added, with importance {importance!s}"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    has_own_id: ClassVar[bool] = True

    id: str
    origin: int
    content: str = ""
    category: str = "fact"
    keywords: tuple[str, ...] = ()
    importance: float = 0.5
    status: str = ACTIVE
    extra: bytes | None = None
    session: str | None = None
    context: str | None = None
    vector: bytes = b""
    model: str = ""

    def check(self, *, is_erased: bool) -> None:
        """Raise for what no memory may have."""
        if not is_erased:
            if not self.content.strip():
                raise InvalidInput("content is empty")
            check_content(self)
            checks.one_of(self.category, "category", CATEGORIES)
            checks.one_of(self.status, "status", STATUSES)
            checks.vector(self.vector, "vector")

    def mentions(self) -> tuple[str | None, ...]:
        """Return the session that it came from."""
        return (self.session,)

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata as it was given, fresh at each access."""
        return None if self.extra is None else unpack_json(self.extra)


class MemoryUpdated(Event, frozen=True, tag=24):
    """Fields of a memory, those in ``changed``, got other values.

    Where content, keywords or metadata are among them, the event carries all three as they are now; else no content.
    """

    sentence: ClassVar[str] = "its {changed!s} changed; it says {content}"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    id: str
    changed: tuple[str, ...]
    content: str | None = None
    category: str | None = None
    keywords: tuple[str, ...] = ()
    importance: float | None = None
    extra: bytes | None = None
    vector: bytes = b""
    model: str = ""

    def check(self, *, is_erased: bool) -> None:
        """Raise for fields that no memory has, and for values that none may have."""
        for field in self.changed:
            checks.one_of(field, "changed", CHANGEABLE)
        if is_erased:
            return
        check_content(self)
        for field in {"category", "importance"}.intersection(self.changed):
            if getattr(self, field) is None:
                raise InvalidInput(f"{field} changed and is missing")
        if self.content is None and not {"content", "keywords", "metadata"}.isdisjoint(self.changed):
            raise InvalidInput("content is missing")
        if self.category is not None:
            checks.one_of(self.category, "category", CATEGORIES)
        if "vector" in self.changed:
            checks.vector(self.vector, "vector")


class MemoryDeleted(Event, frozen=True, tag=25):
    """A memory was removed from its project."""

    sentence: ClassVar[str] = "the memory was deleted"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    id: str

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names those alone that it removes
        """Return whether it removes a memory that it names."""
        return True


class MemoriesCleared(Event, frozen=True, tag=26):
    """All memories of a project were removed."""

    sentence: ClassVar[str] = "all memories of the project were removed"
    ends: ClassVar[tuple[str, ...]] = ("memory",)


class MemoryMerged(Event, frozen=True, tag=27):
    """A memory took another one in, or a text that was to be added; both texts are recorded so that it can be reversed.

    ``incoming`` holds what else was to be added, and ``other_vector`` its vector; a memory that was there has none.
    """

    sentence: ClassVar[str] = "memory {id!s} took {other_text} in at a cosine of {cosine!s}; it says {content}"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    id: str
    other: str
    cosine: float = 0.0
    text: str = ""
    other_text: str = ""
    content: str = ""
    keywords: tuple[str, ...] = ()
    importance: float = 0.5
    extra: bytes | None = None
    vector: bytes = b""
    model: str = ""
    incoming: bytes | None = None
    other_vector: bytes = b""

    def check(self, *, is_erased: bool) -> None:
        """Raise for what no memory may have."""
        if is_erased:
            return
        check_content(self)
        check_carried(self.incoming)
        for name in ("vector", "other_vector"):
            if getattr(self, name):
                checks.vector(getattr(self, name), name)

    def mentions(self) -> tuple[str | None, ...]:
        """Return the session of the incoming text."""
        return _session_of(self.incoming)

    def removes(self, key: str) -> bool:
        """Return whether a memory went into another one by it."""
        return key == self.other


class MemoryUnmerged(Event, frozen=True, tag=28):
    """A merge, the one at ``prior``, was taken apart: what it had changed is as before, and the other one is back.

    ``content`` and ``importance`` are ``None`` where they stay as they were. ``kept_vector`` is the seq of the vector
    that counts again, 0 if it still is the one that did; ``origin`` is the other one's. ``other`` is empty if it did
    not come back, because a memory with its content is there.
    """

    sentence: ClassVar[str] = "the merge at seq {prior!s} was taken apart"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    id: str
    other: str
    prior: int
    kept_vector: int
    origin: int
    content: str | None = None
    keywords: tuple[str, ...] = ()
    importance: float | None = None
    extra: bytes | None = None
    incoming: bytes | None = None
    vector: bytes = b""
    model: str = ""

    def check(self, *, is_erased: bool) -> None:
        """Raise for what no memory may have."""
        if is_erased:
            return
        check_content(self)
        check_carried(self.incoming)
        if self.other and self.incoming is None:
            raise InvalidInput("incoming is missing")
        if self.vector:
            checks.vector(self.vector, "vector")

    def mentions(self) -> tuple[str | None, ...]:
        """Return the session of the memory that is back."""
        return _session_of(self.incoming)


class MemoryReviewed(Event, frozen=True, tag=29):
    """A memory got another status."""

    sentence: ClassVar[str] = "its status became {status!s}"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    id: str
    status: str

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased one has its status
        """Raise for a status that no memory may have."""
        checks.one_of(self.status, "status", STATUSES)


class MemoriesDecayed(Event, frozen=True, tag=30):
    """The importance of memories fell with the days; ``decayed`` says up to when those days were counted.

    ``total`` counts them with those of the pages before, of the same commit.
    """

    sentence: ClassVar[str] = "the importance of {ids!s} fell with the days"

    ids: tuple[str, ...]
    importances: tuple[float, ...]
    decayed: tuple[int, ...]
    total: int

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased one has its numbers
        """Raise unless each memory has an importance and a time."""
        if not len(self.ids) == len(self.importances) == len(self.decayed):
            raise InvalidInput(f"{len(self.ids)} memories have {len(self.importances)} importances")
        for importance in self.importances:
            checks.fraction(importance, "importance")


def check_content(event: "MemoryAdded | MemoryUpdated | MemoryMerged | MemoryUnmerged") -> None:
    """Raise for keywords, an importance, metadata or an origin that no memory may have."""
    checks.keywords(event.keywords)
    if event.importance is not None:
        checks.fraction(event.importance, "importance")
    if event.extra is not None:
        checks.json_object(decode_json(event.extra), "metadata")
    if isinstance(event, MemoryAdded) and event.session is not None:
        checks.text(event.session, "source", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if isinstance(event, MemoryAdded) and event.context is not None:
        checks.text(event.context, "source_context", CONTEXT_BYTES_MAX, "CONTEXT_BYTES_MAX")


class MemoriesPruned(Event, frozen=True, tag=31):
    """Memories were removed because they had become unimportant."""

    sentence: ClassVar[str] = "unimportant memories were removed: {ids!s}"

    ids: tuple[str, ...]
    total: int

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names those alone that it removes
        """Return whether it removes a memory that it names."""
        return True


class MemoriesRecalled(Event, frozen=True, tag=32):
    """Memories were searched for, found and shown."""

    sentence: ClassVar[str] = "a recall of {query} found {ids!s}"

    ids: tuple[str, ...]
    exact: bool
    query: str = ""
    ranking: str = ""
    scores: tuple[float, ...] = ()
    signals: bytes | None = None
    conversation: str | None = None
    floor: float = 0.0

    def check(self, *, is_erased: bool) -> None:
        """Raise unless each memory has a score, or none has one: those of a context that was shown."""
        if not is_erased and len(self.scores) not in {0, len(self.ids)}:
            raise InvalidInput(f"{len(self.ids)} memories have {len(self.scores)} scores")

    def mentions(self) -> tuple[str | None, ...]:
        """Return the conversation in which they were shown."""
        return (self.conversation,)


class Entry(Struct, frozen=True, gc=False):
    """A memory of a project: its content, importance, origin, and use.

    ``keywords`` and ``metadata`` are fresh at each access. Inside a batch, seqs and times are ``None`` until it ends.
    """

    id: str
    content: str = ""
    category: str = "fact"
    words: tuple[str, ...] = ()
    """The keywords, in order."""
    importance: float = 0.0
    access_count: int = 0
    status: str = ACTIVE
    extra: bytes | None = None
    """The metadata, packed."""
    session: str | None = None
    """The session that it came from: given, or the conversation of its source."""
    source_context: str | None = None
    origin: int = 0
    """The seq of its source, 0 if none was given."""
    created_ns: int | None = None
    updated_ns: int | None = None
    accessed_ns: int | None = None
    """When it was last recalled; until then, when it happened."""
    decayed_ns: int = 0
    """Up to when its decay was counted, 0 if it never was."""
    occurred_ns: int | None = None
    dated: bool = False
    """Whether the caller gave the time at which it happened."""
    body_seq: int = 0
    """The seq of the event that holds content, keywords and metadata."""
    vector_seq: int = 0
    """The seq of the event that holds the vector."""
    blank: tuple[str, ...] = ()
    """The fields of the event at ``body_seq`` that do not count any more: their replacement was erased."""
    erased: bool = False

    @property
    def keywords(self) -> list[str]:
        """The keywords: given, or those of the content."""
        return list(self.words)

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata as it was given."""
        return None if self.extra is None else unpack_json(self.extra)

    @property
    def source(self) -> int | str | None:
        """Its origin: a seq, or the name of a session."""
        return self.origin or self.session

    @property
    def seq(self) -> int | None:
        """The seq of the event that holds its content, ``None`` while its batch is open."""
        return self.body_seq if self.body_seq > 0 else None

    @property
    def stamp(self) -> "Place":
        """Its seq, as sources and erasures take it."""
        return Place(self.body_seq)

    def __repr__(self) -> str:
        return f"Entry(id={self.id!r}, content={self.content!r}, importance={self.importance:.3g})"


class Place(Struct, frozen=True, gc=False):
    """A seq, as results carry it."""

    seq: int


def when(time_ns: int, stamp: Stamp) -> int | None:
    """Return a time of a stamp, ``None`` while its batch is open."""
    return time_ns if stamp.seq > 0 else None


def settle_entry(entry: Entry, seq_of: Callable[[int], int], time_ns: int) -> None:
    """Give a memory that a batch handed out the seqs and the time that its events got."""
    for field in ("origin", "body_seq", "vector_seq"):
        if getattr(entry, field) < 0:
            force_setattr(entry, field, seq_of(getattr(entry, field)))
    for field in ("created_ns", "updated_ns", "accessed_ns", "occurred_ns"):
        if getattr(entry, field) is None:
            force_setattr(entry, field, time_ns)


def entry_of(event: MemoryAdded, stamp: Stamp) -> Entry:
    """Return the memory that an event adds."""
    time_ns = when(stamp.time_ns, stamp)
    # In an open batch a stamp has the time of happening only where the caller said it.
    occurred_ns = stamp.occurred_ns if stamp.seq > 0 else stamp.occurred_ns or None
    return Entry(
        event.id,
        event.content,
        event.category,
        event.keywords,
        event.importance,
        0,
        event.status,
        event.extra,
        event.session,
        event.context,
        event.origin,
        time_ns,
        time_ns,
        occurred_ns,
        0,
        occurred_ns,
        stamp.flags & FLAG_OCCURRED != 0 or (stamp.seq < 0 and occurred_ns is not None),
        stamp.seq,
        stamp.seq,
    )


def interned(keywords: Iterable[str]) -> tuple[str, ...]:
    """Return keywords as the state holds them: one string for a word, however many memories have it."""
    return tuple(map(intern, keywords))


_CARRIED: Final = (
    *("content", "category", "importance", "access_count", "status", "session", "source_context"),
    *("created_ns", "updated_ns", "accessed_ns", "decayed_ns", "occurred_ns", "dated"),
)


def carried(entry: Entry) -> bytes:
    """Return a memory as the events hold it that take one in or bring one back: all but id, seqs and vector."""
    shown = {name: getattr(entry, name) for name in _CARRIED}
    return pack_json(shown | {"keywords": entry.words, "metadata": entry.metadata})


def check_carried(packed: bytes | None) -> None:
    """Raise for what is carried along of a memory if no memory may have it."""
    if packed is None:
        return
    shown = msgspec.convert(decode_json(packed), dict[str, Any])
    if set(shown) != {*_CARRIED, "keywords", "metadata"}:
        raise InvalidInput("incoming is no memory")
    metadata, words = shown.pop("metadata"), shown.pop("keywords")
    if metadata is not None:
        checks.json_object(metadata, "metadata")
    entry = msgspec.convert(shown | {"id": "", "words": words}, Entry)
    checks.text(entry.content, "content")
    checks.keywords(entry.words)
    checks.one_of(entry.category, "category", CATEGORIES)
    checks.one_of(entry.status, "status", STATUSES)
    checks.fraction(entry.importance, "importance")
    checks.count(entry.access_count, "access_count")
    for name in _CARRIED:
        time_ns = getattr(entry, name) if name.endswith("_ns") else None
        if abs(time_ns or 0) > TIME_NS_MAX:
            raise InvalidInput(f"{name} is {time_ns}; a time is at most {TIME_NS_MAX} nanoseconds from 1970")


def _session_of(packed: bytes | None) -> tuple[str | None, ...]:
    return () if packed is None else (unpack_json(packed).get("session"),)


def carried_back(entry_id: str, packed: bytes, origin: int) -> Entry:
    """Return the memory that ``carried`` packed."""
    shown = unpack_json(packed)
    metadata = shown.pop("metadata")
    words = interned(shown.pop("keywords"))
    extra = None if metadata is None else pack_json(metadata)
    return Entry(id=entry_id, words=words, extra=extra, origin=origin, **shown)


def returned(event: MemoryUnmerged) -> Entry:
    """Return the memory that an event brings back."""
    assert event.incoming is not None, event
    return carried_back(event.other, event.incoming, event.origin)


def body_of(event: Event, entry_id: str) -> tuple[str, Iterable[str], bytes | None]:
    """Return content, keywords and packed metadata of a memory, from the event that holds them."""
    if isinstance(event, MemoryUnmerged) and event.other == entry_id:
        back = returned(event)
        return back.content, back.words, back.extra
    assert isinstance(event, (MemoryAdded, MemoryUpdated, MemoryMerged, MemoryUnmerged)), event
    assert event.id == entry_id, f"{event!r} is not of the memory {entry_id}"
    assert event.content is not None, event
    return event.content, event.keywords, event.extra


def touched(event: Event) -> tuple[str, ...] | None:
    """Return the ids of the memories that an event may have changed, ``None`` for all of them."""
    if isinstance(event, (MemoryMerged, MemoryUnmerged)):
        return event.id, event.other
    if isinstance(event, (MemoryAdded, MemoryUpdated, MemoryDeleted, MemoryReviewed)):
        return (event.id,)
    if isinstance(event, (MemoriesDecayed, MemoriesPruned, MemoriesRecalled)):
        return event.ids
    return () if isinstance(event, VectorRenewed) else None
