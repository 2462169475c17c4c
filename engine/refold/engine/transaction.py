"""Transactions: the events of one caller, decided on the state that it sees, and the group of them that is committed.

A caller is admitted to a group whole or not at all. Where its decision depends on a stream that an earlier caller of
the same group changes, it waits for the next commit: then that stream's state is known.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, repeat
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from refold import checks, fold
from refold.engine.origin import BY_HOST, Origin, origin_in
from refold.engine.reader import Reader, Request, of_another_request
from refold.engine.streams import STORE_STREAM, Stream, kind_of, name_of, split_key
from refold.entry import Entry, settle_entry
from refold.errors import LimitExceeded, WrongVersion
from refold.event import (
    ACTOR_NUMBER_MAX,
    FLAG_BASE,
    FLAG_OCCURRED,
    NAMED_ACTORS_FROM,
    Event,
    Forked,
    Recorded,
    Restored,
    Stamp,
)
from refold.limits import BATCH_EVENTS_MAX
from refold.log.protocol import Row
from refold.log.record import MARK_COMMAND, SEQ, Columns, Sealed, StreamHead, pack
from refold.message import Message, MessageAppended
from refold.views.actors import ACTORS, ActorNamed
from refold.views.profile import Note
from refold.views.store import SETTINGS

ANY: Final = "any"
"""For ``expected``: any version, the default."""

NO_STREAM: Final = "no stream"
"""For ``expected``: nothing was written to the stream yet."""

EXISTS: Final = "exists"
"""For ``expected``: something was written to the stream."""

_new: Callable[..., Any] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_recorded: Final[Callable[[tuple[Event, Stamp]], Recorded]] = partial(_new, Recorded)
"""Makes a pair of an event and its stamp, in half the time that its class takes."""

Decide: TypeAlias = Callable[[fold.State], Event | None]
"""Looks at a stream's state and returns the event to append, or ``None`` where nothing would change."""


class Mutation(Struct, frozen=True):
    """One event to append, or the decision that makes it, with the options of the caller."""

    key: str
    """The key of the stream."""
    make: Event | Decide
    opening: Event | None = None
    """The event that opens the stream where it is not open."""
    origin: Origin = BY_HOST
    expected: object = ANY
    request: Request | None = None


class Deferred(Exception):
    """The decision needs a state that this very group is about to change."""


def place_of(provisional_seq: int) -> int:
    """Return the place in its transaction of a provisional seq."""
    return -provisional_seq - 1


def check_version(key: str, actual: int, expected: object) -> None:
    """Raise ``WrongVersion`` unless a stream's version is the expected one."""
    fits = {NO_STREAM: actual == 0, EXISTS: actual > 0}.get(expected, expected == actual)  # type: ignore[call-overload]
    if not fits:
        raise WrongVersion(
            f"{name_of(key)} is at version {actual}, not at {checks.shown(expected)}; read it again and decide anew",
            expected=expected,
            actual=actual,
        )


def _apply(target: "Transaction | Group", mutation: Mutation) -> int | None:
    """Add a mutation's event, behind what opens its stream; return its place, ``None`` where nothing changes.

    Raises ``WrongVersion`` if the stream is not at the expected version, and whatever the decision raises.
    """
    key, event = mutation.key, mutation.make
    if mutation.expected != ANY:
        check_version(key, target.version(key), mutation.expected)
    if not isinstance(event, Event):
        decided = event(target.state(key))
        if decided is None:
            return None
        event = decided
    if type(event) in fold.LISTING:
        fold.check_size(event)
    if mutation.opening is not None and key not in target.opened:
        target.open(key, mutation.opening, mutation.origin)
    place = target.add(key, event, mutation.origin)
    if type(event) in fold.CLOSING:
        target.opened.discard(key)
    return place


class Transaction:
    """The events of one caller in columns, in order, and what they depend on.

    A batch keeps one open while user code runs. Its events have provisional seqs, -1 for the first, so that later ones
    can name them.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.is_torn = False
        """Whether an interrupt cut off a mutation, so that the columns may not fit each other: it is not written."""
        self.keys: list[str] = []
        self.events: list[Event] = []
        self.origins: list[Origin] = []
        self.named: set[str] = set()
        """The actors without a fixed number."""
        self.places: defaultdict[str, list[int]] = defaultdict(list)
        """Stream -> places of its events."""
        self.messages: list[Message] = []
        """Results that were handed out before their stamp was known; their seq is provisional."""
        self.entries: list[Entry] = []
        """Memories that were handed out before their seqs and times were known."""
        self.callbacks: list[tuple[int, Callable[[Stamp], None]]] = []
        """Callbacks that take the stamp of an event, by its provisional seq."""
        self.notes: list[tuple[int, Note]] = []
        """Journal notes that were handed out before their time was known, by place."""
        self.openings: dict[str, int] = {}
        """Stream -> place of the event that opens it, left out if somebody else opens the stream first."""
        self.opened: set[str] = set()
        """Streams that need no opening any more, as far as this transaction knows."""
        self.provisional: list[int] = []
        """Places of events that name a seq of this very transaction."""
        self.overlays: dict[str, fold.State] = {}
        """Stream -> its state with the events of this transaction, for streams that were read after it wrote them."""
        self.reads: dict[str, int] = {}
        """Stream -> version at which its state was first read."""
        self.erased_count: int | None = None
        """How many events had been erased when it first read something; ``None`` where no erasure matters."""
        self.requests: dict[bytes, tuple[Request, range]] = {}
        """Requests by the hash of their id, each with the places of its events."""
        self.starts: list[int] = []
        """Places at which a command of its own begins; none where all events are one command."""
        self.is_current: Callable[[], bool] | None = None
        """Whether what was read of a whole memory still holds, asked just before the commit."""

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.events)

    def add(self, key: str, event: Event, origin: Origin | None = None) -> int:
        """Add an event whose fields were all checked, so that encoding it cannot fail; return its place.

        Without an origin it has that of the context.
        """
        place = len(self.events)
        if place >= BATCH_EVENTS_MAX:
            raise LimitExceeded(
                f"a batch of more than BATCH_EVENTS_MAX = {BATCH_EVENTS_MAX} events; commit in several batches"
            )
        self.keys.append(key)
        self.places[key].append(place)
        self.events.append(event)
        if origin is None:
            origin = origin_in(self._reader)
        self.origins.append(origin)
        if origin.number is None:
            self.named.add(origin.actor)
        if (event.sources or type(event) is not MessageAppended) and fold.is_provisional(event):
            self.provisional.append(place)
        if key in self.overlays:
            self.overlays[key] = self._folded(self.overlays[key], place)
        return place

    def apply(self, mutation: Mutation) -> int | None:
        """Add a mutation, decided on the state with the events so far; return its place, ``None`` for no change."""
        begin = len(self.events)
        try:
            place = _apply(self, mutation)
        except Exception:
            self.truncate(begin)
            raise
        except BaseException:
            self.is_torn = True
            raise
        if mutation.request is not None:
            self.requests[mutation.request.id_hash] = (mutation.request, range(begin, len(self.events)))
        return place

    def answered(self, request: Request) -> range:
        """Return the places of the events of a request that was made before; ``InvalidInput`` of another one.

        ``Deferred`` where that request is a command of its own: what it will be answered is known once it is written.
        """
        known, places = self.requests[request.id_hash]
        if known.content_hash != request.content_hash:
            raise of_another_request()
        if self.starts:
            raise Deferred
        return places

    def open(self, key: str, opening: Event, origin: Origin) -> None:
        """Add the event that opens a stream, unless it is open; a fork that was dropped is opened anew."""
        if self.places[key]:
            # Restored or dropped here: what is open now is what this transaction itself sees.
            if not fold.is_open(self.state(key)):
                self.add(key, opening, origin)
        else:
            stream = self._reader.find(key)
            if stream is None or not fold.is_open(self._reader.live(stream)):
                self.openings[key] = self.add(key, opening, origin)
        self.opened.add(key)

    def _read(self, key: str) -> Stream | None:
        """Return a stream, and remember that it was read as it is now."""
        self._reader.notice()
        stream = self._reader.find(key)
        self.reads.setdefault(key, 0 if stream is None else stream.version)
        if self.erased_count is None:
            self.erased_count = erased_count(self._reader)
        return stream

    def version(self, key: str) -> int:
        """Return a stream's version with the events of this transaction, and remember that it was read."""
        stream = self._read(key)
        return (0 if stream is None else stream.version) + len(self.places[key])

    def state(self, key: str) -> fold.State:
        """Return a stream's state with the events of this transaction, and remember that it was read."""
        reader = self._reader
        with reader.state_lock:
            stream = self._read(key)
            if key in self.overlays:
                return self.overlays[key]
            if not self.places[key]:
                return fold.empty(kind_of(key)) if stream is None else reader.live(stream)
            state = self.overlays[key] = self.state_before(key, len(self.events))
        return state

    def state_before(self, key: str, end: int) -> fold.State:
        """Return a stream's state with the events of this transaction in front of a place, and remember the read."""
        stream = self._read(key)
        state = fold.empty(kind_of(key)) if stream is None else self._copied(stream)
        for place in self.places[key]:
            if place < end:
                state = self._folded(state, place)
        return state

    def _copied(self, stream: Stream) -> fold.State:
        # A copy where there can be one: a large project is built from its rows in seconds, and copied in milliseconds.
        reader = self._reader
        return fold.copied(reader.live(stream)) or reader.loader.state_at(stream, stream.seq)

    def _folded(self, state: fold.State, place: int) -> fold.State:
        """Return a state after one more event."""
        event = self.events[place]
        if isinstance(event, Restored):
            state = self._reader.base_state(event, kind_of(self.keys[place]))
        fold.fold(state, self.stamp(place), event)
        return state

    def stamp(self, place: int) -> Stamp:
        """Return the stamp that an event has until the commit."""
        origin, key = self.origins[place], self.keys[place]
        name = key if key[0] > "9" else name_of(key)
        return Stamp(-place - 1, name, 0, 0, origin.occurred_ns or 0, origin.cause, origin.actor)

    def recorded(self, place: int) -> Recorded:
        """Return an event with the stamp that it has until the commit."""
        return _recorded((self.events[place], self.stamp(place)))

    def truncate(self, length: int) -> None:
        """Take back what was added from place ``length`` on: the verb that added it failed."""
        for key in set(self.keys[length:]):
            self.overlays.pop(key, None)
            self.places[key] = [place for place in self.places[key] if place < length]
            self.opened.discard(key)
        for column in (self.keys, self.events, self.origins):
            del column[length:]
        self.openings = {key: place for key, place in self.openings.items() if place < length}
        self.provisional = [place for place in self.provisional if place < length]

    def resolved(self, places: Sequence[int], first_seq: int) -> list[Event]:
        """Return the events at ``places``, provisional seqs replaced by those that they are about to get.

        The transaction keeps its own: where the log turns out to have moved, they are resolved once more.
        """
        events = self.events if len(places) == len(self.events) else [self.events[place] for place in places]
        if not self.provisional:
            return events
        seq_of = {-(place + 1): first_seq + index for index, place in enumerate(places)}
        provisional = set(self.provisional)
        return [
            fold.resolve(event, seq_of) if place in provisional else event
            for place, event in zip(places, events, strict=True)
        ]

    def settle(self, places: Sequence[int], events: Sequence[Event], stamps: Sequence[Stamp]) -> None:
        """Give the results that were handed out the stamps of their events, of which those at ``places`` were written.

        Without openings that were left out each event keeps its place.
        """
        index_of: Mapping[int, int] | Sequence[int] = places
        if len(places) < len(self.events):
            index_of = {place: index for index, place in enumerate(places)}
        for message in self.messages:
            at = index_of[-message.stamp.seq - 1]
            force_setattr(message, "stamp", stamps[at])
            if self.provisional:
                force_setattr(message, "event", events[at])
        for seq, callback in self.callbacks:
            callback(stamps[index_of[place_of(seq)]])
        for entry in self.entries:
            settle_entry(entry, lambda seq: stamps[index_of[place_of(seq)]].seq, stamps[0].time_ns)
        for place, note in self.notes:
            force_setattr(note, "time_ns", stamps[index_of[place]].time_ns)


def erased_count(reader: Reader) -> int:
    """Return how many events were erased: what was read when they were fewer may hold what is gone."""
    with reader.state_lock:
        stream = reader.find(STORE_STREAM)
        return 0 if stream is None else len(reader.live(stream).part(SETTINGS).erased)


# A group: the events of one commit in columns, those of several callers, each caller's a command of its own.


class Group(Struct, eq=False):
    """The events to write, in order; they were checked before, so that encoding them cannot fail."""

    reader: Reader
    streams: list[Stream] = []
    events: list[Event] = []
    origins: list[Origin] = []
    commands: list[int] = []
    """For each event, the place of the first event of its command: what is written whole or not at all."""
    command: int = 0
    """The place at which the command begins that is being admitted."""
    touched: dict[str, int] = {}
    """Stream -> how many events the group holds of it."""
    opened: set[str] = set()
    """Streams that need no opening any more."""
    named: dict[str, int] = {}
    """Actors without a fixed number -> the number that they have, or get in this group."""
    new_streams: dict[str, Stream] = {}
    """Streams by key that have no number yet in the store."""
    is_citing: bool = False
    """Whether an event may name sources."""
    requests: list[tuple[Request, int, int]] = []
    """Requests with the places of their events: from the first to behind the last."""

    def stream(self, key: str) -> Stream:
        """Return a stream; one that does not exist yet gets its number with its first event."""
        # Those of the group first: a branch finds its parent's stream until it has one of its own.
        stream = self.new_streams.get(key) or self.reader.find(key)
        if stream is None:
            branch, name = split_key(key)
            stream = Stream(0, name, branch)
            stream.state = fold.empty(stream.kind)
        return stream

    def _ready(self, key: str) -> Stream:
        """Return a stream to which events can be added: numbered if it is new, with its state loaded if it is not."""
        stream = self.stream(key)
        if stream.number:
            if stream.state is None:
                self.reader.live(stream)
            return stream
        number = self.reader.streams.next_number + len(self.new_streams)
        if stream.base is None:
            stream.number = number
        else:
            self.reader.live(stream)
            stream = stream.with_number(number)
        self.new_streams[key] = stream
        return stream

    def version(self, key: str) -> int:
        """Return a stream's version with the events of the group."""
        return self.stream(key).version + self.touched.get(key, 0)

    def state(self, key: str) -> fold.State:
        """Return a stream's state; ``Deferred`` if the group changes it."""
        if key in self.touched:
            raise Deferred
        return self.reader.live(self.stream(key))

    def open(self, key: str, opening: Event, origin: Origin) -> None:
        """Add the event that opens a stream, unless it is open; a fork that was dropped is opened anew."""
        if key in self.touched:
            raise Deferred
        stream = self.reader.streams.ready(key) or self.stream(key)
        if not fold.is_open(stream.state or self.reader.live(stream)):
            self.add(key, opening, origin)
        self.opened.add(key)

    def add(self, key: str, event: Event, origin: Origin) -> int:
        """Add an event to the command that is being admitted; return its place."""
        if origin.number is None:
            self._name(origin.actor)
        place = len(self.events)
        self.streams.append(self.reader.streams.ready(key) or self._ready(key))
        self.events.append(event)
        self.origins.append(origin)
        self.commands.append(self.command)
        self.touched[key] = self.touched.get(key, 0) + 1
        if event.sources:
            self.is_citing = True
        return place

    def _name(self, actor: str) -> None:
        """Give an actor a number, unless it has one, by an event of its own in front of the command.

        No caller requested that event: it is part of no request, and of no answer.
        """
        if actor in self.named:
            return
        seq = self.reader.live(self.stream(STORE_STREAM)).part(ACTORS).seqs.get(actor)
        if seq is None:
            assert self.command == len(self.events), "an actor is named in front of a command, not within it"
            seq = self.reader.head + 1 + self.command
            if NAMED_ACTORS_FROM + seq > ACTOR_NUMBER_MAX:
                raise LimitExceeded(
                    f"no number is left for the actor {actor!r} at seq {seq}; act under a name that the store knows"
                )
            self.add(STORE_STREAM, ActorNamed((), actor), BY_HOST)
            self.command += 1
        self.named[actor] = NAMED_ACTORS_FROM + seq

    def admit(self, mutation: Mutation) -> int | None:
        """Add a mutation as a command; return the place of its event, ``None`` for no change."""
        self.command = len(self.events)
        request = mutation.request
        if request is not None and any(request.id_hash == known.id_hash for known, _, _ in self.requests):
            raise Deferred
        place = _apply(self, mutation)
        if request is not None:
            self.requests.append((request, self.command, len(self.events)))
        return place

    def admit_all(self, transaction: Transaction) -> Sequence[int]:
        """Add a transaction as one command; return those of its places that are written.

        Raises ``WrongVersion`` if a stream moved that it read, or was closed that it found open.
        """
        keys = dict.fromkeys(transaction.keys)
        if self.touched and any(key in self.touched for key in (*keys, *transaction.reads)):
            raise Deferred
        if self.requests and any(known.id_hash in transaction.requests for known, _, _ in self.requests):
            raise Deferred
        if transaction.is_current is not None and self.events:
            raise Deferred
        streams = {key: self.stream(key) for key in keys}
        _check_current(self.reader, transaction, streams)
        places = _places(self.reader, transaction, streams)
        is_whole = len(places) == len(transaction.events)
        self.command = len(self.events)
        if places:
            for actor in sorted(transaction.named):
                self._name(actor)
        begin = self.command
        written = transaction.keys if is_whole else [transaction.keys[place] for place in places]
        for key, added in Counter(written).items():
            streams[key] = self._ready(key)
            self.touched[key] = self.touched.get(key, 0) + added
        self.streams += [streams[key] for key in written]
        self.origins += transaction.origins if is_whole else [transaction.origins[place] for place in places]
        self.is_citing = True
        self.commands += _commands(transaction, places, begin) if transaction.starts else [begin] * len(places)
        self.events += transaction.resolved(places, self.reader.head + 1 + begin)
        for request, wanted in transaction.requests.values():
            # Both are in order, and a batch has as many requests as events where each of an import's has its own.
            first, end = bisect_left(places, wanted.start), bisect_left(places, wanted.stop)
            self.requests.append((request, begin + first, begin + end))
        return places

    def truncate(self, length: int) -> None:
        """Take back what was added from place ``length`` on: the command that it belongs to was refused."""
        for stream in self.streams[length:]:
            self.touched[stream.key] -= 1
            if not self.touched[stream.key]:
                del self.touched[stream.key]
            self.opened.discard(stream.key)
        columns: tuple[list[Any], ...] = (self.streams, self.events, self.origins, self.commands)
        for column in columns:
            del column[length:]
        self.new_streams = {key: stream for key, stream in self.new_streams.items() if key in self.touched}
        left = NAMED_ACTORS_FROM + self.reader.head + 1 + length
        self.named = {actor: number for actor, number in self.named.items() if number < left}


def _places(reader: Reader, transaction: Transaction, streams: dict[str, Stream]) -> Sequence[int]:
    """Return the places to write: all but openings of streams that somebody else has opened meanwhile."""
    places: Sequence[int] = range(len(transaction.events))
    moot = {
        place
        for key, place in transaction.openings.items()
        if streams[key].version and fold.is_open(reader.live(streams[key]))
    }
    return [place for place in places if place not in moot] if moot else places


def _commands(transaction: Transaction, places: Sequence[int], begin: int) -> list[int]:
    """Return for each written event the place in the group at which its command begins."""
    commands: list[int] = []
    starts, upcoming = iter(transaction.starts), -1
    following: int | None = next(starts, None)
    for index, place in enumerate(places):
        while following is not None and place >= following:
            upcoming, following = index, next(starts, None)
        commands.append(begin + max(upcoming, 0))
    return commands


def _check_current(reader: Reader, transaction: Transaction, streams: dict[str, Stream]) -> None:
    """Raise ``WrongVersion`` where something that a transaction relies on is not so any more."""
    for request, _ in transaction.requests.values():
        with suppress(LookupError):
            answer = reader.answered(request)
            raise WrongVersion(
                "a request_id of this batch was answered while the batch was open; run the batch again",
                expected=NO_STREAM,
                actual=answer.stamp.version if answer else 0,
            )
    if transaction.is_current is not None and not transaction.is_current():
        raise WrongVersion("the memory moved on while it was looked at; look again", expected=EXISTS, actual=0)
    # A stream that was found open for an event that was then refused is no part of the batch.
    for key in (transaction.opened & streams.keys()) - transaction.openings.keys():
        if not fold.is_open(reader.live(streams[key])):
            raise WrongVersion(
                f"{name_of(key)} was dropped or emptied while a batch was open; run the batch again",
                expected=EXISTS,
                actual=streams[key].version,
            )
    for key, version in transaction.reads.items():
        stream = streams.get(key) or reader.find(key)
        actual = 0 if stream is None else stream.version
        if actual != version:
            raise WrongVersion(
                f"{name_of(key)} moved from version {version} to {actual} while a batch was open; run the batch again",
                expected=version,
                actual=actual,
            )
    before = transaction.erased_count
    if before is not None and (count := erased_count(reader)) != before:
        # An erasure moves no version of the streams that it blanks.
        raise WrongVersion(
            "events were erased while a batch was open that may have read them; run the batch again",
            expected=before,
            actual=count,
        )


# The commit of a group: its records, and the rows that go beside them.


class CommitSeed(NamedTuple):
    """Time and random bytes of a commit: drawn before the turn, so that no caller's code runs in it."""

    time_ns: int
    salt: bytes
    """The seed of the records' salts."""


class Commit(NamedTuple):
    """A group as the log takes it, with the stamps to fold its events under once it is durable."""

    first_seq: int
    records: list[Sealed]
    link: bytes
    stamps: list[Stamp]
    sizes: list[int]
    """The bytes of each event."""
    rows: list[Row]
    """The rows of a commit besides its records: of sources, and of requests."""


_BASE_FLAGS: Final = {event_type: FLAG_BASE if event_type in fold.BASE_TYPES else 0 for event_type in fold.TAGS}


def build_commit(group: Group, seed: CommitSeed, *, first_seq: int, after_ns: int, link: bytes) -> Commit:
    """Return the commit of a group's events, stamped from ``first_seq`` on and not before ``after_ns``."""
    # By columns, each made in one sweep: for a batch that is half the work of going from event to event.
    events, streams, origins, time_ns = group.events, group.streams, group.origins, max(seed.time_ns, after_ns)
    size, arrays = len(events), list(map(fold.encode, events))
    places = {stream: place for place, stream in enumerate(dict.fromkeys(streams))}
    heads = [StreamHead(stream.number, stream.version, stream.seq, stream.branch) for stream in places]
    owners = [places[stream] for stream in streams]
    counters = [count(head.version + 1) for head in heads]
    versions = [next(counters[owner]) for owner in owners]
    flags = [_BASE_FLAGS[type(event)] for event in events]
    causes = [origin.cause for origin in origins]
    actors = [origin.actor for origin in origins]
    numbers = [group.named[origin.actor] if origin.number is None else origin.number for origin in origins]
    given = [origin.occurred_ns for origin in origins]
    is_dated, occurred = given.count(None) < size, [time_ns] * size  # What was not said is the time of the commit.
    for place, occurred_ns in enumerate(given if is_dated else ()):
        if occurred_ns is not None:
            occurred[place] = occurred_ns
            flags[place] |= FLAG_OCCURRED
    seqs, names = range(first_seq, first_seq + size), [stream.name for stream in streams]
    stamps = list(map(Stamp, seqs, names, versions, repeat(time_ns), occurred, causes, actors, flags))
    marks = flags
    for place in set(group.commands):
        marks[place] |= MARK_COMMAND
    columns = Columns(heads, owners, marks, numbers, causes, occurred if is_dated else (), arrays)
    packed = pack(columns, first_seq=first_seq, time_ns=time_ns, command=0, seed=seed.salt, link=link)
    rows = derived_rows(events, stamps) if group.is_citing else []
    if group.requests:
        rows += request_rows(group, first_seq)
    return Commit(first_seq, packed.records, packed.link, stamps, list(map(len, arrays)), rows)


def bases_of(group: Group, commit: Commit) -> Iterator[tuple[int, Forked | Restored, str]]:
    """Return the events that start from the state of another place, by seq, with the kind of their stream."""
    for event, stamp, stream in zip(group.events, commit.stamps, group.streams, strict=True):
        if isinstance(event, (Forked, Restored)):
            yield stamp.seq, event, stream.kind


def derived_rows(events: Sequence[Event], stamps: Sequence[Stamp]) -> list[Row]:
    """Return an index row for each source that an event names: from the source to what was derived from it."""
    return [
        ("derived", SEQ.pack(source) + SEQ.pack(stamp.seq), b"")
        for event, stamp in zip(events, stamps, strict=True)
        if event.sources
        for source in event.sources
    ]


def request_rows(group: Group, first_seq: int) -> list[Row]:
    """Return a row for each request: its content as a keyed hash, and the seqs that answered it.

    Of one that changed nothing, the row has the head at which that was decided.
    """
    rows: list[Row] = []
    for request, begin, end in group.requests:
        first, last = first_seq + begin if end > begin else 0, first_seq + end - 1
        rows.append(("requests", request.id_hash, request.content_hash + SEQ.pack(first) + SEQ.pack(last)))
    return rows
