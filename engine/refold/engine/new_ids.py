"""New ids for those that callers chose, such as the ids of tool calls, in events that are erased.

A call and its answer find each other by such an id, and a message on a board replaces the one with its id. So an id
goes from the erased events of a stream, and of those that share its events, only if no event that stays has it. All of
them then get the same new one, which leaves the groups of the fold as they were.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from refold import fold
from refold.engine.kin import Base, own_seqs, pages, relatives
from refold.engine.reader import Reader
from refold.engine.spellings import strings_of
from refold.event import FLAG_ERASED
from refold.log.record import EventBytes
from refold.views.store import ERASED_PREFIX

_GIVING: Final = frozenset(fold.TAGS[kind] for kind in fold.TAGS if kind.given_ids)
"""The tags of events with ids that callers chose."""

NewIds = Mapping[int, Mapping[str, str]]
"""For the seq of an event, each of its ids that goes, and what takes its place."""


def new_ids(reader: Reader, seqs: Collection[int], bases: Sequence[Base], is_wanted: Callable[[str], bool]) -> NewIds:
    """Return the new ids of the events to be erased, and of those erased earlier that share an id with them."""
    wanted: dict[int, set[str]] = {}
    for page in pages(sorted(seqs)):
        for each in reader.log.events_at(page):
            ids = set(filter(is_wanted, _ids_of(each)))
            if ids:
                wanted.setdefault(each.number, set()).update(ids)
    renamed: dict[int, dict[str, str]] = {}
    while wanted:
        kin = relatives(reader, bases, next(iter(wanted)))
        ids = set[str]().union(*(wanted.pop(number) for number in wanted.keys() & kin))
        renamed |= _ids_in_family(reader, sorted(kin), ids, seqs)
    return renamed


def _ids_in_family(
    reader: Reader, numbers: Sequence[int], ids: set[str], seqs: Collection[int]
) -> dict[int, dict[str, str]]:
    """Return the new ids in the events of streams that share events."""
    holders: dict[int, set[str]] = {}
    taken = set[bytes]()
    goes = {each.encode(): each for each in ids}
    for event in _events_of(reader, numbers):
        if not any(each in event.array for each in (ERASED_PREFIX.encode(), *goes)):
            continue
        strings = set(strings_of(msgspec.msgpack.decode(event.array)))
        taken |= {string for string in strings if string.startswith(ERASED_PREFIX.encode())}
        packed = strings & goes.keys()
        if packed and (event.seq in seqs or event.flags & FLAG_ERASED):
            holders[event.seq] = {goes[each] for each in packed}
        elif packed:
            goes = {each: own_id for each, own_id in goes.items() if each not in packed}
    fresh: dict[str, str] = {}
    renamed: dict[int, dict[str, str]] = {}
    for seq, own_ids in sorted(holders.items()):
        for own_id in sorted(own_ids.intersection(goes.values())):
            if own_id not in fresh:
                fresh[own_id] = _fresh_id(seq, taken)
            renamed.setdefault(seq, {})[own_id] = fresh[own_id]
    return renamed


def _fresh_id(seq: int, taken: set[bytes]) -> str:
    """Return an id named after the first event that has it, and add it to those that are taken."""
    names = (f"{ERASED_PREFIX}{seq}{f'-{place}' if place else ''}" for place in range(len(taken) + 1))
    name = next(each for each in names if each.encode() not in taken)
    taken.add(name.encode())
    return name


def _ids_of(event: EventBytes) -> Iterator[str]:
    """Yield the ids that the caller of an event chose, except those that an erasure made."""
    if fold.tag_of(event.array) in _GIVING:
        for each in fold.given_ids(fold.decode(event.array)):
            if each and not (event.flags & FLAG_ERASED and each.startswith(ERASED_PREFIX)):
                yield each


def _events_of(reader: Reader, numbers: Sequence[int]) -> Iterator[EventBytes]:
    for number in numbers:
        for page in pages(own_seqs(reader, number)):
            yield from reader.log.events_at(page)
