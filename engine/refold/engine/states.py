"""States of streams: built at a seq, kept in RAM within a bound, their digests, and when a checkpoint is written.

A stream in RAM weighs what was read or written to get it there: an estimate, kept as a running sum in ``Streams``. Over
the bound, the streams that were not touched lately leave at their checkpoint; they come back from rows and tail when
somebody asks. Which ones are in RAM changes no answer.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, starmap
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from refold import fold
from refold.engine.streams import (
    APPLIED_KEY,
    STORE_STREAM,
    UNREADABLE,
    Checkpoint,
    Checkpoints,
    Slot,
    Streams,
    guarded,
    kind_of,
    number_key,
)
from refold.errors import RefoldError, StoreCorrupt
from refold.event import FLAG_BASE, Event, Forked, Restored, Stamp
from refold.limits import (
    CHECKPOINT_EVENTS,
    CHECKPOINT_ROWS_MAX,
    LOADED_PARTS_COUNT,
    PACKED_SLICE_COUNT,
    PAGE_EVENTS,
    RELIEVED_COUNT,
    TAIL_EVENTS_MAX,
)
from refold.log.protocol import Log, Row
from refold.log.record import ARRAY_BEGIN, SEQ, STAMP, branch_of
from refold.views.store import SETTINGS, Branch

if TYPE_CHECKING:
    from refold.engine.reader import Reading
    from refold.index.index import Similarity


# Building the state of a stream at a seq: the nearest checkpoint, the events after it, and through base pointers.
#
# The same ``fold`` runs here as on a live write. A fork or a restore starts from the state of another place; the
# chain of such places is walked with a list, not by recursion, so that it may be of any length.

_ARRAY: Final[Callable[[bytes], bytes]] = itemgetter(slice(ARRAY_BEGIN, None))
"""A record's array, cut out by C code."""


class Recorded(NamedTuple):
    """An event as it stands in the log."""

    event: Event
    stamp: Stamp


_STRETCH_EVENTS: Final = 32
"""Events that are read first when looking back for a base pointer."""


class _Segment(NamedTuple):
    """A stretch of one stream that is folded onto what came before it."""

    checkpoint: Checkpoint | None
    events: list[tuple[Event, Stamp]]


class Loader:
    """Reads events and builds states; it keeps nothing but what ``Streams`` keeps."""

    def __init__(self, log: Log, streams: Streams, checkpoints: Checkpoints) -> None:
        self._log = log
        self._streams = streams
        self._checkpoints = checkpoints
        self.bytes_read = self._events_read = 0
        """What was read since somebody set them to 0: what a state weighs that was built from it."""
        streams.branches = self.branches

    def branches(self) -> Sequence[Branch]:
        """Return the branches of the store, the first of which is branch 1."""
        slot = self._streams.find(STORE_STREAM)
        if slot is None:
            return ()
        slot.is_used = True
        return self.live(slot).part(SETTINGS).branches

    @guarded
    def recorded(self, seqs: Sequence[int]) -> list[Recorded]:
        """Return the events at the seqs, in the given order."""
        return list(starmap(Recorded, self._read(seqs, self._log.read_at(seqs))))

    @guarded
    def vectors(self, seqs: Sequence[int]) -> list[bytes]:
        """Return the vectors that the events at the seqs hold, as raw float32; needs no lock."""
        records = self._log.read_at(seqs)
        events = decoded(records, _heads(seqs, records))
        return [getattr(event, "vector") for event in events]  # noqa: B009 - several kinds of events have one

    @guarded
    def page(self, first_seq: int, limit: int, bounds: Mapping[int, int] | None = None) -> list[Recorded]:
        """Return those of ``limit`` events from ``first_seq`` on that count within the bounds of branches."""
        seqs, records = counted(first_seq, self._log.read_at(range(first_seq, first_seq + limit)), bounds)
        return list(starmap(Recorded, self._read(seqs, records)))

    @guarded
    def numbered(self, first_seq: int, limit: int) -> list[tuple[int, Event, Stamp]]:
        """Return up to ``limit`` events of the whole log from ``first_seq`` on, with the numbers of their streams."""
        seqs = range(first_seq, first_seq + limit)
        records = self._log.read_at(seqs)
        events = self._read(seqs, records)
        return [(head[0], *pair) for head, pair in zip(_heads(seqs, records), events, strict=True)]

    def _read(self, seqs: Sequence[int], records: list[bytes]) -> list[tuple[Event, Stamp]]:
        """Return the events of records with their stamps; plain pairs, because most are folded and forgotten."""
        heads = _heads(seqs, records)
        self.bytes_read += sum(map(len, records))
        self._events_read += len(records)
        names = self._streams.name_of
        stamps = [
            Stamp(seq, names(number), version, time_ns, occurred_ns, cause, actor, flags)
            for seq, (number, version, time_ns, occurred_ns, cause, actor, flags, _) in zip(seqs, heads, strict=True)
        ]
        return list(zip(decoded(records, heads), stamps, strict=True))

    @guarded
    def replayed(self, until: int, bounds: Mapping[int, int] | None = None) -> dict[int, fold.State]:
        """Return the state of every stream, by number, after folding the log from its first event to ``until``.

        ``bounds`` says up to where the events of which branches count; without it all do. One pass over the log in
        pages, each decoded in one sweep; no checkpoint takes part if this loader's streams have none. A fork or a
        restore starts from a state that is folded on the side, from the first event too.
        """
        states = _States(self._streams.name_of)
        apply = fold.fold
        begin = 0
        while begin < until:
            page = self._log.read_at(range(begin + 1, min(begin + PAGE_EVENTS, until) + 1))
            seqs, records = counted(begin + 1, page, bounds)
            begin += len(page)
            heads = _heads(seqs, records)
            names = states.names
            for seq, (number, version, time_ns, occurred_ns, cause, actor, flags, _), event in zip(
                seqs, heads, decoded(records, heads), strict=True
            ):
                if flags & FLAG_BASE:
                    states[number] = self.base_state(event, states[number].kind.name)
                state = states[number]
                apply(state, Stamp(seq, names[number], version, time_ns, occurred_ns, cause, actor, flags), event)
        return states

    def seqs_between(self, slot: Slot, after: int, until: int) -> Iterator[int]:
        """Return the seqs of a stream's events with ``after < seq <= until``, in order, inherited ones included."""
        stretches: list[tuple[Slot, int]] = []
        while slot.base is not None and after < slot.base[1]:
            stretches.append((slot, until))
            number, seq = slot.base
            slot, until = self._streams.at_number(number), min(until, seq)
        yield from self._streams.own_seqs(slot, after, until)
        while stretches:
            slot, until = stretches.pop()
            yield from self._streams.own_seqs(slot, after, until)

    def last_seq(self, slot: Slot, seq: int) -> int:
        """Return the seq of the stream's last event at or before ``seq``, 0 where there is none."""
        return slot.seq if seq >= slot.seq else self._streams.place(slot, seq)[1]

    def base_state(self, base: Event, kind: str) -> fold.State:
        """Return the state that a fork or a restore starts from."""
        assert isinstance(base, (Forked, Restored)), base
        if not base.base_seq:
            return fold.empty(kind)
        return self.state_at(self._streams.at_number(base.base_stream), base.base_seq)

    def live(self, slot: Slot) -> fold.State:
        """Return the live state of a stream, loaded if it is not."""
        if slot.state is None:
            self.bytes_read = self._events_read = 0
            state = self.state_at(slot, slot.seq)
            try:
                self._streams.loaded_from(slot, self.bytes_read, self._events_read)
                slot.state = state
            except BaseException:
                self._streams.is_torn = True
                raise
        return slot.state

    @guarded
    def state_at(self, slot: Slot, seq: int) -> fold.State:
        """Return the state of a stream at a seq, built anew: changing it changes nothing else."""
        segments = self._segments(slot, seq)
        first = segments.pop()
        state = self._unpacked(slot.kind, first.checkpoint)
        self._fold(state, first.events)
        while segments:
            self._fold(state, segments.pop().events)
        return state

    def _segments(self, slot: Slot, seq: int) -> list[_Segment]:
        """Return the stretches to fold, last one first.

        Each but the first begins with a base pointer, or goes on from what a branch inherited.
        """
        segments: list[_Segment] = []
        while True:
            slot = self._streams.holder(slot, seq)
            checkpoint = self._checkpoints.before(slot.number, seq)
            after = checkpoint.seq if checkpoint is not None else 0
            seqs = list(self._streams.own_seqs(slot, after, seq))
            events = self._since_base(seqs)
            base = events[0][0] if events else None
            is_inherited = checkpoint is None and slot.base is not None
            if not isinstance(base, (Forked, Restored)) and not is_inherited:
                segments.append(_Segment(checkpoint, events))
                return segments
            segments.append(_Segment(None, events))
            if not isinstance(base, (Forked, Restored)):
                assert slot.base is not None, slot.key
                number, seq = slot.base
                slot = self._streams.at_number(number)
                continue
            if not base.base_seq:
                segments.append(_Segment(None, []))
                return segments
            if base.base_seq >= events[0][1].seq:
                raise StoreCorrupt(
                    f"seq {events[0][1].seq} goes on from seq {base.base_seq}, behind itself; run `refold verify`"
                )
            slot, seq = self._streams.at_number(base.base_stream), base.base_seq

    def _since_base(self, seqs: Sequence[int]) -> list[tuple[Event, Stamp]]:
        """Return the events from the last base pointer on, all of them if there is none.

        They are read from the end in stretches that double: in a chain of restores the base is near, and reading all
        events at every link of the chain would cost the cube of its length.
        """
        events: list[tuple[Event, Stamp]] = []
        end, size = len(seqs), _STRETCH_EVENTS
        while end:
            wanted = seqs[max(end - size, 0) : end]
            stretch = self._read(wanted, self._log.read_at(wanted))
            place = _last_base(stretch)
            if place is not None:
                return stretch[place:] + events
            events = stretch + events
            end, size = end - len(wanted), 2 * size
        return events

    def _unpacked(self, kind: str, checkpoint: Checkpoint | None) -> fold.State:
        if checkpoint is None:
            return fold.empty(kind)
        events = self.recorded(checkpoint.pointed)
        try:
            return fold.unpack(kind, checkpoint.inline, events)
        except (*UNREADABLE, StopIteration) as error:
            raise StoreCorrupt(
                f"a checkpoint row at seq {checkpoint.seq} holds no state ({error}); run `refold verify`"
            ) from error

    def _fold(self, state: fold.State, events: Sequence[tuple[Event, Stamp]]) -> None:
        for event, stamp in events:
            fold.fold(state, stamp, event)


class _States(dict[int, fold.State]):
    """States by stream number, empty at first sight; keeps each stream's name.

    The first own event of a branch's stream takes over the state of the stream that it goes on from.
    """

    def __init__(self, name_of: Callable[[int], str]) -> None:
        super().__init__()
        self.names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._name_of = name_of

    def __missing__(self, number: int) -> fold.State:
        name = self.names[number] = self._name_of(number)
        elder = self._numbers.get(name)
        state = self[number] = fold.empty(kind_of(name)) if elder is None else self.pop(elder)
        self._numbers[name] = number
        return state


def counted(
    first_seq: int, records: list[bytes], bounds: Mapping[int, int] | None
) -> tuple[Sequence[int], list[bytes]]:
    """Return the seqs and records, from ``first_seq`` on, that count: those up to the bound of their branch."""
    if bounds is None:
        return range(first_seq, first_seq + len(records)), records
    _heads(range(first_seq, first_seq + len(records)), records)
    pairs = [pair for pair in enumerate(records, first_seq) if pair[0] <= bounds.get(branch_of(pair[1]), 0)]
    return [seq for seq, _ in pairs], [record for _, record in pairs]


def _heads(seqs: Sequence[int], records: list[bytes]) -> list[tuple[int, ...]]:
    """Return the front of each record's header; ``StoreCorrupt`` where a record is too short to have one."""
    if records and min(map(len, records)) < ARRAY_BEGIN:
        raise StoreCorrupt(f"a record at or behind seq {seqs[0]} is cut off; run `refold verify` and restore a backup")
    return list(map(STAMP.unpack_from, records))


def decoded(records: Sequence[bytes], heads: Iterable[tuple[int, ...]]) -> list[Event]:
    """Return the events of records: all in one sweep, one by one only where a tag is unknown or bytes are damaged."""
    try:
        return list(map(fold.decode_known, map(_ARRAY, records)))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [fold.decode(_ARRAY(record), head[-1]) for record, head in zip(records, heads, strict=True)]


def _last_base(events: Sequence[tuple[Event, Stamp]]) -> int | None:
    for place in range(len(events) - 1, -1, -1):
        if events[place][1].flags & FLAG_BASE:
            return place
    return None


# What is kept of the vectors of memories: made when somebody first searches, let go when all begins anew.

T = TypeVar("T")


class Kept:
    """Holds an engine's ``Similarity``, so that who never searches loads nothing of it."""

    def __init__(self, reading: "Reading") -> None:
        self._reading = reading
        self._lock = threading.Lock()
        self._similarity: Similarity | None = None
        self.is_torn = False
        """Whether something was cut off that changes rows: they are let go before they are used again."""

    @property
    def similarity(self) -> "Similarity":
        """What is kept now, made if there is nothing."""
        if self.is_torn:
            self.forget()
        found = self._similarity
        if found is None:
            from refold.index.index import Similarity  # noqa: PLC0415 - loaded only by those who search

            with self._lock:
                found = self._similarity = self._similarity or Similarity(self._reading)
        return found

    def whole(self, use: Callable[[], T]) -> T:
        """Call ``use``, which looks at rows or changes them, and return its result; what cuts it off tears the rows."""
        try:
            return use()
        except RefoldError:
            raise
        except BaseException:
            self.is_torn = True
            raise

    @property
    def nbytes(self) -> int:
        """What is kept takes in RAM."""
        return 0 if self._similarity is None else self._similarity.nbytes

    def forget(self) -> None:
        """Let go of everything, and end the threads that work on it."""
        found, self._similarity = self._similarity, None
        self.is_torn = False
        if found is not None:
            found.close()

    def disown(self) -> None:
        """Let go of everything in a process that forked: the threads are in the other one."""
        self._similarity = None

    def graph_rows(self) -> list[Row]:
        """Return the rows of graphs that the store does not have yet; the state lock is held."""
        return [] if self._similarity is None else self._similarity.graph_rows()


# Digests of the views of live streams: computed when a hash is asked for, kept until the stream moves, and stored.
#
# A stored digest is a cache like a checkpoint: with it, hashing a store loads only the streams that have moved since.

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE_DIGESTS: Final = msgspec.msgpack.Decoder(tuple[int, list[tuple[str, bytes]]]).decode


def digests_of(packed: bytes) -> tuple[int, list[tuple[str, bytes]]]:
    """Return the seq and the digests that a stored row holds."""
    try:
        return _DECODE_DIGESTS(packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(
            f"a row of digests cannot be read ({error}); run `refold verify` and restore a backup"
        ) from error


class Digests:
    """The digests of all streams: those stored, and those computed since the last flush."""

    def __init__(self, log: Log, streams: Streams, loader: Loader) -> None:
        self._log = log
        self._streams = streams
        self._loader = loader
        self._fresh: dict[int, Slot] = {}

    def of(self, slot: Slot) -> list[tuple[str, bytes]]:
        """Return the digests of a stream's views at its last event."""
        if slot.base is not None and not slot.number:
            elder = self._streams.at_number(slot.base[0])
            if elder.seq != slot.seq:
                return fold.digests(self._loader.live(slot))
            slot = elder
        if slot.digest is None:
            row = self._log.row("digests", number_key(slot.number))
            slot.digest = None if row is None else digests_of(row)
        if slot.digest is None or slot.digest[0] != slot.seq:
            slot.digest = (slot.seq, fold.digests(self._loader.live(slot)))
            self._fresh[slot.number] = slot
        return slot.digest[1]

    def take(self) -> list[Row]:
        """Return rows for what was computed since the last call and still is the digest of the stream's last event."""
        fresh, self._fresh = self._fresh, {}
        return [
            ("digests", number_key(slot.number), _ENCODE(slot.digest))
            for slot in fresh.values()
            if slot.digest is not None and slot.digest[0] == slot.seq
        ]


# Keeping checkpoints: when a stream gets a row, and how the tail of the log stays short.


class _Underway(NamedTuple):
    """A row that is being packed: of which stream, and where that stood when it was begun."""

    slot: Slot
    seq: int
    version: int
    events_count: int
    """How many events it had since its last kept row."""
    kept: bool
    packing: fold.Packing


class Keeper:
    """Packs states into checkpoint rows; what it packs waits in ``Checkpoints`` for the next commit."""

    def __init__(self, log: Log, streams: Streams, checkpoints: Checkpoints, loader: Loader) -> None:
        self._log = log
        self._streams = streams
        self._checkpoints = checkpoints
        self._loader = loader
        self._underway: dict[int, _Underway] = {}
        """By number, the streams whose states are being packed, a slice with each commit."""
        self.tail_due = 0
        """The seq up to which the tail is within its bound for certain."""

    def folded(self, slot: Slot) -> None:
        """Take note that an event of the stream was folded; pack a kept row where one is due."""
        dirty = self._streams.dirty
        if slot.number not in dirty:
            dirty[slot.number] = slot.seq
        if len(slot.seqs) >= (slot.due or CHECKPOINT_EVENTS) and slot.number not in self._underway:
            self._begin(slot, kept=True)

    def rebased(self, slot: Slot) -> None:
        """Pack a kept row where a stream went on from another place: no later read has to walk there again.

        That of a fork waits for the first event that is its own: making a fork builds no state.
        """
        if slot.state is None:
            slot.due = len(slot.seqs) + 1
        else:
            self._begin(slot, kept=True)

    def settle(self, slot: Slot) -> None:
        """Pack a row for a stream, so that none of its events is without one."""
        self._pack(slot, kept=False)

    def settles(self, slot: Slot) -> bool:
        """Pack some of a row for a stream that is about to leave RAM; return whether it may."""
        if slot.number not in self._underway:
            self._begin(slot, kept=False)
        else:
            self._step(slot.number)
        return slot.number not in self._streams.dirty

    def proceed(self, count: int) -> None:
        """Go on packing the stream that has waited longest, now that a commit of so many events was folded.

        A slice with each commit: who writes never waits for the whole of a large state.
        """
        steps = 1 + 2 * count // PACKED_SLICE_COUNT
        while steps and self._underway:
            self._step(next(iter(self._underway)))
            steps -= 1

    def shorten_tail(self, head: int, count: int) -> None:
        """Pack up to ``count`` streams, those that have waited longest, once the tail is over its bound.

        A slice with each commit: who writes never waits for the whole tail.
        """
        self.tail_due = self._streams.applied_seq(head) + TAIL_EVENTS_MAX
        if head > self.tail_due:
            for number in list(islice(self._streams.dirty, count)):
                if number not in self._underway:
                    self._begin(self._streams.at_number(number), kept=False)

    def _pack(self, slot: Slot, *, kept: bool) -> None:
        """Pack a row at once."""
        self._begin(slot, kept=kept)
        while slot.number in self._underway:
            self._step(slot.number)

    def _begin(self, slot: Slot, *, kept: bool) -> None:
        """Pack a row of the state as it is now, the first slice at once; what was under way is not needed any more."""
        self._underway.pop(slot.number, None)
        if not slot.seqs:
            # A kept row stands at the stream's last event; the tail, scanned after a crash, could not know it.
            self._streams.dirty.pop(slot.number, None)
            return
        packing = fold.Packing(self._loader.live(slot))
        underway = _Underway(slot, slot.seq, slot.version, len(slot.seqs), kept, packing)
        if packing.is_done:
            self._put(underway)
        else:
            self._underway[slot.number] = underway

    def _step(self, number: int) -> None:
        """Pack a slice more of what is under way, and put the row once that was the last."""
        underway = self._underway[number]
        underway.packing.step()
        if underway.packing.is_done:
            self._put(self._underway.pop(number))

    def _put(self, packed: _Underway) -> None:
        slot, count = packed.slot, packed.events_count
        inline, pointed = packed.packing.result()
        row = Checkpoint(packed.seq, packed.version, packed.kept, inline, pointed, slot.seqs[:count])
        self._checkpoints.put(slot.number, row, replaces=slot.floating)
        slot.floating = 0 if packed.kept else packed.seq
        self._cover(slot.number, slot.seqs[count:])
        if packed.kept:
            slot.seqs, slot.due = slot.seqs[count:], row.due
            self._streams.bytes += slot.weigh(len(inline), len(pointed))

    def _cover(self, number: int, left: Sequence[int]) -> None:
        """Take note that a row covers a stream but for its last events, at the seqs in ``left``."""
        dirty = self._streams.dirty
        dirty.pop(number, None)
        if left:
            in_order = sorted([*dirty.items(), (number, left[0])], key=itemgetter(1))
            dirty.clear()
            dirty.update(in_order)

    def is_packing(self, slot: Slot) -> bool:
        """Return whether a row of a stream is under way."""
        return slot.number in self._underway

    def applied(self, head: int) -> Row:
        """Return the row that says up to which seq everything is covered once the waiting rows are stored."""
        return "checkpoints", APPLIED_KEY, SEQ.pack(self._streams.applied_seq(head))

    def rest(self, head: int, rows: list[Row]) -> Iterator[list[Row]]:
        """Return the rows to store, page by page, so that the next opening has no tail to scan.

        Every stream that is loaded and has events without a row gets one. The row that says so goes last: rows that
        were cut off before it only make the next opening slower.
        """
        for number in list(self._streams.dirty):
            slot = self._streams.loaded(number)
            if slot is not None:
                self._pack(slot, kept=False)
        rows += self._checkpoints.waiting()
        if rows:
            rows.append(self.applied(head))
        for begin in range(0, len(rows), CHECKPOINT_ROWS_MAX):
            yield rows[begin : begin + CHECKPOINT_ROWS_MAX]
        self._checkpoints.written()


class Residents:
    """The hand that goes round the streams in RAM and lets those leave that nobody has touched since it last passed.

    A second chance instead of a list by last use: a touch costs one attribute and no lock.
    """

    def __init__(self, log: Log, streams: Streams, keeper: Keeper, kept: Kept, bytes_max: int) -> None:
        self._log = log
        self._relieved = 0
        """How often streams had come or left when the log was last asked to let go of what it has read."""
        self._streams = streams
        self._keeper = keeper
        self._kept = kept
        self._bytes_max = bytes_max

    @property
    def is_over(self) -> bool:
        """Whether streams should leave: what the vectors of memories take is not there for them, but for a part."""
        room_bytes = max(self._bytes_max - self._kept.nbytes, self._bytes_max // LOADED_PARTS_COUNT)
        return self._streams.bytes > room_bytes

    def trim(self, count: int) -> None:
        """Let up to ``count`` streams leave; never while a commit is under way, which may be writing to one of them."""
        queue = self._streams.queue
        passes = 2 * len(queue)
        while self.is_over and count and passes:
            slot = queue.popleft()
            passes -= 1
            if slot.is_used:
                slot.is_used = False
                queue.append(slot)
            elif self._leaves(slot):
                count -= 1
            elif self._keeper.is_packing(slot):
                queue.appendleft(slot)
                return  # It is large, and leaves soon: nobody else has to.
            else:
                queue.append(slot)

    def relieve(self) -> None:
        """Let the log let go of what it has read, now and then: pages that were mapped count as this process's."""
        if self._streams.traffic - self._relieved >= RELIEVED_COUNT:
            self._relieved = self._streams.traffic
            self._log.relieve()

    def _leaves(self, slot: Slot) -> bool:
        """Let a stream leave if a row covers its last event, or can be made to."""
        if slot.number in self._streams.dirty:
            if slot.state is None:
                return False
            if not self._keeper.settles(slot):
                return False
        self._streams.forget(slot)
        return True
