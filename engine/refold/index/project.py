"""The memories of one project as rows: vectors and texts, in step with every event that changes one."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from refold.entry import FLOAT_BYTES, Entry, touched
from refold.errors import StoreCorrupt
from refold.event import Event, Stamp
from refold.fold import BASE_TYPES, State
from refold.index.columns import Array, normalised
from refold.index.ranking import Columns
from refold.index.rows import Moment
from refold.index.vectors import Past, Shelf
from refold.limits import (
    COMPARED_BYTES,
    COMPARED_RATIO,
    MOMENTS_COUNT_MAX,
    REPLACED_ENTRIES_COUNT,
    STOCKED_BYTES,
    VECTORS_READ_COUNT,
)
from refold.views.facts import FACTS, Facts

if TYPE_CHECKING:
    from refold.index.hnsw import Graph


# Vectors of length 1: from other rows where they have them, from an open batch, from the log.

DECIMALS: Final = 6
"""Of a cosine that an event records."""


def vector_of(event: Event) -> bytes:
    """Return the vector that an event holds, as raw float32."""
    vector: bytes = getattr(event, "vector")  # noqa: B009 - several kinds of events have one
    return vector


def unit(packed: bytes) -> Array:
    """Return a vector of the length 1, from raw float32."""
    found: Array = normalised(packed, len(packed) // 4)[0]
    return found


def exact(one: Array, other: Array) -> float:
    """Return the cosine of two unit vectors to 6 decimals: the same wherever they stand, and on every machine."""
    product = float(np.dot(one.astype(np.float64), other.astype(np.float64)))
    return round(max(-1.0, min(1.0, product)), DECIMALS)


class Units:
    """Reads the vectors of events; needs no lock."""

    def __init__(self, load_vectors: Callable[[Sequence[int]], list[bytes]]) -> None:
        self._load_vectors = load_vectors

    def load(
        self,
        seqs: Sequence[int],
        donors: "Sequence[Stock]" = (),
        pending: Sequence[Event] = (),
        *,
        dimensions: int,
    ) -> Array:
        """Return the vectors at seqs, of length 1: those of open batches are negative, and in ``pending``.

        One that was erased is all zeros: nothing is like it.
        """
        read = partial(self._read, pending=pending, dimensions=dimensions)
        wanted = np.asarray(seqs, np.int64)
        lent = _lent(wanted, donors)
        missing = np.flatnonzero(~lent[0]) if lent is not None else np.arange(len(wanted))
        found = [
            read(wanted[missing[begin : begin + VECTORS_READ_COUNT]].tolist())
            for begin in range(0, len(missing), VECTORS_READ_COUNT)
        ]
        if lent is None:
            return found[0] if len(found) == 1 else np.concatenate(found)
        if found:
            lent[1][missing] = np.concatenate(found)
        return lent[1]

    def _read(self, seqs: Sequence[int], *, pending: Sequence[Event], dimensions: int) -> Array:
        raw: dict[int, bytes] = {seq: vector_of(pending[-1 - seq]) for seq in seqs if seq < 0}
        stored = sorted({seq for seq in seqs if seq > 0})
        raw |= zip(stored, self._load_vectors(stored), strict=True)
        sizes = {len(packed) for packed in raw.values()}
        if sizes - {0, dimensions * FLOAT_BYTES}:
            raise StoreCorrupt(
                f"vectors at seqs {seqs[0]} to {seqs[-1]} are of {sorted(sizes)} bytes; run `refold verify`"
            )
        there = [place for place, seq in enumerate(seqs) if raw.get(seq)]
        if len(there) == len(seqs):
            return normalised(b"".join(raw[seq] for seq in seqs), dimensions)
        units: Array = np.zeros((len(seqs), dimensions), np.float32)
        if there:
            units[there] = normalised(b"".join(raw[seqs[place]] for place in there), dimensions)
        return units


def _lent(wanted: Array, donors: "Sequence[Stock]") -> tuple[Array, Array] | None:
    """Return which of the vectors other rows have, and lines in which those are filled in; ``None`` without donors."""
    if not donors:
        return None
    is_lent: Array = np.zeros(len(wanted), np.bool_)
    units: Array = np.empty((len(wanted), donors[0].shelf.dimensions), np.float32)
    for donor in donors:
        frame = donor.shelf.now().frame
        standing = np.argsort(frame.sources, kind="stable")
        known = frame.sources[standing]
        places = known.searchsorted(wanted)
        found = ~is_lent & (np.append(known, -1)[places] == wanted)
        units[found] = frame.matrix[standing[places[found]]]
        is_lent |= found
    return is_lent, units


# The texts of a project's memories, laid out for the rankings that compare them.


class Texts:
    """The columns of a stock that compare texts, built when a ranking first asks; ``lock`` is held by who scores.

    A memory's row there is its order. Whoever holds the lock may take the state lock, never the other way round.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.columns = Columns()
        self._held: dict[int, Entry] = {}
        self._fresh: dict[int, Entry | None] | None = None
        """What changed and is not in the columns yet; the state lock is held by who looks at it."""

    @property
    def is_built(self) -> bool:
        """Whether a ranking has asked for them."""
        return self._fresh is not None

    def note(self, order: int, entry: Entry | None) -> None:
        """Remember that a memory changed, if anybody wants to know."""
        if self._fresh is not None:
            self._fresh[order] = entry

    def take(self, everything: Callable[[], dict[int, Entry | None]]) -> dict[int, Entry | None]:
        """Return what changed since the last call, at first everything."""
        fresh = everything() if self._fresh is None else self._fresh
        self._fresh = {}
        return fresh

    def update(self, changes: Mapping[int, Entry | None]) -> None:
        """Bring the columns up to date."""
        for order in sorted(changes):
            entry, held = changes[order], self._held.get(order)
            if entry is not None and held is not None and _reads_the_same(held, entry):
                continue
            if held is not None:
                del self._held[order]
                self.columns.remove(order)
            if entry is not None:
                self._add(order, entry)

    def _add(self, order: int, entry: Entry) -> None:
        while self.columns.size < order:
            # One that was gone before anybody looked; rows leave no gaps.
            place = self.columns.size
            self.columns.add(place, "", keywords=(), importance=0.0, accessed_ns=0)
            self.columns.remove(place)
        self._held[order] = entry
        self.columns.add(
            order,
            entry.content,
            keywords=(),
            importance=0.0,
            accessed_ns=0,
            session=entry.session,
            occurred_ns=entry.occurred_ns if entry.dated else None,
        )


def _reads_the_same(one: Entry, other: Entry) -> bool:
    return (one.content, one.session, one.dated, one.occurred_ns) == (
        other.content,
        other.session,
        other.dated,
        other.occurred_ns,
    )


Load = Callable[[Sequence[int]], Array]
"""Returns the vectors at seqs, of length 1, one in each line."""

_NO_TIME_NS: Final = 2**62
"""For what is of an open batch and was accessed at no time yet: later than any now."""

_WORN_ROWS_MIN: Final = 256


def accessed(entry: Entry) -> int:
    """Return when a memory was last accessed, as a shelf takes it."""
    return _NO_TIME_NS if entry.accessed_ns is None else entry.accessed_ns


class Followed(Protocol):
    """A stream that tells ``stock``, while it has one, of each of its events."""

    key: str
    name: str
    number: int
    seq: int
    state: State | None
    stock: "Stock | None"


class Stock:
    """The memories of a state, each in a row of a shelf; whoever changes or reads it holds the state lock.

    ``seq`` is the one of the stream that it equals. It is attached to a slot as long as it is told of each of its
    events. What it gives out, a ``Moment``, is searched without any lock.
    """

    def __init__(
        self, shelf: Shelf, facts_seq: int, seq: int, load: Load, state_lock: AbstractContextManager[Any]
    ) -> None:
        self.shelf = shelf
        self._state_lock = state_lock
        self.load = load
        self.seq = seq
        self.facts_seq: int = facts_seq
        """The seq of the last event that changed its memories; negative in an open batch."""
        self.key: Hashable = None
        """What it is found by among others in RAM; ``None`` for that of an open batch."""
        self.slot: Followed | None = None
        self.is_torn = False
        """Whether an event could not be followed: then the rows are of no use."""
        self.ids: list[str] = []
        """By row; empty for rows that only a graph knows."""
        self.entries: list[Entry | None] = []
        """By row, ``None`` for what is gone."""
        self.orders: list[int] = []
        self.rows: dict[str, int] = {}
        """By id, in the order of the state."""
        self.texts = Texts()
        self.stored_graph: Graph | None = None
        """The graph that the store has."""
        self.grown_graph: Graph | None = None
        """The graph that was last sent to the store with a commit, before the end."""
        self._told: list[int] = []
        """By row, the seq at which it last changed."""
        self._replaced: deque[tuple[int, int, Entry | None]] = deque(maxlen=REPLACED_ENTRIES_COUNT)
        """The seq, the row and the memory before each of the last changes."""
        self._moments: OrderedDict[int, Moment] = OrderedDict()
        self._letters_count = self._next_order = self._last_source = 0
        """The length of all contents that ever had a row; the next order; the seq of the newest vector with a row."""

    def __len__(self) -> int:
        """Return how many rows there are, those that are gone included."""
        return len(self.shelf)

    @property
    def nbytes(self) -> int:
        """Return about what the rows take in RAM, with the memories and their texts."""
        held_bytes = self.shelf.nbytes + STOCKED_BYTES * len(self.ids) + self._letters_count
        if self.texts.is_built:
            held_bytes += COMPARED_BYTES * len(self.ids) + COMPARED_RATIO * self._letters_count
        return held_bytes

    @property
    def parts_count(self) -> int:
        """Return how many graphs came to it, and whether texts did."""
        return self.shelf.parts_count + self.texts.is_built

    @property
    def is_worn(self) -> bool:
        """Whether it has to be filled anew: most rows are gone, or it is torn."""
        return self.is_torn or len(self.ids) > 2 * len(self.rows) + _WORN_ROWS_MIN

    def close(self) -> None:
        """Be told of nothing any more, and end the thread of the shelf.

        Whoever makes room for others calls this, so it takes the state lock for what somebody may be looking at.
        """
        with self._state_lock:
            self.detach()
        self.shelf.close()

    def detach(self) -> None:
        """Be told of nothing any more; what it knows of the past stays right."""
        if self.slot is not None and self.slot.stock is self:
            self.slot.stock = None
        self.slot = None

    def attach(self, slot: Followed) -> None:
        """Be told of the events of a stream, which stands where this does."""
        assert slot.seq == self.seq, f"{slot.name} is at seq {slot.seq}, its rows at {self.seq}"
        self.slot, slot.stock = slot, self

    # Rows.

    def fill(self, entries: Sequence[Entry], lost: Sequence[int], places: Sequence[int], units: Array) -> None:
        """Put memories on the empty shelf, and rows that are gone, of the vectors at the seqs in ``lost``.

        ``places`` says for each row which memory it is; from ``len(entries)`` on it is one that is gone.
        """
        nobody = Entry("", importance=0.0, accessed_ns=0)
        everyone = [*entries, *(nobody for _ in lost)]
        standing = [everyone[place] for place in places]
        sources = [*(entry.vector_seq for entry in entries), *lost]
        self.shelf.extend(
            [self.shelf.since],
            units,
            categories=[entry.category for entry in standing],
            keywords=[_words(entry) for entry in standing],
            importance=[entry.importance for entry in standing],
            accessed_ns=[accessed(entry) for entry in standing],
            statuses=[entry.status for entry in standing],
            orders=places,
            sources=[sources[place] for place in places],
            are_units=True,
        )
        self.ids = [entry.id for entry in standing]
        self.entries = [None if entry is nobody else entry for entry in standing]
        self.orders = list(places)
        self._letters_count = sum(len(entry.content or "") for entry in standing)
        self._told = [self.shelf.since] * len(places)
        self._next_order = len(everyone)
        self._last_source = max(sources)
        by_order = sorted(range(len(places)), key=places.__getitem__)
        self.rows = {self.ids[row]: row for row in by_order if self.entries[row] is not None}
        if lost:
            self.shelf.remove(self.shelf.since, [row for row, entry in enumerate(self.entries) if entry is None])

    def hold(self, seq: int, pairs: Iterable[tuple[str, Entry | None]], load: Load) -> None:
        """Hold memories as they are from a seq on, ``None`` for one that went."""
        gone: list[int] = []
        changed: list[int] = []
        for entry_id, entry in pairs:
            row = self.rows.get(entry_id)
            if row is None:
                if entry is not None:
                    self._add(seq, entry, None, load)
            elif entry is None:
                del self.rows[entry_id]
                gone.append(row)
                self._note(row, seq, None)
            elif self.entries[row] is not entry and not self._move(seq, row, entry, load):
                changed.append(row)
                self._note(row, seq, entry)
        if gone:
            self.shelf.remove(seq, gone)
        if changed:
            self._change(seq, changed)

    def _move(self, seq: int, row: int, entry: Entry, load: Load) -> bool:
        """Give a memory another row if what changed of it stands in no column that changes; return whether it did."""
        held = self.entries[row]
        assert held is not None, f"row {row} is empty"
        if held.vector_seq != entry.vector_seq:
            self.shelf.remove(seq, row)
            self._add(seq, entry, self.orders[row], load)
        elif (held.words, held.category) != (entry.words, entry.category):
            self._add_again(seq, entry, row, self.orders[row])
        else:
            if held.status != entry.status:
                self.shelf.change(seq, row, status=entry.status)
            return False
        self._note(row, seq, None, is_moved=True)
        return True

    def _change(self, seq: int, rows: Sequence[int]) -> None:
        entries = [entry for row in rows if (entry := self.entries[row]) is not None]
        self.shelf.change(
            seq,
            rows,
            importance=[entry.importance for entry in entries],
            accessed_ns=[accessed(entry) for entry in entries],
        )

    def _add(self, seq: int, entry: Entry, order: int | None, load: Load) -> None:
        if 0 < entry.vector_seq <= self._last_source:
            known = np.flatnonzero(self.shelf.sources() == entry.vector_seq)
            if len(known):
                self._add_again(seq, entry, int(known[0]), self._order(order))
                return
        self._last_source = max(self._last_source, entry.vector_seq)
        order = self._order(order)
        self.shelf.add(
            seq,
            load([entry.vector_seq])[0],
            category=entry.category,
            keywords=_words(entry),
            importance=entry.importance,
            accessed_ns=accessed(entry),
            status=entry.status,
            order=order,
            source=entry.vector_seq,
            is_unit=True,
        )
        self._enter(seq, entry, order)

    def _add_again(self, seq: int, entry: Entry, row: int, order: int) -> None:
        """Add a row with the vector of another."""
        self.shelf.again(
            seq,
            row,
            category=entry.category,
            keywords=_words(entry),
            importance=entry.importance,
            accessed_ns=accessed(entry),
            status=entry.status,
            order=order,
        )
        self._enter(seq, entry, order)

    def _order(self, order: int | None) -> int:
        if order is not None:
            return order
        self._next_order += 1
        return self._next_order - 1

    def _enter(self, seq: int, entry: Entry, order: int) -> None:
        self.rows[entry.id] = len(self.ids)
        self._letters_count += len(entry.content or "")
        self.ids.append(entry.id)
        self.entries.append(entry)
        self.orders.append(order)
        self._told.append(seq)
        self.texts.note(order, entry)

    def _note(self, row: int, seq: int, entry: Entry | None, *, is_moved: bool = False) -> None:
        """Hold what a row is from a seq on; where its memory moved to another row, its text was noted there."""
        self._replaced.append((seq, row, self.entries[row]))
        self.entries[row] = entry
        self._told[row] = seq
        if not is_moved:
            self.texts.note(self.orders[row], entry)

    # What happens.

    def follow(self, state: State, stamp: Stamp, event: Event) -> None:
        """Be told of an event of the stream, which was folded into its state."""
        kind = type(event)
        facts = state.part(FACTS)
        is_another = (facts.model, facts.dim) != (self.shelf.model, self.shelf.dimensions)
        if kind in BASE_TYPES or (is_another and facts.entries):
            self.detach()
            return
        if kind in FACTS.handlers:
            ids = touched(event)
            known = list(self.rows) if ids is None else ids
            pairs = [(entry_id, facts.entries.get(entry_id)) for entry_id in known]
            self.hold(stamp.seq, pairs, partial(self._units, stamp.seq, event))
            self.facts_seq = facts.seq
        self.seq = stamp.seq

    def _units(self, seq: int, event: Event, seqs: Sequence[int]) -> Array:
        """Return vectors, that of an event that was just folded without reading it again."""
        if list(seqs) == [seq]:
            return normalised(vector_of(event), self.shelf.dimensions, count=1)
        return self.load(seqs)

    def catch_up(self, facts: Facts, seq: int, load: Load) -> bool:
        """Hold what a later state of the same memories has; return whether that could be done.

        What was between is not known then, so that no moment before ``seq`` can be had.
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
            self.hold(seq, [(entry_id, facts.entries.get(entry_id)) for entry_id in ids], load)
            if list(self.rows) != list(facts.entries):
                return False
            self.shelf.since, self.facts_seq = seq, facts.seq
            self._moments.clear()
        self.seq = seq
        return True

    # What is given out.

    def past(self, at: int, then: Mapping[str, Entry]) -> Moment:
        """Return the rows as of a seq at which the memories were those given."""
        moment = self._moments.get(at)
        if moment is None:
            rows = self.shelf.stale(at).tolist()
            entries = [then[self.ids[row]] for row in rows]
            past = Past(
                rows,
                [entry.importance for entry in entries],
                [accessed(entry) for entry in entries],
                [entry.status for entry in entries],
            )
            moment = self._moments[at] = self.shelf.moment(at, past if rows else None)
            if len(self._moments) > MOMENTS_COUNT_MAX:
                self._moments.popitem(last=False)
        else:
            self._moments.move_to_end(at)
        return moment

    def entries_at(self, seq: int, rows: Sequence[int]) -> list[Entry] | None:
        """Return the memories of rows as they were at a seq; ``None`` if that is not known any more."""
        found: list[Entry] = []
        for row in rows:
            entry = self.entries[row] if self._told[row] <= seq else self._before(row, seq)
            if entry is None:
                return None
            found.append(entry)
        return found

    def _before(self, row: int, seq: int) -> Entry | None:
        if len(self._replaced) == REPLACED_ENTRIES_COUNT and self._replaced[0][0] > seq:
            return None
        return next((entry for at, place, entry in self._replaced if place == row and at > seq), None)

    def changes(self) -> dict[int, Entry | None]:
        """Return the memories, by order, that changed since this was last asked; at first all."""
        return self.texts.take(lambda: {self.orders[row]: self.entries[row] for row in self.rows.values()})


def _words(entry: Entry) -> tuple[str, ...]:
    return tuple(word.lower() for word in entry.words)
