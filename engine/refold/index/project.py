"""The index of one project: its memories as rows of a table, and their texts, updated with every event."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from refold.entry import Entry, changed_ids
from refold.event import Event, Stamp
from refold.fold import BASE_TYPES, State
from refold.index.columns import Array, normalise
from refold.index.hnsw import Graph
from refold.index.packed import PackedArrays, pack, refuse, strings, texts_of
from refold.index.signals import RowText, TextIndex
from refold.index.table import PastValues, TableView, VectorTable
from refold.limits import FLOAT_BYTES
from refold.threads import owns
from refold.views.facts import FACTS, Facts, MemoryList

DECIMALS: Final = 6  # Decimals of a cosine that an event records.
_VECTORS_READ: Final = 1_024  # Vectors read from the log at a time.


def vector_of(event: Event) -> bytes:
    """Return the vector of an event, as raw float32."""
    vector: bytes = getattr(event, "vector")  # noqa: B009 - several kinds of events have one
    return vector


def unit(packed: bytes) -> Array:
    """Scale a vector of raw float32 to length 1."""
    vector: Array = normalise(packed, len(packed) // 4)[0]
    return vector


def exact_cosine(one: Array, other: Array) -> float:
    """Compute the cosine of two unit vectors, rounded to 6 decimals so that it is the same on every machine."""
    product = float(np.dot(one.astype(np.float64), other.astype(np.float64)))
    return round(max(-1.0, min(1.0, product)), DECIMALS)


class VectorLoader:
    """Loads the vectors of events from other indexes, an open batch or the log. Needs no lock."""

    def __init__(self, load_vectors: Callable[[Sequence[int]], list[bytes]]) -> None:
        self._load_vectors = load_vectors

    def load(
        self,
        seqs: Sequence[int],
        donors: "Sequence[ProjectIndex]" = (),
        pending: Sequence[Event] = (),
        *,
        dimensions: int,
    ) -> Array:
        """Load the vectors at `seqs`, scaled to length 1; negative seqs are those of an open batch, found in `pending`.

        A vector that was erased, or has other dimensions, is all zeros, so that nothing is similar to it.
        """
        targets = np.asarray(seqs, np.int64)
        is_missing: Array = np.ones(len(targets), np.bool_)
        units: Array = np.empty((len(targets), dimensions), np.float32)
        for donor in donors:
            columns = donor.table.view().columns
            by_seq = np.argsort(columns.sources, kind="stable")
            known = columns.sources[by_seq]
            places = known.searchsorted(targets)
            fresh = is_missing & (np.append(known, -1)[places] == targets)
            units[fresh] = columns.matrix[by_seq[places[fresh]]]
            is_missing &= ~fresh
        missing = np.flatnonzero(is_missing)
        for begin in range(0, len(missing), _VECTORS_READ):
            part = missing[begin : begin + _VECTORS_READ]
            units[part] = self._read(targets[part].tolist(), pending, dimensions)
        return units

    def _read(self, seqs: Sequence[int], pending: Sequence[Event], dimensions: int) -> Array:
        raw: dict[int, bytes] = {seq: vector_of(pending[-1 - seq]) for seq in seqs if seq < 0}
        stored = sorted({seq for seq in seqs if seq > 0})
        raw |= zip(stored, self._load_vectors(stored), strict=True)
        # A vector of another size, which only a modified export brings in, counts as missing.
        present = [place for place, seq in enumerate(seqs) if len(raw.get(seq, b"")) == dimensions * FLOAT_BYTES]
        units: Array = np.zeros((len(seqs), dimensions), np.float32)
        if present:
            units[present] = normalise(b"".join(raw[seqs[place]] for place in present), dimensions)
        return units


class ProjectTexts:
    """The texts of a project's memories, indexed when a ranking first compares them; scored under `lock`.

    A memory's row is its order. A thread that holds `lock` can wait for the state lock, but never the other way round.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.index = TextIndex()
        self._entries: dict[int, Entry] = {}  # The indexed memories, by order.
        self._changes: dict[int, Entry | None] | None = None
        """The changes that are not indexed yet, guarded by the state lock; `None` until a ranking compares texts."""

    @property
    def is_built(self) -> bool:
        """Whether a ranking has used the texts, or they were unpacked."""
        return self._changes is not None

    def note(self, order: int, entry: Entry | None) -> None:
        """Record a change of a memory, `None` if it is gone."""
        if self._changes is not None:
            self._changes[order] = entry

    def take(self, everything: Callable[[], dict[int, Entry | None]]) -> dict[int, Entry | None]:
        """Take the changes since the last call; the first call takes everything."""
        changes = everything() if self._changes is None else self._changes
        self._changes = {}
        return changes

    def unpack(self, packed: PackedArrays, read: Callable[[Sequence[int]], list[Entry]]) -> None:
        """Fill the empty index with packed texts; `read` returns memories by order when they are needed."""
        self.index.unpack(packed.values, packed.arrays, lambda orders: list(map(_text_of, read(orders))))
        self._changes = {}

    def update(self, changes: Mapping[int, Entry | None]) -> None:
        """Bring the index up to date."""
        if not self.index.size:
            self._fill(changes)
            return
        for order in sorted(changes):
            entry, before = changes[order], self._entries.pop(order, None)
            text = None if entry is None else _text_of(entry)
            if before is not None and entry is not None and text == _text_of(before):
                self._entries[order] = entry
                continue
            if self.index.is_live(order):
                self.index.remove(order)
            if entry is not None and text is not None:
                while self.index.size < order:  # A memory that was gone before; rows leave no gaps.
                    self.index.add(self.index.size, RowText(""))
                    self.index.remove(self.index.size - 1)
                self._entries[order] = entry
                self.index.add(order, text)

    def _fill(self, changes: Mapping[int, Entry | None]) -> None:
        """Fill the empty index in bulk, many times as fast as one by one."""
        texts: list[RowText | None] = [None] * (max(changes, default=-1) + 1)
        for order, entry in changes.items():
            if entry is not None:
                self._entries[order], texts[order] = entry, _text_of(entry)
        self.index.fill(texts)


def _text_of(entry: Entry) -> RowText:
    return RowText(entry.content, entry.session, entry.occurred_ns if entry.dated else None)


Load: TypeAlias = Callable[[Sequence[int]], Array]  # Returns the vectors at seqs, of length 1, one in each line.

_NO_TIME_NS: Final = 2**62  # For a memory of an open batch that was not accessed yet: later than any current time.
_WORN_ROWS_MIN: Final = 256
_VIEWS_MAX: Final = 16  # Cached views of a project at earlier seqs.
# How many of the last changed memories are kept as they were, because a search that began earlier might find one.
_REPLACED_MAX: Final = 4_096

# The approximate RAM of a memory without its vector and content, the extra RAM once its text was compared, and the RAM
# of its terms per letter from then on.
_ENTRY_BYTES: Final = 1_000
_TEXT_BYTES: Final = 500
_LETTER_BYTES: Final = 8


_UNREAD: Final = Entry("")


def access_time_ns(entry: Entry) -> int:
    """Return the time of a memory's last access, as a table stores it."""
    return _NO_TIME_NS if entry.accessed_ns is None else entry.accessed_ns


class IndexedStream(Protocol):
    """A stream that applies each of its events to `index`, if it has one."""

    key: str
    name: str
    number: int
    seq: int
    state: State | None
    index: "ProjectIndex | None"


class ProjectIndex:
    """The memories of a state, one per row of a table; callers hold the state lock to read or change them.

    `seq` is the stream's seq whose state it matches. A stream applies its events to an attached index. Views are
    searched without any lock.
    """

    def __init__(
        self, table: VectorTable, facts_seq: int, seq: int, load: Load, state_lock: AbstractContextManager[Any]
    ) -> None:
        self.table = table
        self._state_lock = state_lock
        self.load = load
        self.seq = seq
        self.facts_seq: int = facts_seq
        """The seq of the last event that changed its memories; negative in an open batch."""
        self.key: Hashable = None  # Its key in the cache; `None` for an open batch.
        self.stream: IndexedStream | None = None
        self.is_torn = False  # Whether an event could not be applied, which makes the rows useless.
        self.ids: list[str] = []  # By row; empty for rows that exist only for a graph.
        self.entries: list[Entry | None] = []  # By row; `None` if it is dead, `_UNREAD` if its memory was not read yet.
        self._memories: MemoryList | None = None
        """The source of the memories that were not read yet."""
        self._places: Array | None = None
        """The sorted orders of those memories; `None` if any memory had changed."""
        self.packed_seq = 0
        """The seq of the packed rows in the store; 0 if it has none."""
        self.changes_count = 0
        """The number of memories changed since then."""
        self.orders: list[int] = []
        self.rows: dict[str, int] = {}  # By id, in the order of the state.
        self.texts = ProjectTexts()
        self.stored_graph: Graph | None = None  # The graph that the store has.
        self.grown_graph: Graph | None = None
        """The graph that was last sent to the store because it had grown."""
        self._changed_at: list[int] = []  # By row, the seq at which it last changed.
        self._replaced: deque[tuple[int, int, Entry | None]] = deque(maxlen=_REPLACED_MAX)
        """For each of the last changes: its seq, its row, and the memory before it."""
        self._views: OrderedDict[int, TableView] = OrderedDict()
        self._letters_count = self._next_order = self._last_source = 0
        """The length of all contents that ever had a row; the next order; the seq of the newest vector with a row."""

    def __len__(self) -> int:
        return len(self.table)

    @property
    def nbytes(self) -> int:
        """Approximate bytes in RAM of the rows, the memories and their texts."""
        own = self.table.nbytes + _ENTRY_BYTES * len(self.ids) + self._letters_count
        if self.texts.is_built:
            own += _TEXT_BYTES * len(self.ids) + _LETTER_BYTES * self._letters_count
        return own

    @property
    def parts_count(self) -> int:
        """The number of parts of the table, plus one if texts are indexed."""
        return self.table.parts_count + self.texts.is_built

    @property
    def is_worn(self) -> bool:
        """Whether it must be filled again, because most rows are gone or it is torn."""
        return self.is_torn or len(self.ids) > 2 * len(self.rows) + _WORN_ROWS_MIN

    def close(self) -> None:
        """Detach from the stream, and end the thread of the table.

        The cache calls this to make room. It takes the state lock, because other threads might be reading under that
        lock.
        """
        with self._state_lock:
            self.detach()
        self.table.close()

    def detach(self) -> None:
        """Detach from the stream; views of the past stay correct."""
        if self.stream is not None and self.stream.index is self:
            self.stream.index = None
        self.stream = None

    def attach(self, stream: IndexedStream) -> None:
        """Attach to a stream, which must be at the seq of this index."""
        assert stream.seq == self.seq, f"{stream.name} is at seq {stream.seq}, its rows at {self.seq}"
        self.stream, stream.index = stream, self

    # Rows.

    def fill(self, entries: Sequence[Entry], lost: Sequence[int], places: Sequence[int], units: Array) -> None:
        """Fill the empty table with memories, and with dead rows for the vectors at the seqs in `lost`.

        `places` maps each row to its memory; a place from `len(entries)` on is a dead row.
        """
        dead = Entry("", importance=0.0, accessed_ns=0)
        candidates = [*entries, *(dead for _ in lost)]
        ordered = [candidates[place] for place in places]
        sources = [*(entry.vector_seq for entry in entries), *lost]
        self.table.extend(
            [self.table.since],
            units,
            categories=[entry.category for entry in ordered],
            keywords=[entry.words for entry in ordered],
            importance=[entry.importance for entry in ordered],
            accessed_ns=[access_time_ns(entry) for entry in ordered],
            statuses=[entry.status for entry in ordered],
            orders=places,
            sources=[sources[place] for place in places],
            are_units=True,
        )
        self.ids = [entry.id for entry in ordered]
        self.entries = [None if entry is dead else entry for entry in ordered]
        self.orders = list(places)
        self._letters_count = sum(len(entry.content or "") for entry in ordered)
        self._changed_at = [self.table.since] * len(places)
        self._next_order = len(candidates)
        self._last_source = max(sources)
        by_order = sorted(range(len(places)), key=places.__getitem__)
        self.rows = {self.ids[row]: row for row in by_order if self.entries[row] is not None}
        if lost:
            self.table.remove(self.table.since, [row for row, entry in enumerate(self.entries) if entry is None])

    # Packing.

    def pack(self) -> bytes | None:
        """Pack all rows; return `None` if that is impossible, or if a search is using the texts."""
        if self.is_torn or not self.texts.is_built or any("\n" in entry_id for entry_id in self.ids):
            return None
        if owns(self.texts.lock) or not self.texts.lock.acquire(blocking=False):
            return None
        try:
            self.texts.update(self.take_changes())
            texts = self.texts.index.pack()
        finally:
            self.texts.lock.release()
        if texts is None:
            return None
        values, arrays = self.table.pack()
        own = {"seq": self.seq, "letters": self._letters_count, "orders_count": self._next_order}
        return pack(values | texts[0] | own, arrays | texts[1] | {"ids": strings(self.ids)})

    def unpack(self, packed: PackedArrays, memories: MemoryList, changed: Sequence[str], load: Load) -> None:
        """Fill the index with packed rows, then update the memories that have changed since, by id.

        `memories` are those of the state that the index then matches; few of them are read. Raises `UnfitRows` if it
        would not match that state.
        """
        values, arrays = packed.values, packed.arrays
        count = len(arrays["sources"])
        self.ids = texts_of(arrays["ids"], count)
        self.orders = arrays["orders"].tolist()
        self.table.unpack(values, arrays, _RowKeywords(memories, self.ids))
        self.entries = [_UNREAD] * count
        for row in np.flatnonzero(~arrays["alive"]).tolist():
            self.entries[row] = None
        self._memories = memories
        self._changed_at = [self.seq] * count
        self._letters_count, self._next_order = int(values["letters"]), int(values["orders_count"])
        self._last_source = int(arrays["sources"].max(initial=0))
        order = np.argsort(arrays["orders"], kind="stable")
        order = order[arrays["alive"][order]]
        self.rows = {self.ids[row]: row for row in order.tolist()}
        self.texts.unpack(packed, self._entries_by_order)
        self._places = None if changed else arrays["orders"][order]
        self.packed_seq = values["seq"]
        self.update(self.seq, zip(changed, memories.get_many(changed), strict=True), load)
        if len(self.rows) != len(memories) or (changed and list(self.rows) != list(memories.places)):
            refuse("it is of other memories")

    def _entries_by_order(self, orders: Sequence[int]) -> list[Entry]:
        """Return the memories with the given orders."""
        rows = {self.orders[row]: row for row in self.rows.values()}
        return self.entries_of([rows[order] for order in orders])

    def entries_of(self, rows: Sequence[int]) -> list[Entry]:
        """Return the memories of rows that are alive."""
        unread = [row for row in rows if self.entries[row] is _UNREAD]
        if unread:
            assert self._memories is not None, "all rows were read"
            orders = [self.orders[row] for row in unread]
            places = () if self._places is None else self._places.searchsorted(orders).tolist()
            found = self._memories.get_many([self.ids[row] for row in unread], places)
            for row, entry in zip(unread, found, strict=True):
                self.entries[row] = entry
        entries = [self.entries[row] for row in rows]
        return [entry for entry in entries if entry is not None]

    def all_entries(self) -> list[Entry | None]:
        """Return the memories by row, `None` for a dead row."""
        if self._memories is not None:
            self._memories.all()
            self.entries_of(list(self.rows.values()))
        return list(self.entries)

    def update(self, seq: int, pairs: Iterable[tuple[str, Entry | None]], load: Load) -> None:
        """Set memories, by id, from a seq on; `None` removes a memory."""
        gone: list[int] = []
        changed: list[int] = []
        for entry_id, entry in pairs:
            row = self.rows.get(entry_id)
            self.changes_count += 1
            if row is None:
                if entry is not None:
                    self._add(seq, entry, load)
            elif entry is None:
                del self.rows[entry_id]
                gone.append(row)
                self._note(row, seq, None)
            elif self.entries[row] is not entry and not self._move(seq, row, entry, load):
                changed.append(row)
                self._note(row, seq, entry)
        if gone:
            self.table.remove(seq, gone)
        if changed:
            entries = [entry for row in changed if (entry := self.entries[row]) is not None]
            importance = [entry.importance for entry in entries]
            self.table.change(
                seq, changed, importance=importance, accessed_ns=[access_time_ns(entry) for entry in entries]
            )

    def _move(self, seq: int, row: int, entry: Entry, load: Load) -> bool:
        """Move a memory to a new row if an immutable column differs; return whether it moved."""
        before = self._entry_before(row, seq)
        vector_seq = int(self.table.sources()[row]) if before is None else before.vector_seq
        if vector_seq != entry.vector_seq:
            self.table.remove(seq, row)
            self._add(seq, entry, load, order=self.orders[row])
        elif before is None or (before.words, before.category) != (entry.words, entry.category):
            self._add(seq, entry, load, order=self.orders[row], donor=row)
        else:
            if before.status != entry.status:
                self.table.change(seq, row, status=entry.status)
            return False
        self._note(row, seq, None, is_moved=True)
        return True

    def _entry_before(self, row: int, seq: int) -> Entry | None:
        """Return the memory of a row, or `None` if it is unknown: the packed one is older than all that can be read."""
        is_older = self.entries[row] is _UNREAD and self.table.since == seq
        return None if is_older else self.entries_of([row])[0]

    def _add(self, seq: int, entry: Entry, load: Load, *, order: int | None = None, donor: int | None = None) -> None:
        """Add a row; if another row has the vector already, it lends the vector and dies."""
        if donor is None and 0 < entry.vector_seq <= self._last_source:
            known = np.flatnonzero(self.table.sources() == entry.vector_seq)
            donor = int(known[0]) if len(known) else None
        if donor is None:
            self._last_source = max(self._last_source, entry.vector_seq)
            vector, source = load([entry.vector_seq])[0], entry.vector_seq
        else:
            vector, source = self.table.vector_of(donor)
            self.table.remove(seq, donor)
        if order is None:
            order = self._next_order
            self._next_order += 1
        self.table.add(
            seq,
            vector,
            category=entry.category,
            keywords=entry.words,
            importance=entry.importance,
            accessed_ns=access_time_ns(entry),
            status=entry.status,
            order=order,
            source=source,
            is_unit=True,
        )
        self.rows[entry.id] = len(self.ids)
        self._letters_count += len(entry.content or "")
        self.ids.append(entry.id)
        self.entries.append(entry)
        self.orders.append(order)
        self._changed_at.append(seq)
        self.texts.note(order, entry)

    def _note(self, row: int, seq: int, entry: Entry | None, *, is_moved: bool = False) -> None:
        """Record the entry of a row from a seq on; if it moved to another row, its text was recorded there."""
        self._replaced.append((seq, row, self._entry_before(row, seq)))
        self.entries[row] = entry
        self._changed_at[row] = seq
        if not is_moved:
            self.texts.note(self.orders[row], entry)

    # Events.

    def apply(self, state: State, stamp: Stamp, event: Event) -> None:
        """Apply an event that the stream has folded into its state."""
        kind = type(event)
        facts = state.part(FACTS)
        is_another = (facts.model, facts.dim) != (self.table.model, self.table.dimensions)
        if kind in BASE_TYPES or (is_another and facts.count):
            self.detach()
            return
        if kind in FACTS.handlers:
            ids = changed_ids(event)
            pairs = [(entry_id, facts.entries.get(entry_id)) for entry_id in (list(self.rows) if ids is None else ids)]
            self.update(stamp.seq, pairs, partial(self._load, stamp.seq, event))
            self.facts_seq = facts.seq
        self.seq = stamp.seq

    def _load(self, seq: int, event: Event, seqs: Sequence[int]) -> Array:
        """Load vectors, without reading that of the event just folded again."""
        if list(seqs) == [seq]:
            return normalise(vector_of(event), self.table.dimensions, count=1)
        return self.load(seqs)

    def catch_up(self, facts: Facts, seq: int, load: Load) -> bool:
        """Update to a later state of the same memories; return whether that was possible.

        The states in between are unknown, so views begin at `seq` afterwards.
        """
        if facts.seq != self.facts_seq:
            ids: dict[str, None] = {}
            for before, _, changed in reversed(facts.recent):
                if changed is None:
                    return False
                ids = dict.fromkeys(changed) | ids
                if before == self.facts_seq:
                    break
            else:
                return False
            self.update(seq, [(entry_id, facts.entries.get(entry_id)) for entry_id in ids], load)
            if list(self.rows) != list(facts.entries):
                return False
            self.table.since, self.facts_seq = seq, facts.seq
            self._views.clear()
        self.seq = seq
        return True

    # Reading.

    def view_at(self, at: int, then: Mapping[str, Entry]) -> TableView:
        """Return the rows as of a seq, with the memories of that time."""
        view = self._views.get(at)
        if view is None:
            rows = self.table.stale_rows(at).tolist()
            entries = [then[self.ids[row]] for row in rows]
            past = PastValues(
                rows,
                [entry.importance for entry in entries],
                [access_time_ns(entry) for entry in entries],
                [entry.status for entry in entries],
            )
            view = self._views[at] = self.table.view_at(at, past if rows else None)
            if len(self._views) > _VIEWS_MAX:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(at)
        return view

    def entries_at(self, seq: int, rows: Sequence[int]) -> list[Entry] | None:
        """Return the memories of rows as of a seq, or `None` if they are no longer known."""
        entries: list[Entry] = []
        self.entries_of([row for row in rows if self.entries[row] is _UNREAD])
        for row in rows:
            entry = self.entries[row]
            if self._changed_at[row] > seq:
                is_known = len(self._replaced) < _REPLACED_MAX or self._replaced[0][0] <= seq
                before = (entry for at, place, entry in self._replaced if place == row and at > seq)
                entry = next(before, None) if is_known else None
            if entry is None:
                return None
            entries.append(entry)
        return entries

    def take_changes(self) -> dict[int, Entry | None]:
        """Take the memories, by order, that changed since the last call; the first call takes all."""
        return self.texts.take(lambda: {self.orders[row]: self.entries[row] for row in self.rows.values()})


class _RowKeywords(Sequence[tuple[str, ...]]):
    """The keywords of packed rows, by row, read when a ranking needs keywords."""

    def __init__(self, memories: MemoryList, ids: Sequence[str]) -> None:
        self._memories = memories
        self._ids = list(ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, row: Any) -> Any:
        words: Any = self._all()
        return words[row]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._all())

    def _all(self) -> list[tuple[str, ...]]:
        words = {entry.id: entry.words for entry in self._memories.all()}
        return [words.get(entry_id, ()) for entry_id in self._ids]
