"""Events as JSON objects and back: refold's own JSONL, one event with its stamp a line.

Values that events hold as msgpack appear as plain JSON, and numbers of streams as names, so that the file can be read
by a person and loaded by another store. Pure.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from refold import fold
from refold.engine.keys import Names
from refold.errors import InvalidInput
from refold.event import Event, pack_json, unpack_json
from refold.message import MessageAppended

JSONL_FORMAT: Final = 1
_PACKED: Final = {
    "calls": "tool_calls",
    "extra": "metadata",
    "incoming": "incoming",
    "packed": "value",
    "signals": "signals",
}
"""Fields that hold msgpack, and the public names under which their values are shown."""


class Head(Struct, frozen=True):
    """The first line of an export: its format, the store it came from, and how many events follow."""

    refold: int
    store: str
    head: int


class Line(Struct, frozen=True, omit_defaults=True):
    """One event of an export with its stamp."""

    seq: int
    stream: str
    version: int
    time_ns: int
    command: int
    kind: str
    event: dict[str, Any]
    occurred_ns: int | None = None
    cause: int = 0
    actor: int = 0
    erased: bool = False
    branch: str = ""
    """The name of the fork of the memory that the event belongs to, empty in the main line."""


class Numbers(NamedTuple):
    """What the names in lines stand for; a name that is not known is a ``KeyError``."""

    stream: Callable[[str, str], int]
    """By the name of the branch and that of the stream."""
    branches: dict[str, int]


_LINE: Final = msgspec.json.Decoder(Line)
_HEAD: Final = msgspec.json.Decoder(Head)


def head_of(line: bytes) -> Head:
    """Return the head of an export; ``InvalidInput`` if it is none, or of a newer format."""
    try:
        head = _HEAD.decode(line)
    except msgspec.DecodeError as error:
        message = f"line 1 is not the head of a refold export ({error}); give a file that `refold export` wrote"
        raise InvalidInput(message) from error
    if head.refold > JSONL_FORMAT:
        message = f"the export is of format {head.refold}, and this refold reads up to {JSONL_FORMAT}; upgrade refold"
        raise InvalidInput(message)
    return head


def line_of(line: bytes, number: int) -> Line:
    """Return one line of an export."""
    try:
        return _LINE.decode(line)
    except msgspec.DecodeError as error:
        message = f"line {number} is not an event of a refold export ({error}); export again, or mend the line"
        raise InvalidInput(message) from error


def event_to_json(event: Event, names: Names, *, erased: bool) -> dict[str, Any]:
    """Return an event's fields by their public names, those that were not given left out; no body once erased."""
    fields = fold.STRUCTURAL[type(event)] if erased else event.__struct_fields__
    shown: dict[str, Any] = {}
    for field in fields:
        value = getattr(event, field)
        if field == "base_stream":
            shown |= _base(value, names)
        elif field == "base_branch":
            shown[field] = names.branch(value)
        elif field in _PACKED and value is not None:
            shown[_PACKED[field]] = unpack_json(value)
        elif value is not None and value != ():
            shown[field] = msgspec.to_builtins(value)
    if isinstance(event, MessageAppended) and not erased:
        shown.pop("text", None)
        shown.pop("parts", None)
        shown["content"] = event.content
    return shown


def _base(number: int, names: Names) -> dict[str, str]:
    """Return the stream that an event goes on from, and the branch of it where that is not the main line."""
    if not number:
        return {"base_stream": ""}
    branch = names.branch_of(number)
    return {"base_stream": names.stream(number), **({"base_branch": names.branch(branch)} if branch else {})}


def event_from_json(line: Line, numbers: Numbers) -> Event:
    """Return the event of a line; ``InvalidInput`` if a field is missing, unknown or of the wrong type."""
    event_type = fold.TYPES_BY_NAME.get(line.kind)
    if event_type is None:
        message = f"seq {line.seq} is of the unknown kind {line.kind!r}; upgrade refold"
        raise InvalidInput(message)
    shown = dict(line.event)
    if event_type is MessageAppended and not line.erased:
        content = shown.pop("content", None)
        shown["text" if content is None or isinstance(content, str) else "parts"] = content
    try:
        values = {
            field.name: _field(shown, field, numbers)
            for field in msgspec.structs.fields(event_type)
            if _PACKED.get(field.name, field.name) in shown or field.required
        }
        _refuse_surplus(shown, event_type)
        return event_type(**values)
    except (msgspec.ValidationError, OverflowError, TypeError, KeyError) as error:
        message = f"seq {line.seq} is not a {line.kind} event ({error}); export again, or mend the line"
        raise InvalidInput(message) from error


def _refuse_surplus(shown: dict[str, Any], event_type: type[Event]) -> None:
    known = {_PACKED.get(field, field) for field in event_type.__struct_fields__}
    surplus = set(shown) - known - ({"base_branch"} if "base_stream" in known else set())
    if surplus:
        message = f"unknown fields {', '.join(sorted(surplus))}"
        raise msgspec.ValidationError(message)


def _field(shown: dict[str, Any], field: msgspec.structs.FieldInfo, numbers: Numbers) -> Any:
    name = _PACKED.get(field.name, field.name)
    if name not in shown:
        # The empty tuple and None are left out of the line; nothing else may be missing.
        return msgspec.convert(() if "tuple" in str(field.type) else None, field.type)
    value = shown[name]
    if field.name == "base_stream":
        return numbers.stream(shown.get("base_branch", ""), value) if value else 0
    if field.name == "base_branch":
        return numbers.branches[value]
    if field.name in _PACKED or field.name == "parts":
        return pack_json(value)
    return msgspec.convert(value, field.type, strict=True)
