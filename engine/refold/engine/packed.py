"""Keys of the rows beside the graphs, which a process reads instead of the log before its first search."""

from typing import Final

from refold.engine.streams import NUMBER_BYTES, number_key
from refold.limits import KNOWN_EVENTS_COUNT
from refold.log.record import SEQ

KNOWN_PREFIX: Final = bytes(NUMBER_BYTES) + b"known"
"""The prefix of the keys for the terms of messages; no stream has the number 0."""


def packed_rows_key(number: int) -> bytes:
    """Return the key of the packed rows of a stream's memories, which are stored beside its graph."""
    return number_key(number) + b"rows"


def terms_key(page: int) -> bytes:
    """Return the key of the row with the terms of the messages on one page of the log."""
    return KNOWN_PREFIX + SEQ.pack(page)


def page_of(seq: int) -> int:
    """Return the page of the log that holds an event, counting from 0."""
    return (seq - 1) // KNOWN_EVENTS_COUNT
