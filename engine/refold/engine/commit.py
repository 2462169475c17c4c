"""The commit of a group: its records, and the rows that go beside them."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr

from refold import fold
from refold.engine.streams import kind_of
from refold.engine.transaction import Group
from refold.event import ACTOR_NUMBERS, FLAG_OCCURRED, Event, Forked, Restored
from refold.log.protocol import Row
from refold.log.record import MARK_COMMAND, SEQ, Columns, Sealed, StreamHead, pack


class CommitSeed(NamedTuple):
    """Time and random bytes of a commit: drawn before the turn, so that no caller's code runs in it."""

    time_ns: int
    salt: bytes
    """The seed of the records' salts."""


class Commit(Struct, frozen=True, eq=False):
    """A group as the log takes it, and where each of its streams was before."""

    group: Group
    first_seq: int
    time_ns: int
    records: list[Sealed]
    link: bytes
    heads: list[StreamHead]
    """The streams, in the order of ``Draft.places``."""
    sizes: list[int]
    """The bytes of each event."""
    rows: list[Row]
    """The rows of a commit besides its records: of sources, and of requests."""

    def settle(self) -> None:
        """Complete the stamps, once the events are durable; it may be done again where it was cut off.

        The seq comes last: whoever sees that it is one sees the rest as well.
        """
        stamps, time_ns, first_seq = self.group.stamps, self.time_ns, self.first_seq
        for head, places in zip(self.heads, self.group.places.values(), strict=True):
            for version, place in enumerate(places, head.version + 1):
                stamp = stamps[place]
                force_setattr(stamp, "version", version)
                force_setattr(stamp, "time_ns", time_ns)
                if not stamp.flags & FLAG_OCCURRED:
                    force_setattr(stamp, "occurred_ns", time_ns)
                force_setattr(stamp, "seq", first_seq + place)


_CAUSE, _ACTOR, _FLAGS_OF = map(attrgetter, ("cause", "actor", "flags"))


def build_commit(group: Group, seed: CommitSeed, *, first_seq: int, after_ns: int, link: bytes) -> Commit:
    """Return the commit of a group's events, from ``first_seq`` on and not before ``after_ns``."""
    # By columns, each made in one sweep: for a batch that is half the work of going from event to event.
    stamps, time_ns = group.stamps, max(seed.time_ns, after_ns)
    arrays = list(map(fold.encode, group.events))
    streams = [group.streams[key] for key in group.places]
    heads = [StreamHead(stream.number, stream.version, stream.seq, stream.branch) for stream in streams]
    owners: Sequence[int] = ()
    if len(heads) > 1:
        index_of = {key: index for index, key in enumerate(group.places)}
        owners = list(map(index_of.__getitem__, group.keys))
    numbers = {**ACTOR_NUMBERS, **group.named} if group.named else ACTOR_NUMBERS
    marks = bytearray(map(_FLAGS_OF, stamps))
    for start in group.starts:
        if start < len(marks):
            marks[start] |= MARK_COMMAND
    occurred: Sequence[int] = ()
    if group.is_dated:  # What was not said is the time of the commit.
        occurred = [stamp.occurred_ns if stamp.flags & FLAG_OCCURRED else time_ns for stamp in stamps]
    actors, causes = list(map(numbers.__getitem__, map(_ACTOR, stamps))), list(map(_CAUSE, stamps))
    columns = Columns(heads, owners, marks, actors, causes, occurred, arrays)
    packed = pack(columns, first_seq=first_seq, time_ns=time_ns, command=0, seed=seed.salt, link=link)
    rows = derived_rows(group.events, first_seq) if group.is_citing else []
    if group.requests:
        rows += request_rows(group, first_seq)
    return Commit(group, first_seq, time_ns, packed.records, packed.link, heads, list(map(len, arrays)), rows)


def bases_of(group: Group, first_seq: int) -> Iterator[tuple[int, Forked | Restored, str]]:
    """Return the events that start from the state of another place, by seq, with the kind of their stream."""
    for seq, (key, event) in enumerate(zip(group.keys, group.events, strict=True), first_seq):
        if isinstance(event, (Forked, Restored)):
            yield seq, event, kind_of(key)


def derived_rows(events: Sequence[Event], first_seq: int) -> list[Row]:
    """Return an index row for each source that an event names: from the source to what was derived from it."""
    return [
        ("derived", SEQ.pack(source) + SEQ.pack(seq), b"")
        for seq, event in enumerate(events, first_seq)
        if event.sources
        for source in event.sources
    ]


def request_rows(group: Group, first_seq: int) -> list[Row]:
    """Return a row for each request: its content as a keyed hash, and the seqs that answered it.

    Of one that changed nothing, the row has the head at which that was decided.
    """
    rows: list[Row] = []
    for request, places in group.requests.values():
        first, last = first_seq + places.start if places else 0, first_seq + places.stop - 1
        rows.append(("requests", request.id_hash, request.content_hash + SEQ.pack(first) + SEQ.pack(last)))
    return rows
