"""Keeping what the log has no field for: in a message's metadata, so that every field of a source is found again."""

from typing import Any, Final, TypeAlias

from refold.recorders.protocol import SourceMessage

Fields: TypeAlias = dict[str, Any]

FIELDS: Final = ("role", "content", "name", "tool_calls", "tool_call_id")
"""The fields of a source's message that a message of the log has as well."""

SOURCE_KEY: Final = "source"
"""In the first message's metadata: the fields of the conversation itself."""

EXCEPTIONS_KEY: Final = "openai_fields"
"""In a message's metadata, where it was unusual: which fields were ``absent``, and which were there as ``null``."""

COLLISIONS_KEY: Final = "message"
"""In a message's metadata: fields of the message that have the name of one that a recorder adds."""

_RESERVED: Final = frozenset((SOURCE_KEY, EXCEPTIONS_KEY, COLLISIONS_KEY))


def source_message(
    message: Fields,
    rest: Fields,
    added: Fields,
    *,
    occurred_ns: int | None = None,
    tool_call_id: Any = None,
) -> SourceMessage:
    """Return a message whose metadata has its other fields (``rest``) and what the recorder adds to them."""
    own_id = message.get("tool_call_id")
    return SourceMessage(
        message["role"],
        message.get("content"),
        name=message.get("name"),
        tool_calls=message.get("tool_calls"),
        tool_call_id=tool_call_id if own_id is None else own_id,
        occurred_ns=occurred_ns,
        metadata=metadata(rest, added | {EXCEPTIONS_KEY: _exceptions(message) or None}) or None,
    )


def metadata(rest: Fields, added: Fields) -> Fields:
    """Return what a message had and what is added to it, in one; what is added as ``None`` is left out."""
    reserved = _RESERVED | added.keys()
    kept = {key: value for key, value in rest.items() if key not in reserved}
    collisions = {key: value for key, value in rest.items() if key in reserved}
    ours = added | {COLLISIONS_KEY: collisions or None}
    return kept | {key: value for key, value in ours.items() if value is not None}


def others(message: Fields) -> Fields:
    """Return the fields of a source's message that a message of the log has no place for."""
    return {key: value for key, value in message.items() if key not in FIELDS}


def _exceptions(message: Fields) -> Fields:
    """Return where a message differs from how it would be rendered: content is always there, other nulls never."""
    absent = [] if "content" in message else ["content"]
    null = [field for field in ("name", "tool_calls", "tool_call_id") if message.get(field, "") is None]
    return {key: fields for key, fields in (("absent", absent), ("null", null)) if fields}
