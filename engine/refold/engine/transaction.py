"""Transactions: the events of one caller, decided on what the commit sees, and the records of a group of them.

A caller is admitted alone or not at all. Where its decision depends on a stream that an earlier caller of the same
group touches, it waits for the next commit: then that stream's state is known.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import force_setattr

from refold import checks, fold
from refold.engine.reader import Reader, Request
from refold.engine.streams import STORE_STREAM, Slot, name_of, parted
from refold.entry import Entry, settle_entry
from refold.errors import LimitExceeded, WrongVersion
from refold.event import FLAG_BASE, FLAG_OCCURRED, Event, Forked, Restored, Stamp
from refold.limits import BATCH_EVENTS_MAX, SALT_BYTES
from refold.log.protocol import Row
from refold.log.record import (
    COMMIT,
    FORMAT,
    FRESH,
    NO_LINK,
    PREFIX_BYTES,
    SCHEMA,
    SEQ,
    commit_to,
    in_branch,
    link_after,
)
from refold.message import Message, MessageAppended
from refold.views.journal import Note
from refold.views.store import SETTINGS

# What a batch is made of before it is written: events with their streams, and what they depend on.
#
# A batch keeps one open while user code runs. Its events have provisional seqs, -1 for the first, so that later ones
# can name them.

ANY: Final = "any"
NO_STREAM: Final = "no stream"
EXISTS: Final = "exists"

Decide: TypeAlias = Callable[[fold.State], Event | None]
"""Looks at a stream's state and returns the event to append, or ``None`` where nothing would change."""


Noted: TypeAlias = tuple[Event, Stamp]
"""An event that was noted, with its stamp: provisional while its batch is open."""


class Pending:
    """The events of one commit in columns, in order."""

    __slots__ = (
        "entries",
        "erased_count",
        "events",
        "is_torn",
        "later",
        "messages",
        "names",
        "notes",
        "occurred",
        "opened",
        "openings",
        "overlays",
        "places",
        "provisional",
        "reads",
        "requests",
        "stands",
        "starts",
    )

    def __init__(self) -> None:
        self.is_torn = False
        """Whether an interrupt cut off a mutation, so that the columns may not fit each other: it is not written."""
        self.names: list[str] = []
        self.events: list[Event] = []
        self.occurred: list[int | None] = []
        self.places: defaultdict[str, list[int]] = defaultdict(list)
        """Stream -> places of its events."""
        self.messages: list[Message] = []
        """Results that were handed out before their stamp was known; their seq is provisional."""
        self.entries: list[Entry] = []
        """Memories that were handed out before their seqs and times were known."""
        self.later: list[tuple[int, Callable[[Stamp], None]]] = []
        """What wants to know the stamp of an event, by its provisional seq."""
        self.notes: list[tuple[int, Note]] = []
        """Journal notes that were handed out before their time was known, by place."""
        self.openings: dict[str, int] = {}
        """Stream -> place of the event that opens it, left out if somebody else opens the stream first."""
        self.opened: set[str] = set()
        """Streams that need no opening any more, as far as this commit knows."""
        self.provisional: list[int] = []
        """Places of events that name a seq of this very commit."""
        self.overlays: dict[str, fold.State] = {}
        """Stream -> its state as the batch sees it, for streams that were read after the batch wrote to them."""
        self.reads: dict[str, int] = {}
        """Stream -> version at which the batch first read its state."""
        # How many events had been erased when it first read something; none where no erasure matters.
        self.erased_count: int | None = None
        self.requests: dict[bytes, tuple[Request, range]] = {}
        """Requests by the hash of their id, each with the places of its events."""
        self.starts: list[int] = []
        """Places at which a command of its own begins; none where all events are one command."""
        self.stands: Callable[[], bool] | None = None
        """Whether what a whole memory was looked at for still holds, asked just before the commit."""

    @property
    def has_results(self) -> bool:
        """Whether something was handed out that waits for its stamp."""
        return bool(self.messages or self.notes or self.entries or self.later)

    def add(self, name: str, event: Event, occurred_ns: int | None) -> int:
        """Add an event whose fields were all checked, so that encoding it cannot fail; return its place."""
        place = len(self.events)
        if place >= BATCH_EVENTS_MAX:
            raise LimitExceeded(
                f"a batch of more than BATCH_EVENTS_MAX = {BATCH_EVENTS_MAX} events; commit in several batches"
            )
        self.names.append(name)
        self.places[name].append(place)
        self.events.append(event)
        self.occurred.append(occurred_ns)
        return place

    def take(self, name: str, event: MessageAppended, occurred_ns: int | None) -> Message | None:
        """Add a message whose stream is open and of which nothing needs a look at any state: by far the most are.

        Returns the message as it is handed out, ``None`` where a look is needed.
        """
        if name not in self.opened or event.sources or self.overlays:
            return None
        try:
            place = self.add(name, event, occurred_ns)
            message = Message(event, Stamp(-place - 1, name_of(name), 0, 0, occurred_ns or 0))
            self.messages.append(message)
        except LimitExceeded:
            raise
        except BaseException:
            self.is_torn = True
            raise
        return message

    def stamp(self, place: int) -> Stamp:
        """Return the stamp that an event has while its batch is open."""
        return Stamp(-place - 1, name_of(self.names[place]), 0, 0, self.occurred[place] or 0)

    def noted(self, place: int) -> Noted:
        """Return an event with the stamp that it has while its batch is open."""
        return self.events[place], self.stamp(place)

    def truncate(self, length: int) -> None:
        """Take back what was added from place ``length`` on: the verb that added it failed."""
        for name in set(self.names[length:]):
            self.overlays.pop(name, None)
            self.places[name] = [place for place in self.places[name] if place < length]
            self.opened.discard(name)
        for column in (self.names, self.events, self.occurred):
            del column[length:]
        self.openings = {name: place for name, place in self.openings.items() if place < length}
        self.provisional = [place for place in self.provisional if place < length]


def place_of(provisional_seq: int) -> int:
    """Return the place in the batch that a provisional seq stands for."""
    return -provisional_seq - 1


# A group: the events of one commit in columns, those of several callers, each caller's a command of its own.


class Group:
    """What is about to be written, in order; events were checked before, so that encoding them cannot fail."""

    __slots__ = ("born", "commands", "events", "is_citing", "occurred", "opened", "requests", "slots", "touched")

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.events: list[Event] = []
        self.occurred: list[int | None] = []
        self.commands: list[int] = []
        """For each event, the place of the first event of its command: what is written whole or not at all."""
        self.touched: dict[str, int] = {}
        """Stream -> how many events the group holds of it."""
        self.opened: set[str] = set()
        """Streams that need no opening any more."""
        self.born: dict[str, Slot] = {}
        """Streams by name that have no number yet in the store."""
        self.is_citing = False
        """Whether an event may name sources."""
        self.requests: list[tuple[Request, int, int]] = []
        """Requests with the places of their events: from the first to behind the last."""

    def add(self, slot: Slot, event: Event, occurred_ns: int | None, command: int) -> int:
        """Add an event to the command that begins at place ``command``; return its place."""
        place = len(self.events)
        self.slots.append(slot)
        self.events.append(event)
        self.occurred.append(occurred_ns)
        self.commands.append(command)
        self.touched[slot.key] = self.touched.get(slot.key, 0) + 1
        return place

    def truncate(self, length: int) -> None:
        """Take back what was added from place ``length`` on: the command that it belongs to was refused."""
        for slot in self.slots[length:]:
            left = self.touched[slot.key] - 1
            self.touched[slot.key] = left
            if not left:
                del self.touched[slot.key]
            self.opened.discard(slot.key)
        for column in (self.slots, self.events, self.occurred, self.commands):
            del column[length:]
        self.born = {key: slot for key, slot in self.born.items() if key in self.touched}


# Turning a group of events into records: header, salt, commitment, and the rows that go beside them.

_FLAGS: Final = {event_type: FLAG_BASE if event_type in fold.BASE_TYPES else 0 for event_type in fold.TAGS}


class Batch(NamedTuple):
    """A group as the log takes it, with the stamps to fold its events under once it is durable."""

    first_seq: int
    records: list[bytes]
    commit: bytes
    link: bytes
    stamps: list[Stamp]


def build_records(group: Group, *, first_seq: int, time_ns: int, link: bytes, salts: bytes) -> Batch:
    """Return the records of a group's events, stamped from ``first_seq`` on.

    ``salts`` were drawn at once for all: a draw for each event could cost a switch of threads each time. Moves
    ``version_written`` and ``seq_written`` of the slots on.
    """
    events = group.events
    covered: list[bytes] = [COMMIT.pack(first_seq, first_seq + len(events), time_ns, NO_LINK)]
    records: list[bytes] = []
    stamps: list[Stamp] = []
    pack, tag_of, base_flags, commitment, encode, body_begin = (
        FRESH.pack,
        fold.TAGS,
        _FLAGS,
        commit_to,
        fold.encode,
        fold.body_begin,
    )
    seq, salt_begin = first_seq, 0
    for slot, event, happened_ns, command in zip(group.slots, events, group.occurred, group.commands, strict=True):
        kind = type(event)
        array, begin = encode(event), body_begin(event)
        salt = salts[salt_begin : salt_begin + SALT_BYTES]
        salt_begin += SALT_BYTES
        slot.version_written = version = slot.version_written + 1
        flags = base_flags[kind]
        if happened_ns is None:
            happened_ns = time_ns  # noqa: PLW2901 - what was not said is the time of the commit
        else:
            flags |= FLAG_OCCURRED
        # fmt: off
        header = pack(
            slot.number, version, time_ns, happened_ns, flags, tag_of[kind], slot.seq_written, first_seq + command,
            begin, 1, SCHEMA, FORMAT, commitment(salt, array[begin:]),
        )
        # fmt: on
        if slot.branch:
            header = in_branch(header, slot.branch)
        slot.seq_written = seq
        records.append(header + salt + array)
        covered += (header, array[PREFIX_BYTES:begin])
        stamps.append(Stamp(seq, slot.name, version, time_ns, happened_ns, 0, 0, flags))
        seq += 1
    link = link_after(link, covered)
    return Batch(first_seq, records, COMMIT.pack(first_seq, seq, time_ns, link), link, stamps)


def bases_of(group: Group, batch: Batch) -> Iterator[tuple[int, Forked | Restored, str]]:
    """Return the events that start from the state of another place, by seq, with the kind of their stream."""
    for event, stamp, slot in zip(group.events, batch.stamps, group.slots, strict=True):
        if isinstance(event, (Forked, Restored)):
            yield stamp.seq, event, slot.kind


def resolved(pending: Pending, places: Sequence[int], first_seq: int) -> list[Event]:
    """Return a batch's events at ``places``, provisional seqs replaced by those that they are about to get.

    The batch keeps its own: where the log turns out to have moved, it is resolved once more.
    """
    events = pending.events if len(places) == len(pending.events) else [pending.events[place] for place in places]
    if not pending.provisional:
        return events
    seq_of = {-(place + 1): first_seq + index for index, place in enumerate(places)}
    provisional = set(pending.provisional)
    return [
        fold.resolve(event, seq_of) if place in provisional else event
        for place, event in zip(places, events, strict=True)
    ]


def derived_rows(group: Group, batch: Batch) -> list[Row]:
    """Return an index row for each source that an event names: from the source to what was derived from it."""
    return [
        ("derived", SEQ.pack(source) + SEQ.pack(stamp.seq), b"")
        for event, stamp in zip(group.events, batch.stamps, strict=True)
        if event.sources
        for source in event.sources
    ]


def request_rows(group: Group, first_seq: int) -> list[Row]:
    """Return a row for each request: what was asked, as a keyed hash, and the seqs that answered it."""
    rows: list[Row] = []
    for request, begin, end in group.requests:
        first, last = (first_seq + begin, first_seq + end - 1) if end > begin else (0, 0)
        rows.append(("requests", request.id_hash, request.content_hash + SEQ.pack(first) + SEQ.pack(last)))
    return rows


def hand_out(pending: Pending, places: Sequence[int], events: Sequence[Event], stamps: Sequence[Stamp]) -> None:
    """Give the results that a batch handed out the stamps that their events got."""
    index_of = (
        {place: index for index, place in enumerate(places)}
        if pending.notes or pending.openings or pending.entries or pending.later
        else None
    )
    for message in pending.messages:
        place = place_of(message.stamp.seq)
        index = place if index_of is None else index_of[place]
        force_setattr(message, "stamp", stamps[index])
        if pending.provisional:
            force_setattr(message, "event", events[index])
    for seq, settle in pending.later:
        assert index_of is not None, "a result without its place"
        settle(stamps[index_of[place_of(seq)]])
    for entry in pending.entries:
        settle_entry(entry, lambda seq: stamps[index_of[place_of(seq)]].seq if index_of else seq, stamps[0].time_ns)
    for place, note in pending.notes:
        assert index_of is not None, "a note without its place"
        force_setattr(note, "time_ns", stamps[index_of[place]].time_ns)


class Deferred(Exception):
    """The decision needs a state that this very group is about to change."""


class Verb(NamedTuple):
    """One mutation: its stream, its event or the decision that makes it, and the options of the caller."""

    name: str
    make: Event | Decide
    opening: Event | None
    occurred_ns: int | None
    expected: object
    request: Request | None


def slot_of(reader: Reader, group: Group, name: str) -> Slot:
    """Return the slot of a stream; one that does not exist yet gets its number with its first event."""
    slot = reader.find(name) or group.born.get(name)
    if slot is None:
        branch, bare = parted(name)
        slot = Slot(0, bare, branch)
        slot.state = fold.empty(slot.kind)
    return slot


def _ready(reader: Reader, group: Group, slot: Slot) -> Slot:
    """Return a slot to which events can be added: with a number if it is new, with its state loaded if it is not."""
    if not slot.number:
        if slot.key in group.born:
            return group.born[slot.key]
        number = reader.streams.next_number + len(group.born)
        if slot.base is None:
            slot.number = number
        else:
            reader.live(slot)
            slot = slot.heir(number)
        group.born[slot.key] = slot
    elif slot.state is None:
        reader.live(slot)
    return slot


def admit_verb(reader: Reader, group: Group, verb: Verb) -> int | None:
    """Add a mutation's event to the group, behind what opens its stream; return its place, ``None`` for no change.

    Raises ``WrongVersion`` if the stream is not at the expected version, and whatever the decision raises.
    """
    command = len(group.events)
    if verb.request is not None and any(verb.request.id_hash == known.id_hash for known, _, _ in group.requests):
        raise Deferred
    slot = slot_of(reader, group, verb.name)
    if verb.expected != ANY:
        check_version(verb.name, slot, group.touched.get(verb.name, 0), verb.expected)
    event = _decided(reader, group, slot, verb)
    place: int | None = None
    if event is not None:
        if verb.opening is not None:
            _open(reader, group, slot, verb, command)
        if event.sources:
            group.is_citing = True
        place = group.add(_ready(reader, group, slot), event, verb.occurred_ns, command)
        if type(event) in fold.CLOSING:
            group.opened.discard(verb.name)
    if verb.request is not None:
        group.requests.append((verb.request, command, len(group.events)))
    return place


def _decided(reader: Reader, group: Group, slot: Slot, verb: Verb) -> Event | None:
    if isinstance(verb.make, Event):
        return verb.make
    if verb.name in group.touched:
        raise Deferred
    return verb.make(reader.live(slot))


def _open(reader: Reader, group: Group, slot: Slot, verb: Verb, command: int) -> None:
    """Add the event that opens a stream, unless it is open; a fork that was dropped is opened anew."""
    if verb.name in group.opened:
        return
    if verb.name in group.touched:
        raise Deferred
    if not fold.is_open(reader.live(slot)):
        assert verb.opening is not None, "a stream to open without its opening event"
        group.add(_ready(reader, group, slot), verb.opening, verb.occurred_ns, command)
    group.opened.add(verb.name)


def check_version(name: str, slot: Slot | None, added: int, expected: object) -> None:
    """Raise ``WrongVersion`` unless a stream, with what a commit has added to it, is at the expected version."""
    actual = (0 if slot is None else slot.version) + added
    fits = {NO_STREAM: actual == 0, EXISTS: actual > 0}.get(expected, expected == actual)  # type: ignore[call-overload]
    if not fits:
        raise WrongVersion(
            f"{name_of(name)} is at version {actual}, not at {checks.shown(expected)}; read it again and decide anew",
            expected=expected,
            actual=actual,
        )


def admit_batch(reader: Reader, group: Group, pending: Pending, first_seq: int) -> Sequence[int]:
    """Add a batch's events to the group as one command; return those of its places that are written.

    Raises ``WrongVersion`` if a stream moved that the batch read, or was closed that the batch found open.
    """
    names = dict.fromkeys(pending.names)
    if group.touched and any(name in group.touched for name in (*names, *pending.reads)):
        raise Deferred
    if group.requests and any(known.id_hash in pending.requests for known, _, _ in group.requests):
        raise Deferred
    _check_unanswered(reader, pending)
    if pending.stands is not None:
        _check_standing(group, pending.stands)
    slots = {name: slot_of(reader, group, name) for name in names}
    _check_unmoved(reader, pending, slots)
    _check_unerased(reader, pending)
    places = _places(reader, pending, slots)
    command = len(group.events)
    _extend(reader, group, pending, places, slots)
    group.events += resolved(pending, places, first_seq + command)
    for request, wanted in pending.requests.values():
        # Both are in order, and a batch has as many requests as events where each of an import's has its own.
        begin, end = bisect_left(places, wanted.start), bisect_left(places, wanted.stop)
        group.requests.append((request, command + begin, command + end))
    return places


def _check_standing(group: Group, stands: Callable[[], bool]) -> None:
    """Raise ``WrongVersion`` if what a whole memory was looked at for has changed since."""
    if group.events:
        raise Deferred
    if not stands():
        raise WrongVersion("the memory moved on while it was looked at; look again", expected=EXISTS, actual=0)


def _check_unanswered(reader: Reader, pending: Pending) -> None:
    """Raise ``WrongVersion`` if a request of the batch was answered since: it must not be written a second time."""
    for request, _ in pending.requests.values():
        with suppress(LookupError):
            answer = reader.answered(request)
            raise WrongVersion(
                "a request_id of this batch was answered while the batch was open; run the batch again",
                expected=NO_STREAM,
                actual=answer.stamp.version if answer else 0,
            )


def _extend(reader: Reader, group: Group, pending: Pending, places: Sequence[int], slots: dict[str, Slot]) -> None:
    """Add all columns of a batch but the events, and its new streams in the order of their first events."""
    everything = len(places) == len(pending.events)
    names = pending.names if everything else [pending.names[place] for place in places]
    command = len(group.events)
    # Counted anew: openings that are left out stand among a batch's places, and are not written.
    for name, count in Counter(names).items():
        slots[name] = _ready(reader, group, slots[name])
        group.touched[name] = group.touched.get(name, 0) + count
    group.slots += [slots[name] for name in names]
    group.occurred += pending.occurred if everything else [pending.occurred[place] for place in places]
    group.is_citing = True
    group.commands += _commands(pending, places, command) if pending.starts else [command] * len(places)


def _commands(pending: Pending, places: Sequence[int], command: int) -> list[int]:
    """Return for each written event the place in the group at which its command begins."""
    commands: list[int] = []
    starts, upcoming = iter(pending.starts), -1
    following: int | None = next(starts, None)
    for index, place in enumerate(places):
        while following is not None and place >= following:
            upcoming, following = index, next(starts, None)
        commands.append(command + max(upcoming, 0))
    return commands


def erased_count(reader: Reader) -> int:
    """Return how many events were erased: what was read when they were fewer may hold what is gone."""
    with reader.state_lock:
        slot = reader.find(STORE_STREAM)
        return 0 if slot is None else len(reader.live(slot).part(SETTINGS).erased)


def _check_unerased(reader: Reader, pending: Pending) -> None:
    """Raise ``WrongVersion`` if something was erased since the batch read: it moves no version of what it erases."""
    before = pending.erased_count
    if before is not None and (now := erased_count(reader)) != before:
        raise WrongVersion(
            "events were erased while a batch was open that may have read them; run the batch again",
            expected=before,
            actual=now,
        )


def _check_unmoved(reader: Reader, pending: Pending, slots: dict[str, Slot]) -> None:
    # A stream that was found open for an event that was then refused is no part of the batch.
    for name in (pending.opened & slots.keys()) - pending.openings.keys():
        if not fold.is_open(reader.live(slots[name])):
            raise WrongVersion(
                f"{name_of(name)} was dropped or emptied while a batch was open; run the batch again",
                expected=EXISTS,
                actual=slots[name].version,
            )
    for name, version in pending.reads.items():
        slot = slots.get(name) or reader.find(name)
        actual = 0 if slot is None else slot.version
        if actual != version:
            raise WrongVersion(
                f"{name_of(name)} moved from version {version} to {actual} while a batch was open; run the batch again",
                expected=version,
                actual=actual,
            )


def _places(reader: Reader, pending: Pending, slots: dict[str, Slot]) -> Sequence[int]:
    """Return the places to write: all but openings of streams that somebody else has opened meanwhile."""
    moot = {
        place
        for name, place in pending.openings.items()
        if slots[name].version and fold.is_open(reader.live(slots[name]))
    }
    everything = range(len(pending.events))
    return [place for place in everything if place not in moot] if moot else everything
