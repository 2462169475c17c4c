"""Where tests reach below the public face: to break, to count, or to look at what no verb shows.

Each name stands for one place of the engine, so that a move inside of it is a change of one line here.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from refold.engine.engine import Engine
from refold.engine.reader import Reader
from refold.log.protocol import Log


def engine_of(handle: Any) -> Engine:
    """Return the engine of a memory or of another handle."""
    engine: Engine = handle._door.engine
    return engine


def reader_of(handle: Any) -> Reader:
    """Return what holds the states of a handle's engine."""
    return engine_of(handle).reader


def log_of(handle: Any) -> Log:
    """Return the log that a handle's engine writes to."""
    return reader_of(handle).log


def counted_reads(handle: Any, patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the log of a handle's engine adds how many records each read asks for."""
    log, reads = type(log_of(handle)), list[int]()
    read_at = log.read_at

    def counting(self: Any, seqs: Sequence[int]) -> list[bytes]:
        reads.append(len(seqs))
        return read_at(self, seqs)

    patch.setattr(log, "read_at", counting)
    return reads
