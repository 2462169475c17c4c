"""The loader: events read from the log, and the state of a stream at a seq built from them.

A state is built from the nearest checkpoint and the events after it, through base pointers. The same ``fold`` runs here
as on a live write. A fork or a restore starts from the state of another place. The chain of such places is walked with
a list, not by recursion, so that it can be of any length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat, starmap
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from refold import fold
from refold.engine.observer import READ, Observer, measure
from refold.engine.streams import (
    STORE_STREAM,
    UNREADABLE,
    Checkpoint,
    Checkpoints,
    Stream,
    Streams,
    kind_of,
    records_of,
    records_through,
    reports_damage,
)
from refold.errors import StoreCorrupt
from refold.event import (
    ACTORS,
    FLAG_BASE,
    FLAG_ERASED,
    NAMED_ACTORS_FROM,
    Event,
    Forked,
    LazyEvents,
    Recorded,
    Restored,
    Stamp,
)
from refold.limits import PAGE_EVENTS, RECORD_EVENTS
from refold.log.protocol import Log
from refold.log.record import Record
from refold.views.actors import ActorNamed
from refold.views.store import ERASED_PREFIX, SETTINGS, Branch

_DENSE: Final = 1.25
"""Whole records are read if that reads at most this many events for each one that is wanted."""

_STRETCH_EVENTS: Final = 32
"""Number of events to read first when looking back for a base pointer."""


class Lens(Protocol):
    """Replaces events of the log in the fold of a scenario."""

    def transform(self, event: Event, stamp: Stamp) -> Event:
        """Return the event to fold."""
        ...

    def has(self, stream: str) -> bool:
        """Return whether any event of a stream remains."""
        ...

    @property
    def leaves_out(self) -> bool:
        """Whether this can leave out a message."""
        ...


Numbered: TypeAlias = tuple[int, Event, Stamp]
"""The number of a stream, with an event of it and its stamp."""


class _Segment(NamedTuple):
    """A stretch of one stream that is folded onto the state before it."""

    checkpoint: Checkpoint | None
    events: list[tuple[Event, Stamp]]


class ActorNames(dict[int, str]):
    """The names of actors by number; a name that an event gave is read on first use."""

    def __init__(self, log: Log) -> None:
        super().__init__(enumerate(ACTORS))
        self._log = log

    def __missing__(self, number: int) -> str:
        seq = number - NAMED_ACTORS_FROM
        if not 0 < seq <= self._log.head():
            return f"unknown-{number}"
        (stored,) = self._log.events_at([seq])
        event = fold.decode(stored.array)
        if not isinstance(event, ActorNamed):
            return f"unknown-{number}"
        name = self[number] = f"{ERASED_PREFIX}{seq}" if stored.flags & FLAG_ERASED else event.name
        return name


class Loader:
    """Reads events and builds states; only ``Streams`` keeps states."""

    def __init__(
        self,
        log: Log,
        streams: Streams,
        checkpoints: Checkpoints,
        lens: Lens | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._log = log
        self._streams = streams
        self._checkpoints = checkpoints
        self._lens = lens
        self.observer = observer
        self.bytes_read = self.events_read = 0
        """Bytes and events read since the caller set them to 0, which give the weight of a state built from them."""
        self.actors = ActorNames(log)
        streams.branches = self.branches

    def branches(self) -> Sequence[Branch]:
        """Return the branches of the store; the first one is branch 1."""
        stream = self._streams.find(STORE_STREAM)
        if stream is None:
            return ()
        stream.is_used = True
        return self.live(stream).part(SETTINGS).branches

    @reports_damage
    def recorded_events(self, seqs: Sequence[int]) -> list[Recorded]:
        """Return the events at the seqs, in the given order."""
        return list(starmap(Recorded, self._read(seqs)))

    @reports_damage
    def vectors(self, seqs: Sequence[int]) -> list[bytes]:
        """Return the vectors in the events at the seqs, as raw float32; needs no lock."""
        events = self.events(seqs) if self._lens is None else [event for event, _ in self._read(seqs)]
        return [getattr(event, "vector") for event in events]  # noqa: B009 - several kinds of events have one

    @reports_damage
    def page(self, after: int, until: int, bounds: Mapping[int, int] | None = None) -> tuple[list[Recorded], int]:
        """Return the first page of events after ``after`` that count within ``bounds``, and the seq that it reaches."""
        page: list[Recorded] = []
        for record in records_of(self._log, after, min(after + PAGE_EVENTS, until)):
            items = self._items(record, after, until, self._streams.name_of, bounds)
            page += [Recorded(event, stamp) for _, event, stamp in items]
            after = min(record.last_seq, until)
        return page, after

    @reports_damage
    def numbered_events(self, after: int, until: int) -> list[Numbered]:
        """Return the first page of events of the whole log after ``after``, with the numbers of their streams."""
        page: list[Numbered] = []
        for record in records_of(self._log, after, min(after + PAGE_EVENTS, until)):
            page += self._items(record, after, until, self._streams.name_of)
        return page

    def _items(
        self,
        record: Record,
        after: int,
        until: int,
        names: Callable[[int], str],
        bounds: Mapping[int, int] | None = None,
    ) -> list[Numbered]:
        """Return the events of a record with ``after < seq <= until`` that count within ``bounds``."""
        self.bytes_read += len(record.packed)
        self.events_read += record.count
        items = list(zip(record.numbers, events_of(record), self.stamps(record, names), strict=True))
        if record.first_seq <= after or record.last_seq > until:
            items = items[max(after + 1 - record.first_seq, 0) : until + 1 - record.first_seq]
        if bounds is not None:
            ends = {head.number: bounds.get(head.branch, 0) for head in record.heads}
            items = [item for item in items if item[2].seq <= ends[item[0]]]
        if self._lens is not None:
            items = [(number, self._lens.transform(event, stamp), stamp) for number, event, stamp in items]
        return items

    def stamps(self, record: Record, names: Callable[[int], str]) -> list[Stamp]:
        """Return the stamps of a record's events, column by column."""
        numbers, actors = record.numbers, record.actors
        return list(
            map(
                Stamp,
                range(record.first_seq, record.first_seq + record.count),
                map(names, numbers),
                record.versions,
                repeat(record.time_ns),
                record.occurred_ns,
                record.causes,
                map(self.actors.__getitem__, actors),
                record.flags,
            )
        )

    def _read(self, seqs: Sequence[int]) -> list[tuple[Event, Stamp]]:
        """Return the events at the seqs with their stamps; plain pairs, because most are folded and forgotten."""
        if len(seqs) > 2 * RECORD_EVENTS and 0 < seqs[-1] - seqs[0] < len(seqs) * _DENSE:
            pairs = self._read_between(seqs[0], seqs[-1])
            with suppress(KeyError):  # Seqs in an order of their own need not lie between the first and the last.
                return [pairs[seq] for seq in seqs]
        stored = self._log.events_at(seqs)
        arrays = [event.array for event in stored]
        self.bytes_read += sum(map(len, arrays))
        self.events_read += len(arrays)
        names, actors = self._streams.name_of, self.actors
        stamps = [
            Stamp(seq, names(number), version, time_ns, occurred_ns, cause, actors[actor], flags)
            for seq, number, version, time_ns, occurred_ns, cause, actor, flags, _ in stored
        ]
        events: Sequence[Event] = fold.decode_all(arrays)
        if self._lens is not None:
            events = list(map(self._lens.transform, events, stamps))
        return list(zip(events, stamps, strict=True))

    def _read_between(self, first: int, last: int) -> dict[int, tuple[Event, Stamp]]:
        """Return all events from ``first`` to ``last``, by seq."""
        pairs: dict[int, tuple[Event, Stamp]] = {}
        for record in records_of(self._log, first - 1, last):
            for _, event, stamp in self._items(record, first - 1, last, self._streams.name_of):
                pairs[stamp.seq] = (event, stamp)
        return pairs

    @reports_damage
    def replay_states(self, until: int, bounds: Mapping[int, int] | None = None) -> dict[int, fold.State]:
        """Return the state of every stream, by number, after folding the log from its first event to ``until``.

        ``bounds`` has the seq up to which the events of each branch count; without it, all do. This is one pass over
        the log in pages, each decoded in one sweep. No checkpoint is used if the streams of this loader have none. A
        fork or a restore starts from a state that is folded separately, also from the first event.
        """
        states = States(self._streams.name_of)
        apply = fold.fold
        for record in records_through(self._log, 0, until):
            for number, event, stamp in self._items(record, 0, until, self._streams.name_of, bounds):
                if stamp.flags & FLAG_BASE and type(event) in fold.BASE_TYPES:
                    states[number] = self.base_state(event, states[number].kind.name)
                apply(states[number], stamp, event)
        return states

    @reports_damage
    def numbered_records(self, until: int, bounds: Mapping[int, int] | None = None) -> Iterator[list[Numbered]]:
        """Yield the events up to a seq that count within ``bounds``, record by record."""
        for record in records_through(self._log, 0, until):
            yield self._items(record, 0, until, self._streams.name_of, bounds)

    def seqs_between(self, stream: Stream, after: int, until: int) -> Iterator[int]:
        """Return the seqs of a stream's events with ``after < seq <= until``, in order, inherited ones included."""
        stretches: list[tuple[Stream, int]] = []
        while stream.base is not None and after < stream.base[1]:
            stretches.append((stream, until))
            number, seq = stream.base
            stream, until = self._streams.at_number(number), min(until, seq)
        yield from self._streams.own_seqs(stream, after, until)
        while stretches:
            stream, until = stretches.pop()
            yield from self._streams.own_seqs(stream, after, until)

    def last_seq(self, stream: Stream, seq: int) -> int:
        """Return the seq of the stream's last event at or before ``seq``, or 0 if there is none."""
        return stream.seq if seq >= stream.seq else self._streams.place(stream, seq)[1]

    def base_state(self, base: Event, kind: str) -> fold.State:
        """Return the state that a fork or a restore starts from."""
        assert isinstance(base, (Forked, Restored)), base
        if not base.base_seq:
            return fold.empty(kind)
        return self.state_at(self._streams.at_number(base.base_stream), base.base_seq)

    def live(self, stream: Stream) -> fold.State:
        """Return the live state of a stream, loading it if it is not in RAM."""
        if stream.state is None:
            self.bytes_read = self.events_read = 0
            state = self.state_at(stream, stream.seq)
            try:
                self._streams.record_load(stream, self.bytes_read, self.events_read)
                stream.state = state
            except BaseException:
                self._streams.is_torn = True
                raise
        return stream.state

    @reports_damage
    def state_at(self, stream: Stream, seq: int) -> fold.State:
        """Return a newly built state of a stream at a seq; changing it changes nothing else."""
        with measure(self.observer, READ):
            segments = self._segments(stream, seq)
            count = sum(len(segment.events) for segment in segments)
            first = segments.pop()
            state = self._unpack_state(stream.kind, first.checkpoint)
            self._fold(state, first.events)
            while segments:
                self._fold(state, segments.pop().events)
            if self.observer is not None:
                self.observer.record_fold(count)
            return state

    def state_after(self, stream: Stream, earlier: fold.State, after: int, seq: int) -> fold.State | None:
        """Return the state that an earlier one of a stream becomes at a seq, ``None`` if it has to be built anew."""
        with measure(self.observer, READ):
            seqs = list(self._streams.own_seqs(stream, after, seq))
            if len(seqs) > _STRETCH_EVENTS:
                return None
            events = self._read(seqs)
            state = fold.copy_state(earlier) if _last_base(events) is None else None
            if state is not None:
                self._fold(state, events)
                if self.observer is not None:
                    self.observer.record_fold(len(events))
            return state

    def _segments(self, stream: Stream, seq: int) -> list[_Segment]:
        """Return the stretches to fold, last one first.

        Each except the earliest begins with a base pointer, or continues what a branch inherited.
        """
        segments: list[_Segment] = []
        while True:
            stream = self._streams.holder(stream, seq)
            checkpoint = self._checkpoints.before(stream.number, seq)
            after = checkpoint.seq if checkpoint is not None else 0
            seqs = list(self._streams.own_seqs(stream, after, seq))
            events = self._events_since_base(seqs)
            base = events[0][0] if events else None
            is_inherited = checkpoint is None and stream.base is not None
            if not isinstance(base, (Forked, Restored)) and not is_inherited:
                segments.append(_Segment(checkpoint, events))
                return segments
            segments.append(_Segment(None, events))
            if not isinstance(base, (Forked, Restored)):
                assert stream.base is not None, stream.key
                number, seq = stream.base
                stream = self._streams.at_number(number)
                continue
            if not base.base_seq:
                segments.append(_Segment(None, []))
                return segments
            if base.base_seq >= events[0][1].seq:
                raise StoreCorrupt(
                    f"seq {events[0][1].seq} goes on from seq {base.base_seq}, behind itself; run `refold verify`"
                )
            stream, seq = self._streams.at_number(base.base_stream), base.base_seq

    def _events_since_base(self, seqs: Sequence[int]) -> list[tuple[Event, Stamp]]:
        """Return the events from the last base pointer on, or all of them if there is none.

        Reads backwards in stretches that double in size: in a chain of restores the base is near, and reading all
        events at every link would cost the cube of the chain's length.
        """
        events: list[tuple[Event, Stamp]] = []
        end, size = len(seqs), _STRETCH_EVENTS
        while end:
            stretch = self._read(seqs[max(end - size, 0) : end])
            place = _last_base(stretch)
            if place is not None:
                return stretch[place:] + events
            events = stretch + events
            end, size = end - len(stretch), 2 * size
        return events

    def _unpack_state(self, kind: str, checkpoint: Checkpoint | None) -> fold.State:
        if checkpoint is None:
            return fold.empty(kind)
        pointed = checkpoint.pointed
        try:
            if self._lens is not None or not fold.is_read_later(kind):
                return fold.unpack(kind, checkpoint.inline, self._read(pointed))
            later = LazyEvents(pointed, self.events, _guard_read)
            self._weigh(pointed)
            return fold.unpack_later(kind, checkpoint.inline, later, lambda begin, end: self._read(pointed[begin:end]))
        except (*UNREADABLE, StopIteration) as error:
            raise StoreCorrupt(
                f"a checkpoint row at seq {checkpoint.seq} holds no state ({error}); run `refold verify`"
            ) from error

    @reports_damage
    def events(self, seqs: Sequence[int]) -> list[Event]:
        """Return the events at the seqs without their stamps; needs no lock."""
        return fold.decode_all([stored.array for stored in self._log.events_at(seqs)])

    def _weigh(self, seqs: Sequence[int]) -> None:
        """Count events that may be read later as already read, each with the size of the last one."""
        if seqs:
            self.events_read += len(seqs)
            self.bytes_read += len(seqs) * len(self._log.events_at(seqs[-1:])[0].array)

    def _fold(self, state: fold.State, events: Sequence[tuple[Event, Stamp]]) -> None:
        for event, stamp in events:
            fold.fold(state, stamp, event)


class States(dict[int, fold.State]):
    """States by stream number, empty on first access.

    The first own event of a branch's stream takes over the state of the stream that it continues.
    """

    def __init__(self, name_of: Callable[[int], str], empty: Callable[[str], fold.State] = fold.empty) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}
        self._name_of = name_of
        self._empty = empty

    def __missing__(self, number: int) -> fold.State:
        name = self._name_of(number)
        elder = self._numbers.get(name)
        state = self[number] = self._empty(kind_of(name)) if elder is None else self.pop(elder)
        self._numbers[name] = number
        return state


def events_of(record: Record) -> list[Event]:
    """Return the events of a record, decoded in one sweep, or one by one if a tag is unknown or bytes are damaged."""
    try:
        events = fold.decode_known(record.events)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return list(map(fold.decode, record.arrays))
    if len(events) != record.count:
        raise StoreCorrupt(f"{len(events)} of {record.count} events from seq {record.first_seq}; run `refold verify`")
    return events


@reports_damage
def _guard_read(use: Callable[[], Any]) -> Any:
    return use()


def _last_base(events: Sequence[tuple[Event, Stamp]]) -> int | None:
    for place in range(len(events) - 1, -1, -1):
        if type(events[place][0]) in fold.BASE_TYPES:
            return place
    return None
