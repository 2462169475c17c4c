"""Admission: what one caller wants is decided on the state that the commit sees, and joins the commit's group.

A caller is admitted alone or not at all. Where its decision depends on a stream that an earlier caller of the same
group touches, it waits for the next commit: then that stream's state is known.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from refold import checks, fold
from refold.engine import writer
from refold.engine.group import Group
from refold.engine.keys import name_of, parted
from refold.engine.pending import ANY, EXISTS, NO_STREAM, Decide, Pending, Request
from refold.engine.reading import Reading
from refold.engine.slots import Slot
from refold.engine.streams import STORE_STREAM
from refold.errors import WrongVersion
from refold.event import Event
from refold.views.settings import SETTINGS


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


def slot_of(reading: Reading, group: Group, name: str) -> Slot:
    """Return the slot of a stream; one that does not exist yet gets its number with its first event."""
    slot = reading.find(name) or group.born.get(name)
    if slot is None:
        branch, bare = parted(name)
        slot = Slot(0, bare, branch)
        slot.state = fold.empty(slot.kind)
    return slot


def _ready(reading: Reading, group: Group, slot: Slot) -> Slot:
    """Return a slot to which events can be added: with a number if it is new, with its state loaded if it is not."""
    if not slot.number:
        if slot.key in group.born:
            return group.born[slot.key]
        number = reading.streams.next_number + len(group.born)
        if slot.base is None:
            slot.number = number
        else:
            reading.live(slot)
            slot = slot.heir(number)
        group.born[slot.key] = slot
    elif slot.state is None:
        reading.live(slot)
    return slot


def admit_verb(reading: Reading, group: Group, verb: Verb) -> int | None:
    """Add a mutation's event to the group, behind what opens its stream; return its place, ``None`` for no change.

    Raises ``WrongVersion`` if the stream is not at the expected version, and whatever the decision raises.
    """
    command = len(group.events)
    if verb.request is not None and any(verb.request.id_hash == known.id_hash for known, _, _ in group.requests):
        raise Deferred
    slot = slot_of(reading, group, verb.name)
    if verb.expected != ANY:
        check_version(verb.name, slot, group.touched.get(verb.name, 0), verb.expected)
    event = _decided(reading, group, slot, verb)
    place: int | None = None
    if event is not None:
        if verb.opening is not None:
            _open(reading, group, slot, verb, command)
        if event.sources:
            group.is_citing = True
        place = group.add(_ready(reading, group, slot), event, verb.occurred_ns, command)
        if type(event) in fold.CLOSING:
            group.opened.discard(verb.name)
    if verb.request is not None:
        group.requests.append((verb.request, command, len(group.events)))
    return place


def _decided(reading: Reading, group: Group, slot: Slot, verb: Verb) -> Event | None:
    if isinstance(verb.make, Event):
        return verb.make
    if verb.name in group.touched:
        raise Deferred
    return verb.make(reading.live(slot))


def _open(reading: Reading, group: Group, slot: Slot, verb: Verb, command: int) -> None:
    """Add the event that opens a stream, unless it is open; a fork that was dropped is opened anew."""
    if verb.name in group.opened:
        return
    if verb.name in group.touched:
        raise Deferred
    if not fold.is_open(reading.live(slot)):
        assert verb.opening is not None, "a stream to open without its opening event"
        group.add(_ready(reading, group, slot), verb.opening, verb.occurred_ns, command)
    group.opened.add(verb.name)


def check_version(name: str, slot: Slot | None, added: int, expected: object) -> None:
    """Raise ``WrongVersion`` unless a stream, with what a commit has added to it, is at the expected version."""
    actual = (0 if slot is None else slot.version) + added
    fits = {NO_STREAM: actual == 0, EXISTS: actual > 0}.get(expected, expected == actual)  # type: ignore[call-overload]
    if not fits:
        message = (
            f"{name_of(name)} is at version {actual}, not at {checks.shown(expected)}; read it again and decide anew"
        )
        raise WrongVersion(message, expected=expected, actual=actual)


def admit_batch(reading: Reading, group: Group, pending: Pending, first_seq: int) -> Sequence[int]:
    """Add a batch's events to the group as one command; return those of its places that are written.

    Raises ``WrongVersion`` if a stream moved that the batch read, or was closed that the batch found open.
    """
    names = dict.fromkeys(pending.names)
    if group.touched and any(name in group.touched for name in (*names, *pending.reads)):
        raise Deferred
    if group.requests and any(known.id_hash in pending.requests for known, _, _ in group.requests):
        raise Deferred
    _check_unanswered(reading, pending)
    if pending.stands is not None:
        _check_standing(group, pending.stands)
    slots = {name: slot_of(reading, group, name) for name in names}
    _check_unmoved(reading, pending, slots)
    _check_unerased(reading, pending)
    places = _places(reading, pending, slots)
    command = len(group.events)
    _extend(reading, group, pending, places, slots)
    group.events += writer.resolved(pending, places, first_seq + command)
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
        message = "the memory moved on while it was looked at; look again"
        raise WrongVersion(message, expected=EXISTS, actual=0)


def _check_unanswered(reading: Reading, pending: Pending) -> None:
    """Raise ``WrongVersion`` if a request of the batch was answered since: it must not be written a second time."""
    for request, _ in pending.requests.values():
        with suppress(LookupError):
            answer = reading.answered(request)
            message = "a request_id of this batch was answered while the batch was open; run the batch again"
            raise WrongVersion(message, expected=NO_STREAM, actual=answer.stamp.version if answer else 0)


def _extend(reading: Reading, group: Group, pending: Pending, places: Sequence[int], slots: dict[str, Slot]) -> None:
    """Add all columns of a batch but the events, and its new streams in the order of their first events."""
    everything = len(places) == len(pending.events)
    names = pending.names if everything else [pending.names[place] for place in places]
    command = len(group.events)
    # Counted anew: openings that are left out stand among a batch's places, and are not written.
    for name, count in Counter(names).items():
        slots[name] = _ready(reading, group, slots[name])
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


def erased_count(reading: Reading) -> int:
    """Return how many events were erased: what was read when they were fewer may hold what is gone."""
    with reading.state_lock:
        slot = reading.find(STORE_STREAM)
        return 0 if slot is None else len(reading.live(slot).part(SETTINGS).erased)


def _check_unerased(reading: Reading, pending: Pending) -> None:
    """Raise ``WrongVersion`` if something was erased since the batch read: it moves no version of what it erases."""
    before = pending.erased_count
    if before is not None and (now := erased_count(reading)) != before:
        message = "events were erased while a batch was open that may have read them; run the batch again"
        raise WrongVersion(message, expected=before, actual=now)


def _check_unmoved(reading: Reading, pending: Pending, slots: dict[str, Slot]) -> None:
    # A stream that was found open for an event that was then refused is no part of the batch.
    for name in (pending.opened & slots.keys()) - pending.openings.keys():
        if not fold.is_open(reading.live(slots[name])):
            message = f"{name_of(name)} was dropped or emptied while a batch was open; run the batch again"
            raise WrongVersion(message, expected=EXISTS, actual=slots[name].version)
    for name, version in pending.reads.items():
        slot = slots.get(name) or reading.find(name)
        actual = 0 if slot is None else slot.version
        if actual != version:
            message = (
                f"{name_of(name)} moved from version {version} to {actual} while a batch was open; run the batch again"
            )
            raise WrongVersion(message, expected=version, actual=actual)


def _places(reading: Reading, pending: Pending, slots: dict[str, Slot]) -> Sequence[int]:
    """Return the places to write: all but openings of streams that somebody else has opened meanwhile."""
    moot = {
        place
        for name, place in pending.openings.items()
        if slots[name].version and fold.is_open(reading.live(slots[name]))
    }
    everything = range(len(pending.events))
    return [place for place in everything if place not in moot] if moot else everything
