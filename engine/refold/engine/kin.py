"""Which streams continue from which: forks, restores, and the streams of forks of a whole memory."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from refold import fold
from refold.engine.reader import Reader
from refold.engine.streams import Stream, key_of, name_key, records_through
from refold.event import FLAG_BASE, Forked, Restored
from refold.limits import PAGE_EVENTS
from refold.log.record import EventBytes


class Base(NamedTuple):
    """An event that continues from a place in another stream, or in its own."""

    seq: int
    number: int
    is_fork: bool
    base_stream: int
    base_seq: int


def read_bases(reader: Reader) -> list[Base]:
    """Return all forks and restores of the log, in order; skip the search if none was ever written."""
    if not reader.tags & {fold.TAGS[kind] for kind in fold.BASE_TYPES}:
        return []
    bases: list[Base] = []
    for record in records_through(reader.log, 0, reader.head):
        for place in [place for place, mark in enumerate(record.marks) if mark & FLAG_BASE]:
            seq, number, *_, packed = record.event(place)
            event = fold.decode(packed)
            if isinstance(event, (Forked, Restored)):
                bases.append(Base(seq, number, isinstance(event, Forked), event.base_stream, event.base_seq))
    return bases


def family(
    reader: Reader, stream: Stream, bases: Sequence[Base], without: Collection[int] = ()
) -> tuple[list[int], list[str]]:
    """Return the numbers of a stream and its forks, and the names of the live streams that continue from them.

    The names of the streams ``without`` are left out.
    A branch's own stream continues from the one that it inherited. A conversation that was only restored from one of
    these keeps its own events.
    """
    family = {stream.number}
    alive: dict[str, None] = {}
    for heir, branch in heirs(reader, stream):
        if heir.number not in without:
            alive[f"{stream.name} in the fork {branch!r} of the memory"] = None
        if heir.number:
            family.add(heir.number)
    for base in bases:
        if base.base_stream in family and base.number not in family:
            other = reader.streams.at_number(base.number)
            if base.number not in without and fold.is_open(reader.live(other)):
                alive[other.name] = None
            if base.is_fork:
                family.add(base.number)
    return sorted(family), list(alive)


def heirs(reader: Reader, stream: Stream) -> Iterator[tuple[Stream, str]]:
    """Yield the streams that forks of the memory have in place of a stream, each with the name of its fork."""
    for branch, forked in enumerate(reader.loader.branches(), 1):
        other = reader.streams.find(key_of(branch, stream.name))
        if other is not None and stream.number in list(reader.streams.numbers(other)) and other is not stream:
            yield other, forked.name


def own_number(reader: Reader, branch: int, name: str) -> int:
    """Return the number of the stream with a branch's own events under a name, or 0 if it has none."""
    return int.from_bytes(reader.log.row("names", name_key(branch, name)) or b"", "big")


def relatives(reader: Reader, bases: Sequence[Base], number: int) -> set[int]:
    """Return the numbers of all streams that share events with one, and its own."""
    numbers, waiting = {number}, [number]
    branches = range(len(reader.loader.branches()) + 1)
    while waiting:
        number = waiting.pop()
        name = reader.streams.name_of(number)
        beside = {own_number(reader, branch, name) for branch in branches}
        for base in bases:
            beside |= {base.number, base.base_stream} if number in {base.number, base.base_stream} else set()
        beside.discard(0)  # A branch without the stream, and the base of what went on from nothing.
        waiting += beside - numbers
        numbers |= beside
    return numbers


def own_seqs(reader: Reader, number: int) -> list[int]:
    """Return the seqs of a stream's own events."""
    stream = reader.streams.at_number(number)
    return list(reader.streams.own_seqs(stream, 0, stream.seq))


def stored_events(reader: Reader, seqs: Iterable[int]) -> Iterator[EventBytes]:
    """Yield the events at the seqs as they are stored, in order."""
    for page in pages(sorted(seqs)):
        yield from reader.log.events_at(page)


def pages(seqs: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the seqs in pages."""
    for begin in range(0, len(seqs), PAGE_EVENTS):
        yield seqs[begin : begin + PAGE_EVENTS]


def affected_streams(reader: Reader, seqs: Sequence[int], bases: Sequence[Base]) -> dict[int, int]:
    """Return, by stream number, the seq from which its state may hold data of the events at the seqs."""
    begins: dict[int, int] = {}
    for stored in stored_events(reader, seqs):
        begins.setdefault(stored.number, stored.seq)
    before: dict[int, int] = {}
    while begins != before:
        before = dict(begins)
        _reach_by_bases(begins, bases)
        _reach_by_branches(reader, begins)
    return begins


def _reach_by_bases(begins: dict[int, int], bases: Sequence[Base]) -> None:
    for base in bases:
        if base.base_stream in begins and begins[base.base_stream] <= base.base_seq:
            begins[base.number] = min(begins.get(base.number, base.seq), base.seq)


def _reach_by_branches(reader: Reader, begins: dict[int, int]) -> None:
    streams = reader.streams
    for number, begin in list(begins.items()):
        name = streams.name_of(number)
        for branch in range(1, len(reader.loader.branches()) + 1):
            own = own_number(reader, branch, name)
            heir = streams.at_number(own) if own and own != number else None
            if heir is None or heir.base is None or number not in streams.numbers(heir):
                continue
            if begin <= heir.base[1]:
                begins[own] = min(begins.get(own, reader.head), *own_seqs(reader, own))
