"""The log for other programs: its events, messages and memories as plain values, and the lines of an export."""

from collections.abc import Iterator
from typing import Any, Final

from refold import Memory, fold
from refold.engine import transfer
from refold.engine.engine import Engine
from refold.engine.jsonl import event_to_json
from refold.entry import Entry
from refold.event import FLAG_OCCURRED, HOST, Recorded
from refold.message import Message

_MESSAGE_FIELDS: Final = ("seq", "role", "content", "name", "tool_calls", "tool_call_id", "tokens", "metadata")
_ENTRY_FIELDS: Final = (
    *("id", "content", "category", "keywords", "importance", "access_count", "status", "metadata", "source"),
    *("created_ns", "updated_ns", "accessed_ns", "occurred_ns", "erased"),
)


def message_json(message: Message) -> dict[str, Any]:
    """Return a message as plain values, without fields that were not given."""
    fields = {field: getattr(message, field) for field in _MESSAGE_FIELDS}
    flags = {"pinned": message.pinned, "erased": message.erased}
    times = {"time_ns": message.time_ns, "occurred_ns": message.occurred_ns}
    given = {field: value for field, value in fields.items() if value is not None or field == "content"}
    return given | {flag: True for flag, is_on in flags.items() if is_on} | times


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return a memory as plain values, which ``refold import --facts`` takes."""
    return {field: getattr(entry, field) for field in _ENTRY_FIELDS}


def event_name(recorded: Recorded) -> str:
    """Return the public name of an event's type; an event of a newer refold is ``unknown``."""
    return fold.NAMES.get(type(recorded.event), "unknown")


def event_json(memory: Memory, recorded: Recorded) -> dict[str, Any]:
    """Return an event with its stamp as plain values, by the names that an export uses."""
    event, stamp = recorded
    line: dict[str, Any] = {
        "seq": stamp.seq,
        "stream": stamp.stream,
        "version": stamp.version,
        "time_ns": stamp.time_ns,
        "kind": event_name(recorded),
    }
    if stamp.flags & FLAG_OCCURRED:
        line["occurred_ns"] = stamp.occurred_ns
    if stamp.cause:
        line["cause"] = stamp.cause
    if stamp.actor != HOST:
        line["actor"] = stamp.actor
    if stamp.erased:
        line["erased"] = True
    if isinstance(event, fold.Unknown):
        return {**line, "event": {"tag": event.tag}}
    return {**line, "event": event_to_json(event, _engine(memory).reader.names(), erased=stamp.erased)}


def export_lines(memory: Memory) -> Iterator[bytes]:
    """Return the lines of refold's own JSONL, of every event up to the head."""
    return transfer.lines(_engine(memory), memory.head)


def stream_events(memory: Memory, stream: str, *, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
    """Return the events of one stream, named in full, with ``after < seq <= until``."""
    key = memory._door.key(stream)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return _engine(memory).reader.events(key, after, memory.head if until is None else until)


def stream_name(memory: Memory, number: int) -> str:
    """Return the name of the stream that an event refers to by number."""
    return _engine(memory).reader.streams.name_of(number)


def _engine(memory: Memory) -> Engine:
    # The handles offer single streams; who writes the log down needs all of it.
    return memory._door.engine  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
