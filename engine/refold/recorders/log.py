"""The whole log, as those see it who write it down: every event of every stream, and the lines of an export."""

from collections.abc import Iterator
from typing import Any

from refold import Memory, Recorded, fold
from refold.engine import branches, transfer
from refold.engine.core import Engine
from refold.engine.jsonl import event_to_json
from refold.event import FLAG_OCCURRED


def _engine(memory: Memory) -> Engine:
    # The handles offer single streams; who writes the log down needs all of it.
    return memory._door.engine  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def stream_events(memory: Memory, stream: str, *, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
    """Return the events of one stream, named in full, with ``after < seq <= until``."""
    key = memory._door.key(stream)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return _engine(memory).events(key, after, memory.head if until is None else until)


def stream_name(memory: Memory, number: int) -> str:
    """Return the name of the stream that an event refers to by number."""
    return _engine(memory).streams.name_of(number)


def export_lines(memory: Memory) -> Iterator[bytes]:
    """Return the lines of refold's own JSONL, of every event up to the head."""
    return transfer.lines(_engine(memory), memory.head)


def kind_of(recorded: Recorded) -> str:
    """Return the public name of what happened; an event of a newer refold is ``unknown``."""
    return fold.NAMES.get(type(recorded.event), "unknown")


def described(memory: Memory, recorded: Recorded) -> dict[str, Any]:
    """Return an event with its stamp as plain values, by the names that an export uses."""
    event, stamp = recorded
    line: dict[str, Any] = {
        "seq": stamp.seq,
        "stream": stamp.stream,
        "version": stamp.version,
        "time_ns": stamp.time_ns,
        "kind": kind_of(recorded),
    }
    if stamp.flags & FLAG_OCCURRED:
        line["occurred_ns"] = stamp.occurred_ns
    if stamp.erased:
        line["erased"] = True
    if isinstance(event, fold.Unknown):
        return {**line, "event": {"tag": event.tag}}
    return {**line, "event": event_to_json(event, branches.names(_engine(memory)), erased=stamp.erased)}
