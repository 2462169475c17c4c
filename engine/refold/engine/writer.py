"""Turning pending events into records: header, salt, commitment, and the rows that go beside them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import force_setattr

from refold import fold
from refold.engine.pending import Pending, place_of
from refold.engine.streams import Slot
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
    link_after,
)

FLAGS: Final = {event_type: FLAG_BASE if event_type in fold.BASE_TYPES else 0 for event_type in fold.TAGS}


class Batch(NamedTuple):
    """A commit as the log takes it, with the events and stamps to fold once it is durable."""

    first_seq: int
    records: list[bytes]
    commit: bytes
    link: bytes
    places: Sequence[int]
    events: list[Event]
    stamps: list[Stamp]


def build(
    pending: Pending,
    places: Sequence[int],
    slots: dict[str, Slot],
    *,
    first_seq: int,
    time_ns: int,
    link: bytes,
    random_bytes: Callable[[int], bytes],
) -> Batch:
    """Return the records of the pending events at ``places``, stamped from ``first_seq`` on.

    One clock reading and one draw of random bytes serve the whole commit: each further one could cost a switch of
    threads.
    """
    names, events, occurred = _columns(pending, places)
    arrays = list(map(fold.encode, events))
    begins = map(fold.body_begin, events)
    drawn = random_bytes(SALT_BYTES * len(events))
    salts = [drawn[at : at + SALT_BYTES] for at in range(0, len(drawn), SALT_BYTES)]
    heads = {name: [slot.number, slot.version, slot.seq] for name, slot in slots.items()}
    records: list[bytes] = []
    covered: list[bytes] = [COMMIT.pack(first_seq, first_seq + len(events), time_ns, NO_LINK)]
    stamps: list[Stamp] = []
    pack, tag_of, base_flags, commitment = FRESH.pack, fold.TAGS, FLAGS, commit_to
    seq = first_seq
    for name, event, happened_ns, array, begin, salt in zip(
        names, events, occurred, arrays, begins, salts, strict=True
    ):
        head = heads[name]
        number, version, prev_seq = head
        version += 1
        head[1], head[2] = version, seq
        flags = base_flags[type(event)]
        if happened_ns is None:
            happened_ns = time_ns  # noqa: PLW2901 - what was not said is the time of the commit
        else:
            flags |= FLAG_OCCURRED
        # fmt: off
        header = pack(
            number, version, time_ns, happened_ns, flags, tag_of[type(event)], prev_seq, first_seq,
            begin, 1, SCHEMA, FORMAT, commitment(salt, array[begin:]),
        )
        # fmt: on
        records.append(header + salt + array)
        covered += (header, array[PREFIX_BYTES:begin])
        stamps.append(Stamp(seq, name, version, time_ns, happened_ns, 0, 0, flags))
        seq += 1
    link = link_after(link, covered)
    return Batch(first_seq, records, COMMIT.pack(first_seq, seq, time_ns, link), link, places, events, stamps)


def _columns(pending: Pending, places: Sequence[int]) -> tuple[list[str], list[Event], list[int | None]]:
    """Return the streams, events and times of the pending events at ``places``."""
    if len(places) == len(pending.events):
        return pending.names, pending.events, pending.occurred
    names = [pending.names[place] for place in places]
    return names, [pending.events[place] for place in places], [pending.occurred[place] for place in places]


def tags(batch: Batch) -> set[int]:
    """Return the tags of a batch's events."""
    return {fold.TAGS[event_type] for event_type in set(map(type, batch.events))}


def bases(batch: Batch) -> Iterator[tuple[int, Forked | Restored]]:
    """Return the events of a batch that start from the state of another place, by seq."""
    for event, stamp in zip(batch.events, batch.stamps, strict=True):
        if isinstance(event, (Forked, Restored)):
            yield stamp.seq, event


def resolve(pending: Pending, places: Sequence[int], first_seq: int) -> None:
    """Replace the provisional seqs in pending events by the seqs they are about to get."""
    if not pending.provisional:
        return
    seq_of = {-(place + 1): first_seq + index for index, place in enumerate(places)}
    for place in pending.provisional:
        pending.events[place] = fold.resolve(pending.events[place], seq_of)


def derived_rows(batch: Batch) -> list[Row]:
    """Return an index row for each source that an event names: from the source to what was derived from it."""
    return [
        ("derived", SEQ.pack(source) + SEQ.pack(stamp.seq), b"")
        for event, stamp in zip(batch.events, batch.stamps, strict=True)
        if event.sources
        for source in event.sources
    ]


def request_rows(pending: Pending, batch: Batch) -> list[Row]:
    """Return a row for each request: what was asked, as a keyed hash, and the seqs that answered it."""
    if not pending.requests:
        return []
    seq_of = {place: stamp.seq for place, stamp in zip(batch.places, batch.stamps, strict=True)}
    rows: list[Row] = []
    for request, places in pending.requests.values():
        seqs = [seq_of[place] for place in places if place in seq_of]
        first, last = (seqs[0], seqs[-1]) if seqs else (0, 0)
        rows.append(("requests", request.id_hash, request.content_hash + SEQ.pack(first) + SEQ.pack(last)))
    return rows


def hand_out(pending: Pending, batch: Batch) -> None:
    """Give the results that a batch handed out the stamps that their events got."""
    index_of = {place: index for index, place in enumerate(batch.places)} if pending.notes or pending.openings else None
    for message in pending.messages:
        place = place_of(message.stamp.seq)
        index = place if index_of is None else index_of[place]
        force_setattr(message, "stamp", batch.stamps[index])
        if pending.provisional:
            force_setattr(message, "event", batch.events[index])
    for place, note in pending.notes:
        assert index_of is not None, "a note without its place"
        force_setattr(note, "time_ns", batch.stamps[index_of[place]].time_ns)
