"""Keys of the rows beside the graphs: of what a process reads in the place of the log before its first search."""

from typing import Final

from refold.engine.streams import NUMBER_BYTES, number_key
from refold.limits import KNOWN_EVENTS_COUNT
from refold.log.record import SEQ

KNOWN_PREFIX: Final = bytes(NUMBER_BYTES) + b"known"
"""With this the keys of the terms of messages begin; no stream has the number 0."""


def packed_key(number: int) -> bytes:
    """Return the key of the packed rows of a stream's memories, which lie beside its graph."""
    return number_key(number) + b"rows"


def known_key(page: int) -> bytes:
    """Return the key of the row with the terms of the messages of a page of the log."""
    return KNOWN_PREFIX + SEQ.pack(page)


def page_of(seq: int) -> int:
    """Return the page of the log that an event is on, from 0."""
    return (seq - 1) // KNOWN_EVENTS_COUNT
