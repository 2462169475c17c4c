"""What an erasure looks for afterwards: every text and value of the erased bodies, those inside of others too. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from refold import fold
from refold.errors import StoreCorrupt
from refold.event import Event, unpack_json
from refold.limits import MARKER_BYTES_MIN


def markers_of(events: Iterable[Event]) -> set[bytes]:
    """Return the texts and bytes of the bodies of events, and those inside of their packed values.

    What the events keep is not among them: the id of a call stands in the call, and among the ids that stay.
    """
    found, kept = set[bytes](), set[bytes]()
    for event in events:
        structural = fold.STRUCTURAL[type(event)]
        for field in event.__struct_fields__:
            (kept if field in structural else found).update(_strings(getattr(event, field)))
    return found - kept


def telling(markers: Iterable[bytes]) -> set[bytes]:
    """Return those of the markers that are long enough to be looked for; zeros are what empty pages are full of."""
    return {marker for marker in markers if len(marker.strip(b"\0")) >= MARKER_BYTES_MIN}


def _strings(value: object) -> Iterator[bytes]:
    """Yield every string in a value: texts and bytes, and what bytes hold that are msgpack themselves."""
    if isinstance(value, str):
        yield value.encode()
    elif isinstance(value, bytes):
        yield value
        yield from _strings(_unpacked(value))
    elif isinstance(value, msgspec.Struct):
        yield from _strings(msgspec.structs.astuple(value))
    elif isinstance(value, Mapping):
        for pair in cast("Mapping[object, object]", value).items():
            yield from _strings(pair)
    elif isinstance(value, (tuple, list)):
        for item in cast("Iterable[object]", value):
            yield from _strings(item)


def _unpacked(packed: bytes) -> Any:
    """Return the value that bytes hold as msgpack, ``None`` where they are something else, a vector for example."""
    try:
        return unpack_json(packed)
    except (StoreCorrupt, TypeError, RecursionError):
        return None
