"""Transactions: the events of one caller, decided on the state that it sees, and the groups that are committed.

A caller is admitted to a group whole or not at all. If its decision depends on a stream that an earlier caller of the
same group changes, it waits for the next commit, because only then is the state of that stream known. A decision on one
key does not wait: the group's changes to the key are known at once.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from refold import checks, fold
from refold.engine.commit import derived_rows, request_rows
from refold.engine.conflicts import (
    ANY,
    EXISTS,
    check_open,
    check_reads,
    check_requests,
    check_version,
    closed_stream_error,
)
from refold.engine.keys import KeyDecision, KeyMap, with_prior
from refold.engine.origin import BY_HOST, Origin, origin_in
from refold.engine.reader import Reader, Request, request_taken_error
from refold.engine.streams import STORE_STREAM, Stream, kind_of, name_of, split_key
from refold.entry import Entry, settle_entry
from refold.errors import LimitExceeded, WrongVersion
from refold.event import (
    ACTOR_NUMBER_MAX,
    ACTOR_NUMBERS,
    FLAG_BASE,
    FLAG_OCCURRED,
    NAMED_ACTORS_FROM,
    Event,
    Forked,
    Recorded,
    Restored,
    Stamp,
    View,
)
from refold.limits import BATCH_EVENTS_MAX, CLOCK_BEHIND_NS
from refold.log.protocol import Row
from refold.log.record import MARK_COMMAND, Columns, Sealed, StreamHead, pack
from refold.message import Message, MessageAppended
from refold.views.actors import ACTORS, ActorNamed
from refold.views.profile import Note
from refold.views.store import SETTINGS

_new: Callable[..., Any] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_recorded: Final[Callable[[tuple[Event, Stamp]], Recorded]] = partial(_new, Recorded)
"""Makes a pair of an event and its stamp in half the time that a call of the class takes."""

Decide: TypeAlias = Callable[[fold.State], Event | None]
"""Looks at a stream's state and returns the event to append, or ``None`` if nothing would change."""

EntryKey: TypeAlias = tuple[str, KeyMap[Any], str]
"""A stream, a map in its state, and a key of that map."""


class Mutation(NamedTuple):
    """One event to append, or the decision that makes it, with the options of the caller."""

    key: str
    """The key of the stream."""
    make: Event | Decide
    opening: Event | None = None
    """The event that opens the stream if it is not open."""
    origin: Origin = BY_HOST
    expected: object = ANY
    request: Request | None = None


make_mutation: Final[Callable[[tuple[Any, ...]], Mutation]] = partial(_new, Mutation)
"""Makes a mutation from its fields in half the time that a call of the class takes."""


class GroupConflict(Exception):
    """Raised if a decision needs a state that its own group is about to change."""


def place_of(provisional_seq: int) -> int:
    """Return the place that a provisional seq has in its transaction."""
    return -provisional_seq - 1


_FLAGS: Final = {event_type: FLAG_BASE if event_type in fold.BASE_TYPES else 0 for event_type in fold.TAGS}


class Draft(ABC):
    """Events to be written, in columns, each with its stamp; the seq of a stamp is provisional, -1 for the first.

    Each event has a single stamp object: every holder of it sees the values that the engine fills in once the event is
    durable.
    """

    command = 0
    """The place at which the last command begins."""
    is_dated = False
    """Whether the caller gave the time of an event."""
    is_citing = False
    """Whether an event may name another one."""
    is_torn = False
    """Whether an interrupt cut off a mutation, so that the columns may be inconsistent; such a draft is not written."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.keys: list[str] = []
        self.events: list[Event] = []
        self.stamps: list[Stamp] = []
        self.places: dict[str, list[int]] = {}
        """Stream -> places of its events; the streams are in the order of their first events."""
        self.opened: set[str] = set()
        """Streams that need no opening event any more, as far as is known here."""
        self.requests: dict[bytes, tuple[Request, range]] = {}
        """Requests by the hash of their id, each with the places of its events."""
        self.overlays: dict[str, fold.State] = {}
        """Stream -> its state with these events, for streams that were read after being written to."""
        self.parts: dict[tuple[str, View[Any]], tuple[fold.State, int]] = {}
        """Stream and view -> the state of that view alone, and how many of these events were folded into it."""
        self.starts: list[int] = []
        """Places at which commands begin, each written whole or not at all; empty if all events are one command."""

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.events)

    # Differences between collecting events and writing them.

    @abstractmethod
    def version(self, key: str) -> int:
        """Return a stream's version with these events."""

    @abstractmethod
    def state(self, key: str) -> fold.State:
        """Return a stream's state with these events."""

    @abstractmethod
    def decide(self, key: str, make: Decide) -> Event | None:
        """Return the event that a decision makes on a stream with these events, or ``None``."""

    @abstractmethod
    def open(self, key: str, opening: Event, origin: Origin) -> None:
        """Add the event that opens a stream, unless it is open; a dropped fork is opened again."""

    @abstractmethod
    def name(self, actor: str) -> None:
        """Record an actor without a fixed number, whose event is about to be added."""

    @abstractmethod
    def begin(self, key: str) -> list[int]:
        """Prepare for a stream's first event, or for one beyond the limit; return the places of the stream's events."""

    @abstractmethod
    def cite(self, place: int) -> None:
        """Record an event that may name others."""

    # Common to both.

    def apply(self, mutation: Mutation) -> Recorded | None:
        """Add a mutation, decided on the state with the events so far, after the event that opens its stream if needed.

        Returns its event, or ``None`` if nothing changes. Raises ``WrongVersion`` if the stream is not at the expected
        version, and any error of the decision.
        """
        key, make, opening, origin, expected, request = mutation
        self.command = begin = len(self.events)
        try:
            if expected != ANY:
                check_version(key, self.version(key), expected)
            event = make if isinstance(make, Event) else self.decide(key, make)
            if event is None:
                self._record_answer(request)
                return None
            kind = type(event)
            if kind in fold.LISTING:
                fold.check_size(event)
            if opening is not None and key not in self.opened:
                self.open(key, opening, origin)
            stamp = self.add(key, event, origin)
            if kind in fold.CLOSING:
                self.opened.discard(key)
        except Exception:
            self.truncate(begin)
            raise
        except BaseException:
            self.is_torn = True
            raise
        if request is not None:
            self._record_answer(request)
        return _recorded((event, stamp))

    def _record_answer(self, request: Request | None) -> None:
        """Record the events that answer a request, if there is one."""
        if request is not None:
            self.requests[request.id_hash] = (request, range(self.command, len(self.events)))

    def add(self, key: str, event: Event, origin: Origin) -> Stamp:
        """Add an event whose fields were all checked, so that encoding it cannot fail; return its stamp."""
        occurred_ns, cause, actor, number = origin
        if number is None:
            self.name(actor)
        own, place, flags = self.places.get(key), len(self.events), _FLAGS[type(event)]
        if own is None or place >= BATCH_EVENTS_MAX:
            own = self.begin(key)
        if occurred_ns is None:
            occurred_ns = 0
        else:
            self.is_dated, flags = True, flags | FLAG_OCCURRED
        stamp = Stamp(-1 - place, key if key[0] > "9" else name_of(key), 0, 0, occurred_ns, cause, actor, flags)
        self.keys.append(key)
        self.events.append(event)
        self.stamps.append(stamp)
        own.append(place)
        if event.sources or type(event) is not MessageAppended:
            self.cite(place)
        if self.overlays and key in self.overlays:
            self.overlays[key] = self.fold_event(self.overlays[key], place)
        return stamp

    def fold_event(self, state: fold.State, place: int) -> fold.State:
        """Return a state after one more event."""
        event = self.events[place]
        if isinstance(event, (Forked, Restored)):
            state = self._reader.base_state(event, kind_of(self.keys[place]))
        fold.fold(state, self.stamp(place), event)
        return state

    def stamp(self, place: int) -> Stamp:
        """Return the stamp with which an event is folded before it is written."""
        return self.stamps[place]

    def part(self, key: str, view: View[Any]) -> fold.State:
        """Return a stream's state with these events, valid for one view; it does not count as a read of the stream."""
        own = self.places.get(key)
        state, count = self.parts.get((key, view)) or (None, 0)
        if state is None:
            stream = self._reader.find(key)
            state = fold.empty(kind_of(key)) if stream is None else self._reader.live(stream)
            if not own:
                return state
            state = fold.part_of(state, view)
        assert own is not None, "a part is of a stream with events"
        for place in own[count:]:
            state = self.fold_event(state, place)
        self.parts[key, view] = (state, len(own))
        return state

    def truncate(self, length: int) -> None:
        """Remove the events from place ``length`` on, because the operation that added them failed."""
        self.parts.clear()
        for key in set(self.keys[length:]):
            own = self.places[key]
            del own[bisect_left(own, length) :]
            if not own:
                del self.places[key]
            self.opened.discard(key)
            self.overlays.pop(key, None)
        columns: tuple[list[Any], ...] = (self.keys, self.events, self.stamps)
        for column in columns:
            del column[length:]


class Transaction(Draft):
    """The events of one caller, and the reads that they depend on.

    A batch keeps one open while user code runs. Its later events can name earlier ones by their provisional seqs.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.named: set[str] = set()
        """The actors without a fixed number."""
        self.messages: list[tuple[int, Message]] = []
        """Messages handed out with an event that names others of this transaction, each with its place."""
        self.entries: list[Entry] = []
        """Memories handed out before their seqs and times were known."""
        self.callbacks: list[tuple[int, Callable[[Stamp], None]]] = []
        """Callbacks that take the stamp of an event, each with the provisional seq of the event."""
        self.notes: list[tuple[int, Note]] = []
        """Journal notes handed out before their time was known, each with its place."""
        self.openings: dict[str, int] = {}
        """Stream -> place of its opening event, which is left out if another caller opens the stream first."""
        self.provisional: list[int] = []
        """Places of events that name a seq of this transaction."""
        self.reads: dict[str, int] = {}
        """Stream -> version at which its state was first read."""
        self.key_reads: dict[EntryKey, tuple[int, int]] = {}
        """Key -> seq and place of the value at its first read, for keys of streams that were not read as a whole."""
        self.changed: dict[EntryKey, int] = {}
        """Key -> place of the first event that changes it, whose ``prior`` is settled at the commit."""
        self._decided: tuple[Event, EntryKey] | None = None
        """The event of the last decision on a key, which is about to be added."""
        self.erased_count: int | None = None
        """Number of events erased by the time of the first read; ``None`` if no erasure matters."""
        self.is_current: Callable[[], bool] | None = None
        """Returns whether reads of a whole memory still hold; called immediately before the commit."""

    def insert(self, key: str, event: Event) -> None:
        """Add an event with the origin of the context."""
        self.add(key, event, origin_in(self._reader))

    def begin(self, key: str) -> list[int]:
        """Prepare for the first event of a stream; ``LimitExceeded`` if the transaction is full."""
        if len(self.events) >= BATCH_EVENTS_MAX:
            raise LimitExceeded(
                f"a batch of more than BATCH_EVENTS_MAX = {BATCH_EVENTS_MAX} events; commit in several batches"
            )
        return self.places.setdefault(key, [])

    def name(self, actor: str) -> None:
        """Record an actor without a fixed number, whose event is about to be added."""
        self.named.add(actor)

    def cite(self, place: int) -> None:
        """Record an event that may name others."""
        self.is_citing, event = True, self.events[place]
        if fold.is_provisional(event):
            self.provisional.append(place)
        if self._decided is not None and event is self._decided[0]:
            self.changed[self._decided[1]] = place

    def answer_places(self, request: Request) -> range:
        """Return the places of the events of a repeated request; ``InvalidInput`` if its id belongs to another one.

        ``GroupConflict`` if that request is a command of its own, because its answer is known only once it is written.
        """
        earlier, places = self.requests[request.id_hash]
        if earlier.content_hash != request.content_hash:
            raise request_taken_error()
        if self.starts:
            raise GroupConflict
        return places

    def open(self, key: str, opening: Event, origin: Origin) -> None:
        """Add the event that opens a stream, unless it is open; a dropped fork is opened again."""
        if key in self.places:
            # Restored or dropped here: whether it is open is decided by the state that this transaction sees.
            if not fold.is_open(self.state(key)):
                self.add(key, opening, origin)
        else:
            stream = self._reader.find(key)
            if stream is None or not fold.is_open(self._reader.live(stream)):
                self.openings[key] = len(self.events)
                self.add(key, opening, origin)
        self.opened.add(key)

    def finds_open(self, key: str) -> bool:
        """Return whether events rely on a stream that was open before this transaction: the first does not open it."""
        if key not in self.opened or key in self.openings or key not in self.places:
            return False
        return not isinstance(self.events[self.places[key][0]], fold.OPENING)

    def _read(self, key: str) -> Stream | None:
        """Return a stream, and record that it was read at its current version."""
        self._reader.notice()
        stream = self._reader.find(key)
        if key not in self.reads and self.finds_open(key):
            if stream is None:
                raise closed_stream_error(name_of(key), 0)
            check_open(self._reader, [stream])
        self.reads.setdefault(key, 0 if stream is None else stream.version)
        if self.erased_count is None:
            self.erased_count = erased_count(self._reader)
        return stream

    def version(self, key: str) -> int:
        """Return a stream's version with the events of this transaction, and record the read."""
        stream = self._read(key)
        return (0 if stream is None else stream.version) + len(self.places.get(key, ()))

    def state(self, key: str) -> fold.State:
        """Return a stream's state with the events of this transaction, and record the read."""
        reader = self._reader
        with reader.state_lock:
            stream = self._read(key)
            if key in self.overlays:
                return self.overlays[key]
            if key not in self.places:
                return fold.empty(kind_of(key)) if stream is None else reader.live(stream)
            state = self.overlays[key] = self.state_before(key, len(self.events))
        return state

    def look(self, key: str, view: View[Any]) -> fold.State:
        """Return a stream's state with the events of this transaction, valid for one view, without recording a read.

        If the stream was read before, the state is consistent with that read. The caller holds the state lock.
        """
        self._reader.notice()
        return self.state(key) if key in self.reads else self.part(key, view)

    def value(self, key: str, keys: KeyMap[Any], name: str) -> Any:
        """Return the value of a key of a stream, or ``None`` if there is none, and record the read."""
        with self._reader.state_lock:
            state = self.look(key, keys.view)
            self._read_key((key, keys, name), state)
            return keys(state).values.get(name)

    def _read_key(self, entry_key: EntryKey, state: fold.State) -> None:
        """Record that a key was read, unless its stream was, or this transaction changed the key."""
        key, keys, name = entry_key
        if key not in self.reads and entry_key not in self.changed:
            self.key_reads.setdefault(entry_key, keys(state).prior(name))

    def decide(self, key: str, make: Decide) -> Event | None:
        """Return the event of a decision.

        A decision on a key records a read of that key alone, and a blind one does so only if nothing changes.
        """
        if not isinstance(make, KeyDecision):
            return make(self.state(key))
        with self._reader.state_lock:
            state, entry_key = self.look(key, make.keys.view), (key, make.keys, make.key)
            event = make(state)
            if event is None or not make.is_blind:
                self._read_key(entry_key, state)
            is_first = event is not None and key not in self.reads and entry_key not in self.changed
            self._decided = (event, entry_key) if event is not None and is_first else None
            return event

    def state_before(self, key: str, end: int) -> fold.State:
        """Return a stream's state with the events of this transaction before a place, and record the read."""
        stream = self._read(key)
        state = fold.empty(kind_of(key)) if stream is None else self._copy_state(stream)
        for place in self.places.get(key, ()):
            if place < end:
                state = self.fold_event(state, place)
        return state

    def _copy_state(self, stream: Stream) -> fold.State:
        # Copy if possible: building a large project from its rows takes seconds, copying it milliseconds.
        reader = self._reader
        return fold.copy_state(reader.live(stream)) or reader.loader.state_at(stream, stream.seq)

    def recorded_event(self, place: int) -> Recorded:
        """Return an event with the stamp that it has until the commit."""
        return _recorded((self.events[place], self.stamps[place]))

    def truncate(self, length: int) -> None:
        """Remove the events from place ``length`` on, because the verb that added them failed."""
        super().truncate(length)
        self.openings = {key: place for key, place in self.openings.items() if place < length}
        self.provisional = [place for place in self.provisional if place < length]
        self.changed = {entry_key: place for entry_key, place in self.changed.items() if place < length}

    def resolve_events(self, places: Sequence[int], first_seq: int, settled: Mapping[int, Event]) -> list[Event]:
        """Return the events at ``places``, with provisional seqs replaced by those that they are about to get.

        ``settled`` has the events that point at another value by now. The transaction keeps the originals: if the log
        turns out to have moved, they are settled and resolved again.
        """
        if len(places) == len(self.events) and not settled:
            events = self.events
        else:
            events = [settled.get(place) or self.events[place] for place in places]
        if not self.provisional:
            return events
        seq_of = {-(place + 1): first_seq + index for index, place in enumerate(places)}
        provisional = set(self.provisional)
        return [
            fold.resolve(event, seq_of) if place in provisional else event
            for place, event in zip(places, events, strict=True)
        ]

    def settle(self, places: Sequence[int], events: Sequence[Event], clock_ns: int) -> None:
        """Complete the results that were handed out, given the events at ``places``, and when undated ones happened."""
        stamps = self.stamps
        if self.messages:
            event_of = dict(zip(places, events, strict=True))
            for place, message in self.messages:
                force_setattr(message, "event", event_of[place])
        for seq, callback in self.callbacks:
            callback(stamps[place_of(seq)])
        for entry in self.entries:
            settle_entry(entry, lambda seq: stamps[place_of(seq)].seq, stamps[places[0]].time_ns, clock_ns)
        for place, note in self.notes:
            force_setattr(note, "time_ns", stamps[place].time_ns)


def erased_count(reader: Reader) -> int:
    """Return the number of erased events: data that was read when it was lower may hold erased events."""
    with reader.state_lock:
        stream = reader.find(STORE_STREAM)
        return 0 if stream is None else len(reader.live(stream).part(SETTINGS).erased)


# A group: the events of one commit in columns, from several callers, each caller's a command of its own.


class Group(Draft):
    """The events to write, in order; all of them were checked, so that encoding them cannot fail."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.streams: dict[str, Stream] = {}
        """The streams of the events, by key: each has a number, and its state is loaded."""
        self.named: dict[str, int] = {}
        """Actor without a fixed number -> the number that it has, or gets in this group."""
        self.new_streams: dict[str, Stream] = {}
        """Streams that have no number in the store yet, by key."""

    def stream(self, key: str) -> Stream:
        """Return a stream; one that does not exist yet gets its number with its first event."""
        # Streams of the group first: the reader returns a parent's stream until the branch has one of its own.
        stream = self.new_streams.get(key) or self._reader.find(key)
        if stream is None:
            branch, name = split_key(key)
            stream = Stream(0, name, branch)
            stream.state = fold.empty(stream.kind)
        return stream

    def _prepare_stream(self, key: str, stream: Stream) -> Stream:
        """Return a stream that can take events: numbered if it is new, otherwise with its state loaded."""
        if stream.number:
            if stream.state is None:
                self._reader.live(stream)
            return stream
        number = self._reader.streams.next_number + len(self.new_streams)
        if stream.base is None:
            stream.number = number
        else:
            self._reader.live(stream)
            stream = stream.with_number(number)
        self.new_streams[key] = stream
        return stream

    def version(self, key: str) -> int:
        """Return a stream's version with the events of the group."""
        return self.stream(key).version + len(self.places.get(key, ()))

    def decide(self, key: str, make: Decide) -> Event | None:
        """Return the event of a decision; ``GroupConflict`` if it looks at a whole stream that the group changes."""
        if key in self.places and isinstance(make, KeyDecision):
            return make(self.part(key, make.keys.view))
        return make(self.state(key))

    def stamp(self, place: int) -> Stamp:
        """Return the stamp with which an event is folded before it is written, with the seq that it is about to get."""
        return replace(self.stamps[place], seq=self._reader.head + 1 + place)

    def state(self, key: str) -> fold.State:
        """Return a stream's state; ``GroupConflict`` if the group changes it."""
        if key in self.places:
            raise GroupConflict
        return self._reader.live(self.stream(key))

    def open(self, key: str, opening: Event, origin: Origin) -> None:
        """Add the event that opens a stream, unless it is open; a dropped fork is opened again."""
        if key in self.places:
            raise GroupConflict
        stream = self._reader.streams.ready_stream(key)
        if stream is None:
            stream = self.stream(key)
        else:
            self.streams[key] = stream
        if not fold.is_open(stream.state or self._reader.live(stream)):
            self.add(key, opening, origin)
        self.opened.add(key)

    def begin(self, key: str) -> list[int]:
        """Prepare for the first event of a stream."""
        if key not in self.streams:
            self.streams[key] = self._reader.streams.ready_stream(key) or self._prepare_stream(key, self.stream(key))
        return self.places.setdefault(key, [])

    def cite(self, place: int) -> None:  # noqa: ARG002 - any of them may name others
        """Record an event that may name others."""
        self.is_citing = True

    def name(self, actor: str) -> None:
        """Give an actor a number, unless it has one, by a separate event before the command.

        No caller requested that event, so it is part of no request and of no answer.
        """
        if actor in self.named:
            return
        seq = self._reader.live(self.stream(STORE_STREAM)).part(ACTORS).seqs.get(actor)
        if seq is None:
            assert self.command == len(self.events), "an actor is named in front of a command, not within it"
            seq = self._reader.head + 1 + self.command
            if NAMED_ACTORS_FROM + seq > ACTOR_NUMBER_MAX:
                raise LimitExceeded(
                    f"no number is left for the actor {actor!r} at seq {seq}; act under a name that the store knows"
                )
            self.add(STORE_STREAM, ActorNamed((), actor), BY_HOST)
            self.starts.append(self.command)
            self.command += 1
        self.named[actor] = NAMED_ACTORS_FROM + seq

    def adopt(self, transaction: Transaction) -> Sequence[int]:
        """Add a transaction as one command, and return the places of its events that are written.

        Raises ``WrongVersion`` if a stream or a key that it read has moved, or a stream that it found open was closed.
        """
        reader, own = self._reader, transaction.places
        if self.places:
            if any(key in self.places for key in transaction.reads):
                raise GroupConflict
            if any(key in self.places and key not in self.opened for key in transaction.opened):
                raise GroupConflict
        if self.requests.keys() & transaction.requests.keys():
            raise GroupConflict
        if transaction.is_current is not None and self.events:
            raise GroupConflict
        streams = {key: self.stream(key) for key in own}
        _check_current(reader, transaction, streams)
        settled = self._correct_events(transaction)
        places = _places(reader, transaction, streams, self.opened)
        self.command = len(self.events)
        if places:
            for actor in sorted(transaction.named):
                self.name(actor)
        begin = self.command
        self.events += transaction.resolve_events(places, reader.head + 1 + begin, settled)
        if len(places) == len(transaction.events):
            self.keys += transaction.keys
            self.stamps += transaction.stamps
            for key, at in own.items():
                moved = [begin + place for place in at] if begin else at.copy()
                self.places[key] = self.places[key] + moved if key in self.places else moved
        else:
            for index, place in enumerate(places, begin):
                key = transaction.keys[place]
                self.keys.append(key)
                self.stamps.append(transaction.stamps[place])
                self.places.setdefault(key, []).append(index)
        for key, stream in streams.items():
            if key in self.places and key not in self.streams:
                self.streams[key] = self._prepare_stream(key, self.new_streams.get(key) or stream)
        self.opened -= own.keys() - transaction.opened
        self.opened |= own.keys() & transaction.opened
        self.is_dated |= transaction.is_dated
        self.is_citing |= transaction.is_citing
        starts = transaction.starts
        if starts and len(places) < len(transaction.events):
            starts = [bisect_left(places, start) for start in starts]
        self.starts += [begin, *([begin + start for start in starts] if begin else starts)]
        for id_hash, (request, span) in transaction.requests.items():
            # Both are sorted. If each event of an import has a request of its own, a batch has as many requests as
            # events.
            first, end = bisect_left(places, span.start), bisect_left(places, span.stop)
            self.requests[id_hash] = (request, range(begin + first, begin + end))
        return places

    def _prior(self, entry_key: EntryKey) -> tuple[int, int]:
        """Return the seq and the place of the value that a key has with the events of the group."""
        key, keys, name = entry_key
        return keys(self.part(key, keys.view)).prior(name)

    def _correct_events(self, transaction: Transaction) -> dict[int, Event]:
        """Return, by place, the corrected events of a transaction, if they replace another value than it saw.

        Raises ``WrongVersion`` if a key that it read has another value.
        """
        for entry_key, expected in transaction.key_reads.items():
            if (actual := self._prior(entry_key)) != expected:
                key, _, name = entry_key
                raise WrongVersion(
                    f"key {checks.brief(name)} of {name_of(key)} was changed while a batch was open that had read it; "
                    f"run the batch again",
                    expected=expected[0],
                    actual=actual[0],
                )
        settled: dict[int, Event] = {}
        for entry_key, place in transaction.changed.items():
            event: Any = transaction.events[place]
            prior, index = self._prior(entry_key)
            if event.prior != prior or getattr(event, "place", index) != index:
                settled[place] = with_prior(event, prior, index)
        return settled

    def truncate(self, length: int) -> None:
        """Remove the events from place ``length`` on, because their command was refused."""
        super().truncate(length)
        self.streams = {key: stream for key, stream in self.streams.items() if key in self.places}
        self.new_streams = {key: stream for key, stream in self.new_streams.items() if key in self.places}
        self.starts = [start for start in self.starts if start < length]
        end = NAMED_ACTORS_FROM + self._reader.head + 1 + length
        self.named = {actor: number for actor, number in self.named.items() if number < end}


def _check_current(reader: Reader, transaction: Transaction, streams: dict[str, Stream]) -> None:
    """Raise ``WrongVersion`` if anything that a transaction relies on no longer holds."""
    check_requests(reader, (request for request, _ in transaction.requests.values()))
    if transaction.is_current is not None and not transaction.is_current():
        raise WrongVersion("the memory moved on while it was looked at; look again", expected=EXISTS, actual=0)
    # A stream that was found open only for an event that was then refused is no part of the batch.
    check_open(reader, [streams[key] for key in filter(transaction.finds_open, streams)])
    check_reads(reader, transaction.reads, streams)
    before = transaction.erased_count
    if before is not None and (count := erased_count(reader)) != before:
        # An erasure does not change the version of a stream that it blanks.
        raise WrongVersion(
            "events were erased while a batch was open that may have read them; run the batch again",
            expected=before,
            actual=count,
        )


def _places(
    reader: Reader, transaction: Transaction, streams: dict[str, Stream], opened: AbstractSet[str]
) -> Sequence[int]:
    """Return the places to write: all except openings of streams that another caller has opened meanwhile."""
    places: Sequence[int] = range(len(transaction.events))
    moot = {
        place
        for key, place in transaction.openings.items()
        if key in opened or (streams[key].version and fold.is_open(reader.live(streams[key])))
    }
    return [place for place in places if place not in moot] if moot else places


# The commit of a group: its records, and the rows beside them.


class CommitSeed(NamedTuple):
    """Time and random bytes of a commit, drawn before the turn so that no caller's code runs during it."""

    time_ns: int
    salt: bytes
    """The seed of the records' salts."""


class GroupCommit(Struct, frozen=True, eq=False):
    """A group in the form that the log takes, with the previous head of each stream."""

    group: Group
    first_seq: int
    time_ns: int
    clock_ns: int
    """When the events without a time of their own happened: ``time_ns``, or the clock's time if that is far behind."""
    records: list[Sealed]
    link: bytes
    heads: list[StreamHead]
    """The streams, in the order of ``Draft.places``."""
    sizes: list[int]
    """The size of each event, in bytes."""
    rows: list[Row]
    """The rows of a commit beside its records: of sources, and of requests."""

    def settle(self) -> None:
        """Complete the stamps once the events are durable; this can be repeated if it was interrupted.

        The seq is set last, so that code that sees a final seq sees the rest as well.
        """
        stamps, time_ns, first_seq = self.group.stamps, self.time_ns, self.first_seq
        for head, places in zip(self.heads, self.group.places.values(), strict=True):
            for version, place in enumerate(places, head.version + 1):
                stamp = stamps[place]
                force_setattr(stamp, "version", version)
                force_setattr(stamp, "time_ns", time_ns)
                if not stamp.flags & FLAG_OCCURRED:
                    force_setattr(stamp, "occurred_ns", self.clock_ns)
                force_setattr(stamp, "seq", first_seq + place)


_CAUSE, _ACTOR, _FLAGS_OF = map(attrgetter, ("cause", "actor", "flags"))


def build_commit(group: Group, seed: CommitSeed, *, first_seq: int, after_ns: int, link: bytes) -> GroupCommit:
    """Return the commit of a group's events, starting at ``first_seq`` and dated no earlier than ``after_ns``."""
    # By columns, each built in one sweep: for a batch, half the work of going event by event.
    stamps = group.stamps
    time_ns = clock_ns = seed.time_ns
    if time_ns < after_ns:
        time_ns = after_ns
        if after_ns - clock_ns <= CLOCK_BEHIND_NS:
            clock_ns = after_ns
    arrays = list(map(fold.encode, group.events))
    streams = [group.streams[key] for key in group.places]
    heads = [StreamHead(stream.number, stream.version, stream.seq, stream.branch) for stream in streams]
    owners: Sequence[int] = ()
    if len(heads) > 1:
        index_of = {key: index for index, key in enumerate(group.places)}
        owners = list(map(index_of.__getitem__, group.keys))
    numbers = {**ACTOR_NUMBERS, **group.named} if group.named else ACTOR_NUMBERS
    marks = bytearray(map(_FLAGS_OF, stamps))
    for start in group.starts:
        if start < len(marks):
            marks[start] |= MARK_COMMAND
    occurred: Sequence[int] = ()
    if group.is_dated or clock_ns != time_ns:
        occurred = [stamp.occurred_ns if stamp.flags & FLAG_OCCURRED else clock_ns for stamp in stamps]
    actors, causes = list(map(numbers.__getitem__, map(_ACTOR, stamps))), list(map(_CAUSE, stamps))
    columns = Columns(heads, owners, marks, actors, causes, occurred, arrays)
    packed = pack(columns, first_seq=first_seq, time_ns=time_ns, command=0, seed=seed.salt, link=link)
    rows = derived_rows(group.events, first_seq) if group.is_citing else []
    if group.requests:
        rows += request_rows(group.requests.values(), first_seq)
    sizes = list(map(len, arrays))
    return GroupCommit(group, first_seq, time_ns, clock_ns, packed.records, packed.link, heads, sizes, rows)
