"""What an erasure reaches: events derived from others, forks of what is erased, and every state that may hold it."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from refold import fold
from refold.engine.core import Engine
from refold.engine.keys import key_of, kind_of
from refold.engine.slots import Slot
from refold.engine.streams import STORE_STREAM, name_key
from refold.event import FLAG_BASE, FLAG_ERASED, Erased, Event, Forked, Restored, SnapshotNamed
from refold.limits import PAGE_EVENTS
from refold.store.protocol import scan
from refold.store.record import SEQ, STAMP, header_of
from refold.views.settings import ERASED_PREFIX

_MENTIONING: Final = {
    kind.name: frozenset(fold.TAGS[each] for each in kind.handlers if each.mentions is not Event.mentions)
    for kind in fold.KINDS.values()
}
"""Kinds of streams, and the tags of their events that name conversations."""


class Base(NamedTuple):
    """An event that goes on from a place of another stream, or of its own."""

    seq: int
    number: int
    is_fork: bool
    base_stream: int
    base_seq: int


class Plan(NamedTuple):
    """What an erasure is to reach: the events asked for, those derived from them, and streams to rename by number."""

    asked: list[int]
    derived: list[int]
    renamed: dict[int, str]
    """Number of a stream -> the name that it gets."""


def planned(engine: Engine, asked: set[int], renamed: dict[int, str], mentioned: set[int], *, derived: bool) -> Plan:
    """Return the plan to erase what was asked for, and with ``derived`` what names it or was derived from either."""
    reached = mentioned | _derived_from(engine, asked | mentioned) if derived else set[int]()
    return Plan(unerased(engine, asked), unerased(engine, reached - asked), renamed)


def _derived_from(engine: Engine, seqs: Iterable[int]) -> set[int]:
    """Return the seqs of all events that were derived from the given ones, directly or through others."""
    found: set[int] = set()
    waiting = list(seqs)
    while waiting:
        source = SEQ.pack(waiting.pop())
        for key, _ in scan(engine.log, "derived", source, PAGE_EVENTS):
            (seq,) = SEQ.unpack(key[SEQ.size :])
            if seq not in found:
                found.add(seq)
                waiting.append(seq)
    return found


def mentions_of(engine: Engine, branch: int, conversation: str) -> set[int]:
    """Return the seqs of a branch's own events in other streams that name a conversation."""
    found = set[int]()
    for kind, tags in _MENTIONING.items():
        if engine.tags & tags:
            for name in engine.streams.names(branch, kind):
                slot = engine.streams.find(key_of(branch, name))
                seqs = own_seqs(engine, slot.number) if slot is not None and slot.number else []
                found |= {seq for page in pages(seqs) for seq in _mentions_in(engine, page, tags, conversation)}
    return found


def _mentions_in(engine: Engine, page: Sequence[int], tags: Collection[int], conversation: str) -> Iterator[int]:
    """Yield the seqs of the events with these tags that name a conversation; few others are decoded."""
    name = conversation.encode()
    records = zip(page, engine.log.read_at(page), strict=True)
    seqs = [seq for seq, record in records if name in record and header_of(record).tag in tags]
    for event, stamp in engine.loader.recorded(seqs):
        if conversation in event.mentions():
            yield stamp.seq


def unerased(engine: Engine, seqs: Iterable[int]) -> list[int]:
    """Return those of the seqs, in order, whose events still have a body to erase."""
    left: list[int] = []
    for page in pages(sorted(seqs)):
        for seq, record in zip(page, engine.log.read_at(page), strict=True):
            header = header_of(record)
            if not header.flags & FLAG_ERASED and header.tag != fold.TAGS[Erased]:
                left.append(seq)
    return left


def pages(seqs: Sequence[int]) -> Iterator[Sequence[int]]:
    """Return the seqs in pages."""
    for begin in range(0, len(seqs), PAGE_EVENTS):
        yield seqs[begin : begin + PAGE_EVENTS]


# Who goes on from what.


def bases(engine: Engine) -> list[Base]:
    """Return all forks and restores of the log, in order; none is looked for where none was ever written."""
    if not engine.tags & {fold.TAGS[kind] for kind in fold.BASE_TYPES}:
        return []
    found: list[Base] = []
    after = 0
    while after < engine.head:
        records = engine.log.read(after + 1, min(PAGE_EVENTS, engine.head - after))
        for seq, record in enumerate(records, after + 1):
            number, *_, flags, _ = STAMP.unpack_from(record)
            if flags & FLAG_BASE:
                event = engine.loader.recorded([seq])[0].event
                if isinstance(event, (Forked, Restored)):
                    found.append(Base(seq, number, isinstance(event, Forked), event.base_stream, event.base_seq))
        after += len(records)
    return found


def family(engine: Engine, slot: Slot, bases: Sequence[Base]) -> tuple[list[int], list[str]]:
    """Return a stream with its forks, by number, and the names of those streams that live on from them.

    A branch's own stream goes on from the one it inherited; a conversation that was only restored from one of these
    keeps its own events.
    """
    family = {slot.number}
    alive: dict[str, None] = {}
    for heir, branch in heirs(engine, slot):
        alive[f"{slot.name} in the fork {branch!r} of the memory"] = None
        if heir.number:
            family.add(heir.number)
    for base in bases:
        if base.base_stream in family and base.number not in family:
            other = engine.streams.at_number(base.number)
            if fold.is_open(engine.live(other)):
                alive[other.name] = None
            if base.is_fork:
                family.add(base.number)
    return sorted(family), list(alive)


def heirs(engine: Engine, slot: Slot) -> Iterator[tuple[Slot, str]]:
    """Yield what forks of the memory have in the place of a stream, each with the name of the fork."""
    for branch, forked in enumerate(engine.loader.branches(), 1):
        other = engine.streams.find(key_of(branch, slot.name))
        if other is not None and slot.number in list(engine.streams.numbers(other)) and other is not slot:
            yield other, forked.name


def new_name(engine: Engine, streams: Sequence[int], number: int) -> str:
    """Return what a stream is called once it is erased; that of a branch is called as the one it goes on from."""
    slot = engine.streams.at_number(number)
    while slot.base is not None and slot.base[0] in streams:
        slot = engine.streams.at_number(slot.base[0])
    name = f"{kind_of(slot.name)}/{ERASED_PREFIX}{slot.number}"
    while engine.log.row("names", name_key(slot.branch, name)) is not None:
        name += "-again"
    return name


def own_seqs(engine: Engine, number: int) -> list[int]:
    """Return the seqs of a stream's own events."""
    slot = engine.streams.at_number(number)
    return list(engine.streams.own_seqs(slot, 0, slot.seq))


def snapshots_of(engine: Engine, streams: Collection[int]) -> set[int]:
    """Return the seqs at which states of the streams got names."""
    found = set[int]()
    for branch in range(len(engine.loader.branches()) + 1):
        slot = engine.streams.find(key_of(branch, STORE_STREAM))
        for number in [] if slot is None else list(engine.streams.numbers(slot)):
            for event, stamp in engine.loader.recorded(own_seqs(engine, number)):
                if isinstance(event, SnapshotNamed) and event.base_stream in streams:
                    found.add(stamp.seq)
    return found


def affected(engine: Engine, seqs: Sequence[int], bases: Sequence[Base]) -> dict[int, int]:
    """Return from which seq on the state of which stream may hold what the events at the seqs held."""
    found: dict[int, int] = {}
    for page in pages(seqs):
        for seq, record in zip(page, engine.log.read_at(page), strict=True):
            found.setdefault(STAMP.unpack_from(record)[0], seq)
    before: dict[int, int] = {}
    while found != before:
        before = dict(found)
        _reach_by_bases(found, bases)
        _reach_by_branches(engine, found)
    return found


def _reach_by_bases(found: dict[int, int], bases: Sequence[Base]) -> None:
    for base in bases:
        if base.base_stream in found and found[base.base_stream] <= base.base_seq:
            found[base.number] = min(found.get(base.number, base.seq), base.seq)


def _reach_by_branches(engine: Engine, found: dict[int, int]) -> None:
    for number, begin in list(found.items()):
        for heir, _ in heirs(engine, engine.streams.at_number(number)):
            own = heir.number
            if own and heir.base is not None and begin <= heir.base[1]:
                found[own] = min(found.get(own, engine.head), *own_seqs(engine, own))
