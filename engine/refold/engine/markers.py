"""Markers that an erasure searches for afterwards: every text and value of the erased bodies, nested ones included."""

from collections.abc import Collection, Iterable

import msgspec

from refold import fold
from refold.engine.history import names_with
from refold.engine.new_ids import NewIds
from refold.engine.reader import Reader
from refold.engine.spellings import strings_of
from refold.engine.streams import records_through
from refold.event import Recorded
from refold.limits import MARKER_BYTES_MIN


def markers_of(events: Iterable[Recorded], new_ids: NewIds) -> set[bytes]:
    """Return the texts and byte strings in the bodies of events, including those inside their packed values.

    So are the ids that get new ones. Values that the events keep are left out: an id of a call that stays is also part
    of the call. Bookkeeping fields are left out too.
    """
    markers, structure = set[bytes](), set[bytes]()
    for event, stamp in events:
        structural = fold.STRUCTURAL[type(event)]
        replaced = {each.encode() for each in new_ids.get(stamp.seq, ())}
        markers |= replaced
        for field in event.__struct_fields__:
            if field not in event.bookkeeping:
                strings = set(strings_of(getattr(event, field)))
                (structure if field in structural else markers).update(strings - replaced)
    return markers - structure


def searchable_markers(markers: Iterable[bytes]) -> set[bytes]:
    """Return the markers long enough to search for; outer zeros do not count, as empty pages are full of them."""
    return {marker for marker in markers if len(marker.strip(b"\0")) >= MARKER_BYTES_MIN}


def kept_elsewhere(reader: Reader, markers: set[bytes], seqs: Collection[int]) -> set[bytes]:
    """Return the markers that are strings of events other than those at the seqs, or names of streams."""
    kept = markers.intersection(name.partition("/")[2].encode() for name in names_with(reader, ""))
    for record in records_through(reader.log, 0, reader.head):
        for seq, array in enumerate(record.arrays, record.first_seq):
            if seq not in seqs:
                kept |= markers.intersection(strings_of(msgspec.msgpack.decode(array)))
    return kept
