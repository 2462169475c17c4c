"""Turning a group of events into records: header, salt, commitment, and the rows that go beside them."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import force_setattr

from refold import fold
from refold.engine.group import Group
from refold.engine.pending import Pending, place_of
from refold.entry import settle_entry
from refold.event import FLAG_BASE, FLAG_OCCURRED, Event, Forked, Restored, Stamp
from refold.limits import SALT_BYTES
from refold.store.protocol import Row
from refold.store.record import (
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

_FLAGS: Final = {event_type: FLAG_BASE if event_type in fold.BASE_TYPES else 0 for event_type in fold.TAGS}


class Batch(NamedTuple):
    """A group as the log takes it, with the stamps to fold its events under once it is durable."""

    first_seq: int
    records: list[bytes]
    commit: bytes
    link: bytes
    stamps: list[Stamp]


def build(group: Group, *, first_seq: int, time_ns: int, link: bytes, salts: bytes) -> Batch:
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


def bases(group: Group, batch: Batch) -> Iterator[tuple[int, Forked | Restored, str]]:
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
