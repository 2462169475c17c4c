"""The log for other programs: its events, messages and memories as plain values, and the lines of an export."""

import struct
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from refold import Memory, fold
from refold.engine import transfer
from refold.engine.jsonl import event_to_json
from refold.entry import Entry
from refold.event import FLAG_OCCURRED, HOST, Recorded, unpack_json
from refold.memory.core import core_of
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
    present = {field: value for field, value in fields.items() if value is not None or field == "content"}
    return present | {flag: True for flag, is_on in flags.items() if is_on} | times


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return a memory as plain values, in the form that ``refold import --facts`` takes."""
    return {field: getattr(entry, field) for field in _ENTRY_FIELDS}


def event_name(recorded: Recorded) -> str:
    """Return the public name of an event's type; an event of a newer refold is ``unknown``."""
    return fold.NAMES.get(type(recorded.event), "unknown")


KIND_NAMES: Final = frozenset(fold.NAMES.values())
"""The public names of all event types."""


def event_json(memory: Memory, recorded: Recorded, *, full: bool = False) -> dict[str, Any]:
    """Return an event with its stamp as plain values, under the names that an export uses.

    Packed values are unpacked: arguments and results are JSON, and a vector is shown as its dimension, or with ``full``
    as its numbers.
    """
    event, stamp = recorded
    line: dict[str, Any] = {
        "seq": stamp.seq,
        "stream": stamp.stream,
        "version": stamp.version,
        "time_ns": stamp.time_ns,
        "kind": event_name(recorded),
    }
    if stamp.flags & FLAG_OCCURRED or stamp.occurred_ns != stamp.time_ns:
        line["occurred_ns"] = stamp.occurred_ns
    if stamp.cause:
        line["cause"] = stamp.cause
    if stamp.actor != HOST:
        line["actor"] = stamp.actor
    if stamp.erased:
        line["erased"] = True
    if isinstance(event, fold.Unknown):
        return {**line, "event": {"tag": event.tag}}
    fields = event_to_json(event, core_of(memory)[0].engine.reader.names(), erased=stamp.erased)
    own = {name: getattr(event, name) for name in fields if name in event.__struct_fields__}
    packed = {
        name: _unpack_value(name, value, full=full) for name, value in own.items() if type(value) in (bytes, tuple)
    }
    return {**line, "event": fields | packed}


_VECTORS: Final = frozenset(("vector", "vectors", "other_vector"))
_JSON_TEXTS: Final = frozenset(("arguments", "result"))
_NUMBER_BYTES: Final = 4


def _unpack_value(name: str, value: Any, *, full: bool) -> Any:
    """Return the value of an event's field as plain values, including the packed parts of structs in it."""
    if isinstance(value, (tuple, list)):
        return [_unpack_value(name, item, full=full) for item in cast("list[Any]", value)]
    if isinstance(value, Struct):
        return {field: _unpack_value(field, getattr(value, field), full=full) for field in value.__struct_fields__}
    if not isinstance(value, bytes):
        return value
    if name in _VECTORS:
        dim = len(value) // _NUMBER_BYTES
        return list(struct.unpack(f"<{dim}f", value)) if full else {"dim": dim}
    if name == "digests":
        return value.hex()
    if not value:
        return None
    return msgspec.json.decode(value) if name in _JSON_TEXTS else unpack_json(value)


def stream_names(memory: Memory) -> list[str]:
    """Return the full names of the streams of a memory."""
    core, _ = core_of(memory)
    with core.engine.reader.state_lock:
        return list(core.engine.reader.streams.names(core.branch))


def export_lines(memory: Memory) -> Iterator[bytes]:
    """Return the lines of refold's own JSONL, for every event up to the head."""
    return transfer.lines(core_of(memory)[0].engine, memory.head)


def stream_events(memory: Memory, stream: str, *, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
    """Return the events of one stream, given by its full name, with ``after < seq <= until``."""
    core, _ = core_of(memory)
    return core.engine.reader.events(core.key(stream), after, memory.head if until is None else until)


def stream_name(memory: Memory, number: int) -> str:
    """Return the name of the stream that an event refers to by number."""
    return core_of(memory)[0].engine.reader.streams.name_of(number)
