"""The companions of a commit's events: the states that they start from, and the rows beside their records."""

from collections.abc import Iterable, Iterator, Sequence

from refold.engine.reader import Request
from refold.engine.streams import kind_of
from refold.event import Event, Forked, Restored
from refold.log.protocol import Row
from refold.log.record import SEQ


def bases_of(
    keys: Sequence[str], events: Sequence[Event], first_seq: int
) -> Iterator[tuple[int, Forked | Restored, str]]:
    """Return the events that start from a state elsewhere, each with its seq and the kind of its stream."""
    for seq, (key, event) in enumerate(zip(keys, events, strict=True), first_seq):
        if isinstance(event, (Forked, Restored)):
            yield seq, event, kind_of(key)


def derived_rows(events: Sequence[Event], first_seq: int) -> list[Row]:
    """Return an index row for each source that an event names, from the source to the event derived from it."""
    return [
        ("derived", SEQ.pack(source) + SEQ.pack(seq), b"")
        for seq, event in enumerate(events, first_seq)
        if event.sources
        for source in event.sources
    ]


def request_rows(requests: Iterable[tuple[Request, range]], first_seq: int) -> list[Row]:
    """Return a row for each request, given with the places of its events: a keyed hash, and the seqs that answered it.

    For a request that changed nothing, the row holds 0 and the head at which that was decided.
    """
    rows: list[Row] = []
    for request, places in requests:
        first, last = first_seq + places.start if places else 0, first_seq + places.stop - 1
        rows.append(("requests", request.id_hash, request.content_hash + SEQ.pack(first) + SEQ.pack(last)))
    return rows
