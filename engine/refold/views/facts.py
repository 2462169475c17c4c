"""The memories of a project: facts with keywords, importance and access, found by meaning.

The state holds no vectors, only the seqs of the events that do. An erased memory remains as an id that is never found.
An erased merge leaves the memory as it was before. Content that an erased update had replaced does not come back. An
update that tells the whole memory outlives what it replaced: the memory then begins with that update.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from sys import intern
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.entry import (
    NO_VECTOR,
    EmbedderSwitched,
    Entry,
    MemoriesCleared,
    MemoriesDecayed,
    MemoriesPruned,
    MemoriesRecalled,
    MemoryAdded,
    MemoryDeleted,
    MemoryMerged,
    MemoryReviewed,
    MemoryUnmerged,
    MemoryUpdated,
    PendingVectors,
    VectorRenewed,
    body_of,
    changed_ids,
    entry_of,
    final_time,
    intern_words,
    unmerged_entry,
)
from refold.event import FLAG_OCCURRED, Cut, Event, LazyEvents, Located, Stamp, View, clock_of
from refold.limits import FLOAT_BYTES, RECENT_CHANGES_COUNT
from refold.views.base import copy_slots

_BODY: Final = ("content", "keywords", "metadata")


class _Row(Struct, array_like=True, gc=False):
    """The beginning of a checkpoint row, and the only part that is read of memories that no caller asks for."""

    id: str


class MemoryList:
    """The memories of a state at one moment, in order; those of a packed state are read on demand."""

    def __init__(self, count: int, rows: msgspec.Raw, events: LazyEvents) -> None:
        self._count = count
        self._packed = rows
        self._events = events
        self._rows: list[msgspec.Raw] = []
        self._places: dict[str, int] = {}
        self._found: dict[int, Entry] = {}
        """The memories read so far, until all are read."""
        self._all: list[Entry] | None = None

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "MemoryList":
        """Return memories that are already read."""
        found = list(entries)
        memories = cls(len(found), msgspec.Raw(), LazyEvents((), _no_events, _call))
        memories._all = found
        return memories

    def __len__(self) -> int:
        return self._count

    @property
    def places(self) -> dict[str, int]:
        """The place of each memory, by id."""
        if not self._places and self._count:
            rows: Sequence[_Row | Entry] = _DECODE_IDS(self._packed) if self._all is None else self._all
            self._places = {row.id: place for place, row in enumerate(rows)}
        return self._places

    def get_many(self, ids: Sequence[str], places: Sequence[int] = ()) -> list[Entry | None]:
        """Return the memories with some ids, ``None`` for ids that do not exist; no other memory is read.

        ``places`` are where the memories should be; if they are, no lookup is needed.
        """
        found: list[Entry | None] = self._events.report(lambda: self._read_some(ids, places))
        return found

    def _read_some(self, ids: Sequence[str], places: Sequence[int]) -> list[Entry | None]:
        if places and max(places) < self._count:
            found = self._read_places(places)
            if [entry.id for entry in found] == ids:
                return list(found)
        known = [self.places.get(entry_id) for entry_id in ids]
        read = iter(self._read_places([place for place in known if place is not None]))
        return [None if place is None else next(read) for place in known]

    def _read_places(self, places: Sequence[int]) -> list[Entry]:
        """Return the memories at the given places."""
        if self._all is not None:
            return [self._all[place] for place in places]
        found = self._found  # The dict of this moment, in case another thread reads all memories meanwhile.
        missing = [place for place in places if place not in found]
        if missing:
            packed = self._rows = self._rows or _DECODE_PARTS(self._packed)
            rows = [_DECODE_ROW(packed[place]) for place in missing]
            found |= zip(missing, map(_entry, rows, self._events.at(missing)), strict=True)
        return [found[place] for place in places]

    def all(self) -> list[Entry]:
        """Return all memories."""
        if self._all is None:
            self._events.report(self._read_all)
        assert self._all is not None, "all were read"
        return self._all

    def _read_all(self) -> None:
        rows: list[tuple[Any, ...]] = _DECODE_ROWS(self._packed)
        entries = list(map(_entry, rows, self._events.at(range(self._count))))
        if len(rows) != self._count:
            raise ValueError(f"{len(rows)} rows of {self._count} memories")
        for place, entry in self._found.items():
            entries[place] = entry
        self._all, self._found, self._rows = entries, {}, []


def _no_events(_: Sequence[int]) -> list[Event]:
    return []


def _call(use: Callable[[], Any]) -> Any:
    return use()


def _entry(row: tuple[Any, ...], event: Event) -> Entry:
    """Return a memory from its row and the event at its ``body_seq``."""
    entry_id, category, importance, access_count, status, *others, blank = row
    content, keywords, extra = body_of(event, entry_id)
    words = () if "keywords" in blank else intern_words(keywords)
    extra = None if "metadata" in blank else extra
    entry: Entry = _MAKE(entry_id, content, category, words, importance, access_count, status, extra, *others, blank)
    return entry


_MAKE: Final[Any] = Entry  # By position, which takes half the time: there can be very many.


class Facts:
    """The memories by id, in the order in which they were added, and the ids of the erased ones."""

    __slots__ = (
        *("_by_content", "_doubled", "_entries", "_packed"),
        *("coming", "dim", "erased", "model", "recent", "seq", "unmerged"),
    )

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_content: dict[str, str] = {}
        """Content -> id of a memory that has it."""
        self._doubled: set[str] = set()
        """Contents that several memories had: an erased merge, or an update, can leave a memory with the content of
        another."""
        self._packed: MemoryList | None = None
        """Holds the memories until a caller asks for all of them or changes one."""
        self.erased: dict[str, None] = {}
        self.unmerged: dict[int, None] = {}  # The seqs of the merges that were reversed.
        self.model = ""  # The embedder of the newest vector.
        self.dim = 0
        self.seq = 0  # The seq of the last event that this view folded, which identifies the state.
        self.coming = PendingVectors()  # The vectors of another embedder, by id.
        self.recent: deque[tuple[int, int, tuple[str, ...] | None]] = deque(maxlen=RECENT_CHANGES_COUNT)
        """The last events: the ``seq`` before, the ``seq`` after, and the ids that were touched, ``None`` for all."""

    @property
    def count(self) -> int:
        """The number of memories."""
        return len(self._entries) if self._packed is None else len(self._packed)

    @property
    def entries(self) -> dict[str, Entry]:
        """The memories by id, in the order in which they were added; all of them are read."""
        if self._packed is not None:
            for entry in self._packed.all():
                self._entries[entry.id] = entry
                self._note_content(entry)
            self._packed = None
        return self._entries

    def memories(self) -> MemoryList:
        """Return the memories as they are now; events that are folded later do not change them."""
        return MemoryList.of(self._entries.values()) if self._packed is None else self._packed

    copy = copy_slots

    def put(self, entry: Entry) -> None:
        """Add a memory, or replace it in place."""
        entries = self.entries
        existing = entries.get(entry.id)
        if existing is None or existing.content != entry.content:
            if existing is not None:
                self._forget_content(existing)
            self._note_content(entry)
        if existing is not None and existing.vector_seq != entry.vector_seq:
            self.coming.forget(entry.id)
        entries[entry.id] = entry

    def drop(self, entry_id: str) -> Entry | None:
        """Remove a memory and return it, ``None`` if it does not exist."""
        existing = self.entries.pop(entry_id, None)
        if existing is not None:
            self._forget_content(existing)
            self.coming.forget(entry_id)
        return existing

    def erase(self, entry_id: str) -> None:
        """Reduce a memory to its id."""
        self.drop(entry_id)
        self.erased[entry_id] = None

    def clear(self) -> None:
        self._packed = None
        self._entries.clear()
        self._by_content.clear()
        self._doubled.clear()
        self.coming.clear()

    def find_content(self, content: str, speaker: str | None) -> Entry | None:
        """Return the live memory with exactly this content that one user, or nobody by name, said: the first added.

        What two users said are two memories: each can be forgotten or erased without the other.
        """
        entries = self.entries
        entry_id = self._by_content.get(content)
        alike = [] if entry_id is None else [entries[entry_id]]
        if content in self._doubled:
            alike = [entry for entry in entries.values() if entry.content == content]
        return next((entry for entry in alike if entry.speaker == speaker), None)

    def set_embedder(self, vector: bytes, model: str) -> None:
        """Set the model and the dimension to those of an event's vector, if it has one."""
        if vector:
            self.model, self.dim = intern(model), len(vector) // FLOAT_BYTES

    def advance(self, stamp: Stamp, event: Event) -> None:
        """Record the seq of an event, and the ids that it touches."""
        self.recent.append((self.seq, stamp.seq, changed_ids(event)))
        self.seq = stamp.seq

    def _note_content(self, entry: Entry) -> None:
        if self._by_content.setdefault(entry.content, entry.id) != entry.id:
            self._doubled.add(entry.content)

    def _forget_content(self, entry: Entry) -> None:
        if self._by_content.get(entry.content) == entry.id:
            del self._by_content[entry.content]

    def pack(self) -> Cut[Entry]:
        before = [self.seq, self.model, self.dim, list(self.erased), list(self.unmerged)]
        entries = self.entries.values()
        return Cut(before, entries, self.coming.pack(), row_of=_ROW_OF, seq_of=attrgetter("body_seq"))

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Facts":
        facts = cls._unpack_head(inline)
        rows: list[tuple[Any, ...]] = msgspec.convert(inline[_ROWS_PLACE], list[_ROW])  # type: ignore[valid-type]
        for row, (event, _) in zip(rows, events, strict=True):
            facts.put(_entry(row, event))
        facts.coming = PendingVectors.unpack(inline[_ROWS_PLACE + 1 :])
        return facts

    @classmethod
    def unpack_later(cls, inline: msgspec.Raw, events: LazyEvents) -> "Facts":
        """Return the state that was packed, whose memories are read on demand."""
        parts = _DECODE_PARTS(inline)
        memories = MemoryList(len(events), parts[_ROWS_PLACE], events)
        facts = cls._unpack_head(list(map(_DECODE, parts[:_ROWS_PLACE])), memories)
        facts.coming = PendingVectors.unpack(list(map(_DECODE, parts[_ROWS_PLACE + 1 :])))
        return facts

    @classmethod
    def _unpack_head(cls, inline: list[Any], packed: MemoryList | None = None) -> "Facts":
        facts = cls()
        facts._packed = packed
        facts.seq, model, facts.dim, erased, unmerged = msgspec.convert(inline[:_ROWS_PLACE], _BEFORE)
        facts.model = intern(model)
        facts.erased, facts.unmerged = dict.fromkeys(erased), dict.fromkeys(unmerged)
        return facts

    def logical(self) -> Any:
        rows = [msgspec.structs.astuple(entry) for entry in self.entries.values()]
        if not rows and not self.erased:
            return None
        return [rows, sorted(self.erased), sorted(self.unmerged), *self.coming.logical()]

    def plain(self) -> dict[str, Any]:
        shown = {entry.id: {name: getattr(entry, name) for name in _SHOWN} for entry in self.entries.values()}
        return shown | {entry_id: {"erased": True} for entry_id in self.erased}


# The rows of a checkpoint.

_PLAIN: Final = tuple(name for name in Entry.__struct_fields__ if name not in {"content", "words", "extra", "erased"})
"""The fields that a row holds; the others are in the event at ``body_seq``."""

_ROW_OF: Final = attrgetter(*_PLAIN)
_TYPES: Final = {field.name: field.type for field in msgspec.structs.fields(Entry)}
_ROW: Final = tuple.__class_getitem__(tuple(_TYPES[name] for name in _PLAIN))
_BEFORE: Final = tuple[int, str, int, list[str], list[int]]
_ROWS_PLACE: Final = 5  # After the rows come the pending vectors of another embedder, if there are any.
_DECODE: Final = msgspec.msgpack.Decoder().decode
_DECODE_PARTS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_DECODE_IDS: Final = msgspec.msgpack.Decoder(list[_Row]).decode
_DECODE_ROW: Final = msgspec.msgpack.Decoder(_ROW).decode
_DECODE_ROWS: Final[Any] = msgspec.msgpack.Decoder(list[_ROW]).decode  # type: ignore[valid-type]

_SHOWN: Final = (
    *("content", "category", "keywords", "importance", "access_count", "status", "metadata", "source"),
    *("source_context", "accessed_ns", "decayed_ns"),
)

FACTS = View("facts", kinds=("project",), state=Facts)


@FACTS.on(MemoryAdded)
def _memory_added(facts: Facts, stamp: Stamp, event: MemoryAdded) -> None:
    facts.advance(stamp, event)
    if stamp.erased:
        facts.erase(event.id)
        return
    facts.set_embedder(event.vector, event.model)
    facts.put(replace(entry_of(event, stamp), words=intern_words(event.keywords)))


@FACTS.on(MemoryUpdated)
def _memory_updated(facts: Facts, stamp: Stamp, event: MemoryUpdated) -> None:
    facts.advance(stamp, event)
    entry = facts.entries.get(event.id)
    if entry is None:
        if event.id in facts.erased and event.status is not None and not stamp.erased:
            _begin_anew(facts, stamp, event)
        return
    if stamp.erased:
        _erase_update(facts, entry, event)
        return
    facts.set_embedder(event.vector, event.model)
    facts.put(apply_update(entry, stamp, event))


def _begin_anew(facts: Facts, stamp: Stamp, event: MemoryUpdated) -> None:
    """Add a memory whose earlier content was erased, from an update that tells all of it."""
    assert event.content is not None, event
    assert event.category is not None, event
    assert event.importance is not None, event
    assert event.status is not None, event
    body = (event.content, event.category, intern_words(event.keywords), event.importance, event.status, event.extra)
    del facts.erased[event.id]
    facts.set_embedder(event.vector, event.model)
    facts.put(entry_of(MemoryAdded((), event.id, 0, *body, None, event.context), stamp))


def apply_update(entry: Entry, stamp: Stamp, event: MemoryUpdated) -> Entry:
    """Return a memory after an update; new content happened when the caller said, if so."""
    changes: dict[str, Any] = {"updated_ns": final_time(clock_of(stamp), stamp)}
    if "content" in event.changed and stamp.flags & FLAG_OCCURRED:
        changes |= {"occurred_ns": stamp.occurred_ns, "dated": True}
        if not entry.access_count:
            changes["accessed_ns"] = stamp.occurred_ns
    if event.category is not None:
        changes["category"] = event.category
    if event.importance is not None:
        changes["importance"] = event.importance
    if event.content is not None:
        changes |= {"content": event.content, "words": intern_words(event.keywords), "extra": event.extra}
        changes |= {"body_seq": stamp.seq, "blank": ()}
    if event.context is not None:
        changes["source_context"] = event.context
    if event.vector:
        changes["vector_seq"] = stamp.seq
    return replace(entry, **changes)


def _erase_update(facts: Facts, entry: Entry, event: MemoryUpdated) -> None:
    if "content" in event.changed:
        facts.erase(event.id)
        return
    blank = tuple(name for name in _BODY if name in event.changed or name in entry.blank)
    words = () if "keywords" in blank else entry.words
    facts.put(replace(entry, words=words, extra=None if "metadata" in blank else entry.extra, blank=blank))


@FACTS.on(MemoryDeleted)
def _memory_deleted(facts: Facts, stamp: Stamp, event: MemoryDeleted) -> None:
    facts.advance(stamp, event)
    facts.drop(event.id)


@FACTS.on(MemoriesCleared)
def _memories_cleared(facts: Facts, stamp: Stamp, event: MemoriesCleared) -> None:
    facts.advance(stamp, event)
    facts.clear()


@FACTS.on(MemoryMerged)
def _memory_merged(facts: Facts, stamp: Stamp, event: MemoryMerged) -> None:
    facts.advance(stamp, event)
    other = facts.drop(event.other)
    if stamp.erased:
        facts.erased[event.other] = None
        return
    entry = facts.entries.get(event.id)
    if entry is None:
        if other is not None:
            facts.erased[event.other] = None
        return
    facts.set_embedder(event.vector, event.model)
    facts.put(apply_merge(entry, stamp, event))


def apply_merge(entry: Entry, stamp: Stamp, event: MemoryMerged) -> Entry:
    """Return a memory after a merge."""
    return replace(
        entry,
        content=event.content,
        words=intern_words(event.keywords),
        importance=event.importance,
        extra=event.extra,
        updated_ns=final_time(clock_of(stamp), stamp),
        body_seq=stamp.seq,
        blank=(),
        vector_seq=stamp.seq if event.vector else entry.vector_seq,
    )


@FACTS.on(MemoryUnmerged)
def _memory_unmerged(facts: Facts, stamp: Stamp, event: MemoryUnmerged) -> None:
    """Reverse a merge; an erased reversal removes the merged text too, and brings nothing back."""
    facts.advance(stamp, event)
    facts.unmerged[event.prior] = None
    entry = facts.entries.get(event.id)
    if stamp.erased:
        if entry is not None and entry.body_seq == event.prior:
            facts.erase(event.id)
        if event.other:
            facts.erased[event.other] = None
        return
    if entry is not None:
        facts.put(apply_unmerge(entry, stamp, event))
    if event.other:
        facts.set_embedder(event.vector, event.model)
        facts.erased.pop(event.other, None)  # If the merge was erased, but not the reversal.
        facts.put(replace(unmerged_entry(event), body_seq=stamp.seq, vector_seq=stamp.seq))


def apply_unmerge(entry: Entry, stamp: Stamp, event: MemoryUnmerged) -> Entry:
    """Return the memory that had absorbed another one, after the reversal."""
    changes: dict[str, Any] = {"updated_ns": final_time(clock_of(stamp), stamp)}
    if event.importance is not None:  # An unchanged importance may be that of a merge that is erased later.
        changes["importance"] = event.importance
    if event.content is not None:
        changes |= {"content": event.content, "words": intern_words(event.keywords), "extra": event.extra}
        changes |= {"body_seq": stamp.seq, "blank": ()}
    if event.kept_vector:
        changes["vector_seq"] = event.kept_vector
    return replace(entry, **changes)


@FACTS.on(MemoryReviewed)
def _memory_reviewed(facts: Facts, stamp: Stamp, event: MemoryReviewed) -> None:
    facts.advance(stamp, event)
    entry = facts.entries.get(event.id)
    if entry is not None:
        facts.put(apply_review(entry, stamp, event))


def apply_review(entry: Entry, stamp: Stamp, event: MemoryReviewed) -> Entry:
    """Return a memory after a review."""
    return replace(entry, status=event.status, updated_ns=final_time(clock_of(stamp), stamp))


@FACTS.on(MemoriesDecayed)
def _memories_decayed(facts: Facts, stamp: Stamp, event: MemoriesDecayed) -> None:
    facts.advance(stamp, event)
    for entry_id, importance, decayed_ns in zip(event.ids, event.importances, event.decayed, strict=True):
        entry = facts.entries.get(entry_id)
        if entry is not None:
            facts.put(replace(entry, importance=importance, decayed_ns=decayed_ns))


@FACTS.on(MemoriesPruned)
def _memories_pruned(facts: Facts, stamp: Stamp, event: MemoriesPruned) -> None:
    facts.advance(stamp, event)
    for entry_id in event.ids:
        facts.drop(entry_id)


@FACTS.on(MemoriesRecalled)
def _memories_recalled(facts: Facts, stamp: Stamp, event: MemoriesRecalled) -> None:
    facts.advance(stamp, event)
    for entry_id in event.ids:
        entry = facts.entries.get(entry_id)
        if entry is not None:
            accessed_ns = final_time(stamp.occurred_ns, stamp)
            facts.put(replace(entry, access_count=entry.access_count + 1, accessed_ns=accessed_ns))


@FACTS.on(VectorRenewed)
def _vector_renewed(facts: Facts, stamp: Stamp, event: VectorRenewed) -> None:
    """Take a vector of another embedder, unless the memory has changed since the vector was made."""
    facts.advance(stamp, event)
    entry = facts.entries.get(event.id)
    if entry is None or stamp.erased:
        return
    # If the memory's vector is older than ``prior``, either the merge at ``prior`` was reversed, which makes the new
    # vector outdated, or an erasure left the older one.
    is_outdated = entry.vector_seq > event.prior or (entry.vector_seq < event.prior and event.prior in facts.unmerged)
    if not is_outdated:
        facts.coming.take(stamp.seq, event)


@FACTS.on(EmbedderSwitched)
def _embedder_switched(facts: Facts, stamp: Stamp, event: EmbedderSwitched) -> None:
    """Switch to the new vectors; a memory whose new vector was erased is left without one."""
    facts.advance(stamp, event)
    renewed = dict(facts.coming.of(event.model, event.dim))
    is_other = (facts.model, facts.dim) != (event.model, event.dim)
    for entry in list(facts.entries.values()):
        vector_seq = renewed.get(entry.id, NO_VECTOR if is_other else entry.vector_seq)
        facts.put(replace(entry, vector_seq=vector_seq))
    facts.model, facts.dim = intern(event.model), event.dim
    facts.coming.clear()
