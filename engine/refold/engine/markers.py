"""Markers that an erasure searches for afterwards: every text and value of the erased bodies, nested ones included."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Final

from refold import fold
from refold.engine.history import names_with
from refold.engine.new_ids import NewIds
from refold.engine.reader import Reader
from refold.engine.spellings import strings_of
from refold.engine.streams import records_through
from refold.event import Recorded
from refold.limits import MARKER_BYTES_MIN, PAGE_EVENTS
from refold.log.protocol import scan


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
    """Return the markers in events other than those at the seqs, in vectors or in names, also inside longer texts.

    The places of all markers are looked for at once: by eight bytes of each that few of the others have.
    """
    import numpy as np  # noqa: PLC0415 - the search of the files that goes before loads it too

    kept, by_probe = set[bytes](), dict[bytes, list[bytes]]()
    for marker, probe in _probes(markers):
        by_probe.setdefault(probe, []).append(marker)
    probes = np.sort(np.frombuffer(b"".join(by_probe), np.uint64))
    for page in _kept_pages(reader, seqs) if by_probe else ():
        words = np.ndarray((max(len(page) - _PROBE_BYTES + 1, 0),), np.uint64, page, strides=(1,))
        nearest = probes[np.minimum(np.searchsorted(probes, words), len(probes) - 1)]
        for probe in np.unique(nearest[nearest == words]):
            left = by_probe[probe.tobytes()]
            held = {marker for marker in left if marker in page}
            kept |= held
            by_probe[probe.tobytes()] = [marker for marker in left if marker not in held]
    return kept


_PROBE_BYTES: Final = 8
_PROBES_COUNT: Final = 64
"""The number of places in a marker, spread over it, among which the one with the rarest bytes is chosen."""
_PAGE_BYTES: Final = 1 << 20


def _probes(markers: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield each marker with eight of its bytes that few of the others have."""
    probes = {
        marker: [
            marker[begin : begin + _PROBE_BYTES]
            for begin in range(0, len(marker) - _PROBE_BYTES + 1, 1 + len(marker) // _PROBES_COUNT)
        ]
        for marker in sorted(markers)
    }
    counts = Counter(chain.from_iterable(map(set, probes.values())))
    for marker, own in probes.items():
        yield marker, min(own, key=counts.__getitem__)


def _kept_pages(reader: Reader, seqs: Collection[int]) -> Iterator[bytes]:
    """Yield the names of the streams, the vectors, and the arrays of all events but those at the seqs, in pages."""
    waiting, size = list[bytes](), 0
    for each in _kept_bytes(reader, seqs):
        waiting.append(each)
        size += len(each)
        if size > _PAGE_BYTES:
            yield b"\0".join(waiting)
            waiting, size = [], 0
    yield b"\0".join(waiting)


def _kept_bytes(reader: Reader, seqs: Collection[int]) -> Iterator[bytes]:
    for name in names_with(reader, ""):
        yield name.partition("/")[2].encode()
    for record in records_through(reader.log, 0, reader.head):
        yield from (array for seq, array in enumerate(record.arrays, record.first_seq) if seq not in seqs)
    for _, row in scan(reader.log, "vectors", b"", PAGE_EVENTS):
        yield row
