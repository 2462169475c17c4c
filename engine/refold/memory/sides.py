"""The sides of a diff: which branch, seq and stream each means."""

from typing import Any

from refold import checks
from refold.engine.branches import Side
from refold.errors import InvalidInput
from refold.memory.door import Door
from refold.memory.moments import seq_at
from refold.memory.snapshot import Snapshot


def side_of(door: Door, head: int, side: Any) -> Side:
    """Return the branch, the seq and the stream (``None``: all of them) that one side of a diff means."""
    if isinstance(side, Snapshot):
        _check_own(door, side.origin, side)
        return Side(side.branch, side.seq, side.stream or None)
    other: Door | None = getattr(side, "_door", None)
    if other is None:
        return Side(door.branch, seq_at(door.engine, side, head))
    other.engine.check_open()
    _check_own(door, other.engine, side)
    stream, seq = side.place if hasattr(side, "place") else (None, side.head)
    return Side(other.branch, seq, stream)


def _check_own(door: Door, engine: object, side: object) -> None:
    if engine is not door.engine:
        message = f"{checks.shown(side)} belongs to another memory; restore it into a conversation here first"
        raise InvalidInput(message)
