"""Where tests reach below the public face: to break, to count, or to look at what no verb shows.

Each name stands for one place of the engine, so that a move inside of it is a change of one line here.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from refold.engine.engine import Engine
from refold.engine.reader import Reader
from refold.engine.streams import records_of
from refold.log.protocol import Log
from refold.log.record import EventBytes, Record, Sealed


def engine_of(handle: Any) -> Engine:
    """Return the engine of a memory or of another handle."""
    engine: Engine = handle._core.engine
    return engine


def reader_of(handle: Any) -> Reader:
    """Return what holds the states of a handle's engine."""
    return engine_of(handle).reader


def log_of(handle: Any) -> Log:
    """Return the log that a handle's engine writes to."""
    return reader_of(handle).log


def records_in(handle: Any, after: int = 0, until: int | None = None) -> list[Record]:
    """Return the records that hold the events of a handle's log behind a seq up to another, its head for ``None``."""
    log = log_of(handle)
    return records_of(log, after, log.head() if until is None else until)


def counted_reads(handle: Any, patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the log of a handle's engine adds how many events each read asks for, and finds."""
    log, reads = log_of(handle), list[int]()
    read, events_at = log.read, log.events_at

    def counting(seqs: Sequence[int]) -> list[EventBytes]:
        reads.append(len(seqs))
        return events_at(seqs)

    def counting_whole(after: int, until: int) -> list[Sealed]:
        found = read(after, until)
        reads.append(min(until, found[-1][0]) - after if found else 0)
        return found

    patch.setattr(log, "events_at", counting)
    patch.setattr(log, "read", counting_whole)
    return reads
