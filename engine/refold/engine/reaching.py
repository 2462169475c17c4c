"""What an erasure reaches: events derived from others, forks of what is erased, and every state that may hold it."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from refold import fold
from refold.engine.core import Engine
from refold.engine.keys import key_of, kind_of
from refold.engine.slots import Slot
from refold.engine.streams import STORE_STREAM, name_key
from refold.entry import MemoriesRecalled
from refold.event import FLAG_BASE, FLAG_ERASED, Erased, Event, Forked, Restored, SnapshotNamed
from refold.limits import PAGE_EVENTS
from refold.store.protocol import scan
from refold.store.record import SEQ, STAMP, header_of
from refold.views.settings import ERASED_PREFIX
from refold.views.skills import SkillsSelected, SkillUsed

_MENTIONING: Final[dict[str, tuple[type[Event], ...]]] = {
    "project": (MemoriesRecalled,),
    "skills": (SkillsSelected, SkillUsed),
}
"""Kinds of streams, and their events that name the conversation which they were recorded for."""


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


def planned(engine: Engine, asked: set[int], renamed: dict[int, str], *, derived: bool) -> Plan:
    """Return the plan to erase what was asked for, and what was derived from it or recorded for a renamed stream."""
    reached = set[int]()
    if derived:
        mentioned = _mentions_of(engine, renamed)
        reached = mentioned | _derived_from(engine, asked | mentioned)
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


def _mentions_of(engine: Engine, streams: Iterable[int]) -> set[int]:
    """Return the seqs at which something was selected, used or recalled for conversations, with what was asked there.

    That stands in other streams and names the conversation, which may have had no message yet to cite.
    """
    found = set[int]()
    for slot in [engine.streams.at_number(number) for number in streams]:
        _, _, conversation = slot.name.partition("/")
        for kind, types in _MENTIONING.items():
            if engine.tags & {fold.TAGS[each] for each in types}:
                for name in engine.streams.names(slot.branch, kind):
                    found |= _mentions_in(engine, key_of(slot.branch, name), types, conversation)
    return found


def _mentions_in(engine: Engine, key: str, types: tuple[type[Event], ...], conversation: str) -> set[int]:
    """Return the seqs of a stream's events of these types that name a conversation; no other body is decoded."""
    found = set[int]()
    tags = {fold.TAGS[each] for each in types}
    slot = engine.streams.find(key)
    for page in pages([] if slot is None else own_seqs(engine, slot.number)):
        records = zip(page, engine.log.read_at(page), strict=True)
        seqs = [seq for seq, record in records if header_of(record).tag in tags]
        for event, stamp in engine.loader.recorded(seqs):
            if isinstance(event, types) and getattr(event, "conversation", None) == conversation:
                found.add(stamp.seq)
    return found


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
    for number, name, branch in _branched(engine, slot):
        alive[f"{name} in the fork {branch!r} of the memory"] = None
        if number:
            family.add(number)
    for base in bases:
        if base.base_stream in family and base.number not in family:
            other = engine.streams.at_number(base.number)
            if fold.is_open(engine.live(other)):
                alive[other.name] = None
            if base.is_fork:
                family.add(base.number)
    return sorted(family), list(alive)


def _branched(engine: Engine, slot: Slot) -> Iterator[tuple[int, str, str]]:
    """Return number, name and branch of the streams that forks of the memory have in the place of this one."""
    for branch, forked in enumerate(engine.loader.branches(), 1):
        other = engine.streams.find(key_of(branch, slot.name))
        if other is not None and slot.number in list(engine.streams.numbers(other)) and other is not slot:
            yield other.number, slot.name, forked.name


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
        for own, *_ in _branched(engine, engine.streams.at_number(number)):
            base = engine.streams.at_number(own).base if own else None
            if base is not None and begin <= base[1]:
                found[own] = min(found.get(own, engine.head), *own_seqs(engine, own))
