"""A project's memory: the events that create, change and re-embed it, and the form in which it is returned."""

from collections.abc import Callable, Iterable, Mapping
from sys import intern
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from refold import checks
from refold.errors import InvalidInput
from refold.event import FLAG_OCCURRED, Event, Stamp, clock_of, decode_json, pack_json, unpack_json
from refold.limits import CONTEXT_BYTES_MAX, FLOAT_BYTES, NAME_BYTES_MAX, TIME_NS_MAX, VECTOR_DIMENSIONS_MAX

# Vectors of another embedder: the events that carry them, and the place where they wait until all of them are there.
#
# A memory is re-embedded in pages, while reads and writes continue. Then one event puts all the new vectors in use at
# once, so that no search ever sees two kinds.

NO_VECTOR = 0
"""Stands for the seq of a vector that was erased while its text stays; ``reembed`` makes another vector."""


class VectorRenewed(Event, frozen=True, tag=34):
    """A memory or an episode got a vector of another embedder, which is not in use yet.

    ``prior`` is the seq of the vector that was in use when this one was made.
    """

    sentence: ClassVar[str] = "memory {id!s} got another vector"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    is_visible: ClassVar[bool] = False

    id: str
    prior: int
    vector: bytes = b""
    model: str = ""

    def check(self, *, is_erased: bool) -> None:
        """Raise for a vector that ``checks.vector`` refuses."""
        if not is_erased:
            checks.vector(self.vector, "vector")


class EmbedderSwitched(Event, frozen=True, tag=35):
    """The renewed vectors of a project are in use from here on."""

    sentence: ClassVar[str] = "the vectors of {model} count from here on"

    is_visible: ClassVar[bool] = False

    model: str
    dim: int

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event keeps its dimension
        """Raise for an invalid dimension."""
        checks.integer(self.dim, "dim", 1, VECTOR_DIMENSIONS_MAX, "VECTOR_DIMENSIONS_MAX")


class PendingVectors:
    """Pending vectors: the seqs of the vectors of one embedder, by the id of the embedded memory or episode."""

    __slots__ = ("dim", "model", "seqs")

    def __init__(self) -> None:
        self.model: str = ""
        self.dim: int = 0
        self.seqs: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.seqs)

    def copy(self) -> "PendingVectors":
        """Return an independent copy."""
        other = PendingVectors()
        other.model, other.dim, other.seqs = self.model, self.dim, dict(self.seqs)
        return other

    def take(self, seq: int, event: VectorRenewed) -> None:
        """Add a pending vector; those of another embedder are dropped."""
        kind = event.model, len(event.vector) // FLOAT_BYTES
        if kind != (self.model, self.dim):
            self.seqs.clear()
            self.model, self.dim = kind
        self.seqs[event.id] = seq

    def of(self, model: str, dim: int) -> Mapping[str, int]:
        """Return the seqs of an embedder's pending vectors, by id."""
        return self.seqs if (model, dim) == (self.model, self.dim) else {}

    def forget(self, entry_id: str) -> None:
        """Drop the pending vector of an entry that has changed since."""
        self.seqs.pop(entry_id, None)

    def clear(self) -> None:
        """Drop everything."""
        self.model, self.dim, self.seqs = "", 0, {}

    def pack(self) -> list[Any]:
        """Return the form of a checkpoint row: empty if no vector is pending."""
        return [[self.model, self.dim, list(self.seqs), list(self.seqs.values())]] if self.seqs else []

    @staticmethod
    def unpack(packed: Any) -> "PendingVectors":
        """Return the inverse of ``pack``."""
        coming = PendingVectors()
        for row in msgspec.convert(packed, list[tuple[str, int, list[str], list[int]]]):
            coming.model, coming.dim, ids, seqs = row
            coming.seqs = dict(zip(ids, seqs, strict=True))
        return coming

    def logical(self) -> list[Any]:
        """Return the form in which two states are compared."""
        return [self.model, self.dim, sorted(self.seqs.items())] if self.seqs else []


SAID_BY_KEY: Final = "said_by"  # Of the metadata of a memory: the name of the user who said it.
CATEGORIES: Final = ("preference", "convention", "pattern", "correction", "fact")
CHANGEABLE: Final = ("content", "category", "keywords", "importance", "metadata", "vector")
STATUSES: Final = ("active", "pending_review", "rejected", "archived")
ACTIVE: Final = "active"
"""The status of memories that are searched, merged and compacted."""
PENDING: Final = "pending_review"


def said_by(name: str | None) -> dict[str, Any] | None:
    """Return the metadata of a memory that a user said; `None` if the user has no name."""
    return None if name is None else {SAID_BY_KEY: name}


def speaker_of(extra: bytes | None) -> str | None:
    """Return the name of the user who said a memory, from its packed metadata; `None` if nobody is named."""
    name = None if extra is None else unpack_json(extra).get(SAID_BY_KEY)
    return name if isinstance(name, str) else None


class MemoryAdded(Event, frozen=True, tag=23):
    """A memory was added to a project; ``origin`` is the seq of the event that it was made from, 0 for none."""

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
        """Raise for invalid values."""
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
        """The metadata as given, in a new dict at each access."""
        return None if self.extra is None else unpack_json(self.extra)


class MemoryUpdated(Event, frozen=True, tag=24):
    """Fields of a memory, listed in ``changed``, got other values; ``context`` is the passage that new content is from.

    If content, keywords or metadata are among them, the event carries all three as they are now; otherwise it carries
    no content. An event with a ``status`` tells the whole memory, with nothing of what an earlier event said: it is not
    derived from that event, and outlives its erasure.
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
    status: str | None = None
    context: str | None = None

    def check(self, *, is_erased: bool) -> None:
        """Raise for fields that no memory has, and for invalid values."""
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
        if self.status is not None:
            checks.one_of(self.status, "status", STATUSES)
            if None in (self.content, self.category, self.importance) or not self.vector:
                raise InvalidInput("an update with a status lacks content, category, importance or vector")
        if "vector" in self.changed:
            checks.vector(self.vector, "vector")


class MemoryDeleted(Event, frozen=True, tag=25):
    """A memory was removed from its project."""

    sentence: ClassVar[str] = "the memory was deleted"
    subject: ClassVar[tuple[str, str]] = ("memory", "id")

    id: str

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only what it removes
        """Return whether it removes a memory that it names."""
        return True


class MemoriesCleared(Event, frozen=True, tag=26):
    """All memories of a project were removed."""

    sentence: ClassVar[str] = "all memories of the project were removed"
    ends: ClassVar[tuple[str, ...]] = ("memory",)


class MemoryMerged(Event, frozen=True, tag=27):
    """A memory absorbed another one, or a text that was to be added; both texts are recorded, so it can be reversed.

    For a text that was to be added, ``incoming`` holds its memory as ``pack_entry`` packs it, and ``other_vector`` its
    vector; for an existing memory, ``incoming`` is ``None`` and ``other_vector`` empty.
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
        """Raise for invalid values."""
        if is_erased:
            return
        check_content(self)
        check_packed_entry(self.incoming)
        for name in ("vector", "other_vector"):
            if getattr(self, name):
                checks.vector(getattr(self, name), name)

    def mentions(self) -> tuple[str | None, ...]:
        """Return the session of the incoming text."""
        return _session_of(self.incoming)

    def removes(self, key: str) -> bool:
        """Return whether a memory was absorbed by another one in this merge."""
        return key == self.other


class MemoryUnmerged(Event, frozen=True, tag=28):
    """The merge at ``prior`` was reversed: the values that it had changed are restored, and the other memory is back.

    ``content`` and ``importance`` are ``None`` if they stay unchanged. ``kept_vector`` is the seq of the vector that is
    in use again, 0 if the one in use does not change; ``origin`` is that of the other memory. ``other`` is empty if the
    other memory did not come back, because a memory with its content exists.
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
        """Raise for invalid values."""
        if is_erased:
            return
        check_content(self)
        check_packed_entry(self.incoming)
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

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event keeps its status
        """Raise for an invalid status."""
        checks.one_of(self.status, "status", STATUSES)


class MemoriesDecayed(Event, frozen=True, tag=30):
    """The importance of memories decayed with time; ``decayed`` holds the time up to which each decay was counted.

    ``total`` is the number of these memories and of those on the preceding pages of the same commit.
    """

    sentence: ClassVar[str] = "the importance of {ids!s} fell with the days"

    ids: tuple[str, ...]
    importances: tuple[float, ...]
    decayed: tuple[int, ...]
    total: int

    def check(self, *, is_erased: bool) -> None:  # noqa: ARG002 - an erased event keeps its numbers
        """Raise unless each memory has a valid importance and a time."""
        if not len(self.ids) == len(self.importances) == len(self.decayed):
            raise InvalidInput(f"{len(self.ids)} memories have {len(self.importances)} importances")
        for importance in self.importances:
            checks.fraction(importance, "importance")


def check_content(event: "MemoryAdded | MemoryUpdated | MemoryMerged | MemoryUnmerged") -> None:
    """Raise for invalid keywords, importance, metadata or origin."""
    checks.keywords(event.keywords)
    if event.importance is not None:
        checks.fraction(event.importance, "importance")
    if event.extra is not None:
        checks.json_object(decode_json(event.extra), "metadata")
    if isinstance(event, MemoryAdded) and event.session is not None:
        checks.text(event.session, "source", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if isinstance(event, (MemoryAdded, MemoryUpdated)) and event.context is not None:
        checks.text(event.context, "source_context", CONTEXT_BYTES_MAX, "CONTEXT_BYTES_MAX")


class MemoriesPruned(Event, frozen=True, tag=31):
    """Memories were removed because they had become unimportant."""

    sentence: ClassVar[str] = "unimportant memories were removed: {ids!s}"

    ids: tuple[str, ...]
    total: int

    def removes(self, key: str) -> bool:  # noqa: ARG002 - it names only what it removes
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
        """Raise unless every memory has a score, or no memory has one, as in a context that was shown."""
        if not is_erased and len(self.scores) not in {0, len(self.ids)}:
            raise InvalidInput(f"{len(self.ids)} memories have {len(self.scores)} scores")

    def mentions(self) -> tuple[str | None, ...]:
        """Return the conversation in which the memories were shown."""
        return (self.conversation,)


class Entry(Struct, frozen=True, gc=False):
    """A memory of a project: its content, importance, origin, and use.

    ``keywords`` and ``metadata`` are new objects at each access. Inside a batch, seqs and times are ``None`` until the
    batch ends.
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
    """The session that it came from: as given, or the conversation of its source."""
    source_context: str | None = None
    origin: int = 0
    """The seq of its source, 0 if none was given."""
    created_ns: int | None = None
    updated_ns: int | None = None
    accessed_ns: int | None = None
    """When it was last recalled; until then, when it happened."""
    decayed_ns: int = 0
    """The time up to which its decay was counted, 0 if it never was."""
    occurred_ns: int | None = None
    dated: bool = False
    """Whether the caller gave the time at which it happened."""
    body_seq: int = 0
    """The seq of the event that holds content, keywords and metadata."""
    vector_seq: int = 0
    """The seq of the event that holds the vector."""
    blank: tuple[str, ...] = ()
    """The fields of the event at ``body_seq`` that no longer count, because their replacement was erased."""
    erased: bool = False

    @property
    def keywords(self) -> list[str]:
        """The keywords: as given, or those of the content."""
        return list(self.words)

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata as given."""
        return None if self.extra is None else unpack_json(self.extra)

    @property
    def speaker(self) -> str | None:
        """The name of the user who said it, from its metadata's ``said_by``; ``None`` if nobody is named."""
        return speaker_of(self.extra)

    @property
    def source(self) -> int | str | None:
        """Its origin: a seq, or the name of a session."""
        return self.origin or self.session

    @property
    def seq(self) -> int | None:
        """The seq of the event that holds its content, ``None`` while its batch is open."""
        return self.body_seq if self.body_seq > 0 else None

    @property
    def stamp(self) -> "SeqStamp":
        """Its seq, in the form that sources and erasures take."""
        return SeqStamp(self.body_seq)

    def __repr__(self) -> str:
        return f"Entry(id={self.id!r}, content={self.content!r}, importance={self.importance:.3g})"


class SeqStamp(Struct, frozen=True, gc=False):
    """A seq, in the form that results carry."""

    seq: int


def final_time(time_ns: int, stamp: Stamp) -> int | None:
    """Return a time of a stamp, ``None`` while its batch is open."""
    return time_ns if stamp.seq > 0 else None


def settle_entry(entry: Entry, seq_of: Callable[[int], int], time_ns: int, clock_ns: int) -> None:
    """Fill in the final seqs and times of a memory that a batch returned before they were known.

    ``clock_ns`` is when events without a given time happened.
    """
    for field in ("origin", "body_seq", "vector_seq"):
        if getattr(entry, field) < 0:
            force_setattr(entry, field, seq_of(getattr(entry, field)))
    for field in ("created_ns", "updated_ns", "accessed_ns", "occurred_ns"):
        if getattr(entry, field) is None:
            force_setattr(entry, field, time_ns if entry.dated else clock_ns)


def entry_of(event: MemoryAdded, stamp: Stamp) -> Entry:
    """Return the memory that an event adds."""
    time_ns = final_time(clock_of(stamp), stamp)
    # In an open batch, a stamp has the time of the event only if the caller gave it.
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


def intern_words(keywords: Iterable[str]) -> tuple[str, ...]:
    """Return keywords as the state holds them: interned, so that all memories with a word share one string."""
    return tuple(map(intern, keywords))


_CARRIED: Final = (
    *("content", "category", "importance", "access_count", "status", "session", "source_context"),
    *("created_ns", "updated_ns", "accessed_ns", "decayed_ns", "occurred_ns", "dated"),
)


def pack_entry(entry: Entry) -> bytes:
    """Return a memory as stored in events that absorb it or bring it back: all but id, seqs and vector."""
    shown = {name: getattr(entry, name) for name in _CARRIED}
    return pack_json(shown | {"keywords": entry.words, "metadata": entry.metadata})


def check_packed_entry(packed: bytes | None) -> None:
    """Raise if a packed memory is invalid."""
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


def unpack_entry(entry_id: str, packed: bytes, origin: int) -> Entry:
    """Return the memory that ``pack_entry`` packed."""
    shown = unpack_json(packed)
    metadata = shown.pop("metadata")
    words = intern_words(shown.pop("keywords"))
    extra = None if metadata is None else pack_json(metadata)
    return Entry(id=entry_id, words=words, extra=extra, origin=origin, **shown)


def unmerged_entry(event: MemoryUnmerged) -> Entry:
    """Return the memory that an event brings back."""
    assert event.incoming is not None, event
    return unpack_entry(event.other, event.incoming, event.origin)


def body_of(event: Event, entry_id: str) -> tuple[str, Iterable[str], bytes | None]:
    """Return the content, keywords and packed metadata of a memory from the event that holds them."""
    if isinstance(event, MemoryUnmerged) and event.other == entry_id:
        back = unmerged_entry(event)
        return back.content, back.words, back.extra
    assert isinstance(event, (MemoryAdded, MemoryUpdated, MemoryMerged, MemoryUnmerged)), event
    assert event.id == entry_id, f"{event!r} is not of the memory {entry_id}"
    assert event.content is not None, event
    return event.content, event.keywords, event.extra


def changed_ids(event: Event) -> tuple[str, ...] | None:
    """Return the ids of the memories that an event may have changed, ``None`` for all of them."""
    if isinstance(event, (MemoryMerged, MemoryUnmerged)):
        return event.id, event.other
    if isinstance(event, (MemoryAdded, MemoryUpdated, MemoryDeleted, MemoryReviewed)):
        return (event.id,)
    if isinstance(event, (MemoriesDecayed, MemoriesPruned, MemoriesRecalled)):
        return event.ids
    return () if isinstance(event, VectorRenewed) else None
