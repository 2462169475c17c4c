"""A scan of the log for a few events, by the content of their bytes, by their types or by their flags.

Records are searched as bytes, at a third of a microsecond per event; only matches are decoded.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from refold import fold
from refold.engine.reader import Reader, record_at
from refold.engine.spellings import Spelling
from refold.engine.streams import Stream, key_of, records_of, records_through, reports_damage
from refold.event import Event, Forked, Recorded, Restored
from refold.limits import PAGE_EVENTS
from refold.log.record import Record

_SCANNED_EVENTS = 4 * PAGE_EVENTS
"""Number of events to read at a time: a read costs more than the search in its result."""

_SPARSE = 25
"""If a stream has fewer than one in this many events, each is read alone, which takes that much longer per event."""


class EventFilter(NamedTuple):
    """The events to look for: those that contain one of the texts, are of one of the types, or have one of the flags.

    Without any of these, all events match.
    """

    texts: Sequence[bytes] = ()
    types: Sequence[type[Event]] = ()
    flags: int = 0


class Start(NamedTuple):
    """A state that a stream continued from: the seq of the event that says so, and the base's stream key and seq."""

    seq: int
    key: str
    base_seq: int


def starts_of(reader: Reader, recorded: Recorded) -> Iterator[Start]:
    """Yield the state that a stream continues from at an event, if any: of another stream, or its own."""
    event = recorded.event
    if isinstance(event, (Forked, Restored)) and event.base_stream:
        names = reader.names()
        base = key_of(names.branch_of(event.base_stream), names.stream(event.base_stream))
        yield Start(recorded.stamp.seq, base, event.base_seq)


def events_with(
    reader: Reader,
    sought: EventFilter,
    *,
    branch: int = 0,
    stream: str | None = None,
    after: int = 0,
    until: int | None = None,
    backwards: bool = False,
) -> Iterator[Recorded]:
    """Yield the matching events of a branch, or of one stream there, with ``after < seq <= until``, in order."""
    end = reader.current_head() if until is None else until
    if sought.types and not (sought.texts or sought.flags) and reader.types_written.isdisjoint(sought.types):
        return
    tags = frozenset(fold.TAGS[event_type] for event_type in sought.types)
    numbers: frozenset[int] | None = None
    key = "" if stream is None else key_of(branch, stream)
    if key:
        slot = reader.stream(key)
        if slot is None:
            return
        if slot.version * _SPARSE < end - after:
            yield from _sparse_events(reader, slot, sought, tags, after, end, backwards=backwards)
            return
        with reader.state_lock:
            numbers = frozenset(reader.streams.numbers(slot))
    bounds = reader.bounds(branch, end)
    for first, last in _spans(after, end, backwards=backwards):
        own = _own_seqs(reader, key, first, last) if key else range(first + 1, last + 1)
        if not own:
            continue
        # Events before and after the stream's own are of other streams.
        seqs = _page(reader, sought, tags, numbers, bounds, own[0] - 1, own[-1])
        with reader.state_lock:
            reader.check_open()
            found = reader.loader.recorded_events(seqs)
        yield from reversed(found) if backwards else found


def _own_seqs(reader: Reader, key: str, after: int, until: int) -> list[int]:
    with reader.state_lock:
        slot = reader.stream(key)
        return [] if slot is None else list(reader.loader.seqs_between(slot, after, min(until, slot.seq)))


def _sparse_events(
    reader: Reader,
    slot: Stream,
    sought: EventFilter,
    tags: AbstractSet[int],
    after: int,
    until: int,
    *,
    backwards: bool,
) -> Iterator[Recorded]:
    """Yield the matching events of a stream, each read alone, because the records in between hold other streams."""
    with reader.state_lock:
        seqs = list(reader.loader.seqs_between(slot, after, min(until, slot.seq)))
        if any(sought):
            texts, flags = sought.texts, sought.flags
            seqs = [
                each.seq
                for each in reader.log.events_at(seqs)
                if each.flags & flags or each.array[1] in tags or any(text in each.array for text in texts)
            ]
        recorded = reader.loader.recorded_events(seqs)
    yield from reversed(recorded) if backwards else recorded


def _spans(after: int, until: int, *, backwards: bool) -> Iterator[tuple[int, int]]:
    if not backwards:
        for begin in range(after, until, _SCANNED_EVENTS):
            yield begin, min(begin + _SCANNED_EVENTS, until)
    while backwards and until > after:
        yield max(until - _SCANNED_EVENTS, after), until
        until -= _SCANNED_EVENTS


@reports_damage
def _page(
    reader: Reader,
    sought: EventFilter,
    tags: AbstractSet[int],
    numbers: AbstractSet[int] | None,
    bounds: Mapping[int, int] | None,
    after: int,
    until: int,
) -> list[int]:
    """Return the seqs of the matching events with ``after < seq <= until``."""
    seqs: list[int] = []
    is_all = not any(sought)
    for record in records_of(reader.log, after, until):
        texts = [text for text in sought.texts if text in record.packed]
        if not (texts or tags or sought.flags or is_all):
            continue
        ends = {head.number: until if bounds is None else bounds.get(head.branch, 0) for head in record.heads}
        if numbers is not None and numbers.isdisjoint(ends):
            continue
        owners, among = record.numbers, range(record.count)
        own = among if numbers is None else [place for place in among if owners[place] in numbers]
        for place in own if is_all else sorted(_places(record, own, texts, tags, sought.flags)):
            seq = record.first_seq + place
            if after < seq <= min(until, ends[owners[place]]):
                seqs.append(seq)
    return seqs


@reports_damage
def seqs_with(reader: Reader, sought: EventFilter, *, after: int = 0) -> list[int]:
    """Return the seqs of the matching events after a seq, in every branch."""
    tags = frozenset(fold.TAGS[event_type] for event_type in sought.types)
    return [
        record.first_seq + place
        for record in records_through(reader.log, after, reader.current_head())
        if tags or sought.flags or any(text in record.packed for text in sought.texts)
        for place in sorted(_places(record, range(record.count), sought.texts, tags, sought.flags))
    ]


@reports_damage
def places_of(
    reader: Reader, types: Sequence[type[Event]], *, branch: int | None = None, after: int = 0, until: int | None = None
) -> Iterator[tuple[int, int, type[Event]]]:
    """Yield seq, stream number and type of the events of some types with ``after < seq <= until``, without decoding.

    They come in order, from one branch or, without ``branch``, from every one.
    """
    end = reader.current_head() if until is None else until
    if reader.types_written.isdisjoint(types):
        return
    kinds = {fold.TAGS[event_type]: event_type for event_type in types}
    bounds = None if branch is None else reader.bounds(branch, end)
    for record in records_through(reader.log, after, end):
        tags, first = record.tags, record.first_seq
        if kinds.keys().isdisjoint(tags):
            continue
        numbers = record.numbers
        if bounds is None:
            ends = dict.fromkeys(numbers, end)
        else:
            ends = {head.number: min(end, bounds.get(head.branch, 0)) for head in record.heads}
        for place, tag in enumerate(tags):
            if tag in kinds and after < first + place <= ends[numbers[place]]:
                yield first + place, numbers[place], kinds[tag]


@reports_damage
def seqs_spelling(reader: Reader, spelling: Spelling) -> list[int]:
    """Return the seqs of the events with a string that contains a text in any spelling, in every branch."""
    return [
        record.first_seq + place
        for record in records_through(reader.log, 0, reader.current_head())
        if spelling.may_be_in(record.packed)
        for place, array in enumerate(record.arrays)
        if spelling.is_in(array)
    ]


def _places(record: Record, own: Sequence[int], texts: Sequence[bytes], tags: AbstractSet[int], flags: int) -> set[int]:
    places = set[int]()
    if flags:
        marks = record.marks
        places.update(place for place in own if marks[place] & flags)
    if tags:
        known = record.tags
        places.update(place for place in own if known[place] in tags)
    if texts:
        arrays = record.arrays
        places.update(place for place in own if any(text in arrays[place] for text in texts))
    return places


def events_before(reader: Reader, seq: int) -> Iterator[tuple[int, Event]]:
    """Yield the seqs and the events of a stream before one of its events, nearest first, along their backlinks."""
    record = record_at(reader.log, seq)
    while True:
        place = seq - record.first_seq
        numbers = record.numbers
        number = numbers[place]
        for earlier in range(place - 1, -1, -1):
            if numbers[earlier] == number:
                yield record.first_seq + earlier, fold.decode(record.array(earlier))
        seq = next(head.seq for head in record.heads if head.number == number)
        if not seq:
            return
        record = record_at(reader.log, seq)
        yield seq, fold.decode(record.array(seq - record.first_seq))
