"""Arguments of a tool call: as the model wrote them, decoded, bounded, and held against the tool's schema."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from refold import checks
from refold.limits import JSON_DEPTH_MAX
from refold.tools.limits import TOOL_ARGUMENTS_BYTES_MAX


def decoded(arguments: object) -> dict[str, Any]:
    """Return arguments as a dict: given as one, or as JSON; what is no JSON object counts as none given.

    Raises ``InvalidInput`` for what is neither, and for more than ``TOOL_ARGUMENTS_BYTES_MAX``.
    """
    if arguments is None:
        return {}
    if isinstance(arguments, (str, bytes)):
        _check_size(len(arguments))
        arguments = _parsed(arguments)
    if not isinstance(arguments, dict):
        checks.invalid(f"arguments must be a JSON object, not {type(arguments).__name__}")
    given = cast("dict[str, Any]", arguments)
    try:
        size = len(msgspec.json.encode(given))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        checks.invalid("arguments hold what JSON cannot; give a JSON object")
    _check_size(size)
    return given


def _parsed(arguments: str | bytes) -> object:
    """Return the JSON object of a text; a model that wrote none is told which fields are missing."""
    try:
        found = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return {}
    return cast("object", found) if isinstance(found, dict) else {}


def _check_size(size: int) -> None:
    if size > TOOL_ARGUMENTS_BYTES_MAX:
        bound = f"TOOL_ARGUMENTS_BYTES_MAX = {TOOL_ARGUMENTS_BYTES_MAX:,}"
        checks.invalid(f"arguments are {size:,} bytes, over {bound}; pass less, or the name of a file")


def check(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise ``InvalidInput`` where arguments lack a required field, or one is of a wrong type or no listed value.

    It knows ``required``, ``type``, ``enum``, ``minimum``, ``maximum``, ``properties``, ``items`` and
    ``additionalProperties: false``; what else a schema says is left to the tool.
    """
    _check_object(arguments, schema, "", 0)


def check_schema(schema: Mapping[str, Any], what: str) -> None:
    """Raise ``InvalidInput`` for a schema whose own fields are of a wrong type, so that no call stumbles over it."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(held, (dict, bool)) for held in properties.values()):
        checks.invalid(f"the properties of {what} must be an object of schemas")
    if not isinstance(required, list) or not all(isinstance(field, str) for field in required):
        checks.invalid(f"what is required of {what} must be an array of names")


def _check_object(value: Mapping[str, Any], schema: Mapping[str, Any], where: str, depth: int) -> None:
    known = schema.get("properties", {})
    for required in schema.get("required", ()):
        if value.get(required) is None and not (required in value and _may_be_null(known.get(required))):
            checks.invalid(f"missing required field: {where}{required}")
    for field, held in value.items():
        if field in known and known[field] is not False:
            if held is not None and isinstance(known[field], dict):
                _check_value(held, known[field], where + field, depth + 1)
        elif schema.get("additionalProperties") is False:
            checks.invalid(f"unknown field: {where}{field}")


def _may_be_null(schema: object) -> bool:
    """Return whether a schema names null among its types, values or branches: strict modes of providers ask for it."""
    if not isinstance(schema, dict):
        return False
    said = cast("dict[str, Any]", schema)
    kinds, options = said.get("type"), said.get("enum") or ()
    branches = [*(said.get("anyOf") or ()), *(said.get("oneOf") or ())]
    return (
        "null" in ([kinds] if isinstance(kinds, str) else kinds or ())
        or None in options
        or any(map(_may_be_null, branches))
    )


def _check_value(value: object, schema: Mapping[str, Any], where: str, depth: int) -> None:
    if depth > JSON_DEPTH_MAX:
        checks.invalid(f"'{where}' is nested deeper than JSON_DEPTH_MAX = {JSON_DEPTH_MAX}")
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else kinds or ()
    if allowed and not any(_KINDS.get(kind, _anything)(value) for kind in allowed):
        checks.invalid(f"'{where}' must be of type {' or '.join(allowed)}")
    options = schema.get("enum")
    if options is not None and value not in options:
        checks.invalid(f"'{where}' must be one of: {', '.join(map(str, options))}")
    _check_bounds(value, schema, where)
    if isinstance(value, dict):
        _check_object(cast("dict[str, Any]", value), schema, f"{where}.", depth)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for place, item in enumerate(cast("list[object]", value)):
            _check_value(item, schema["items"], f"{where}[{place}]", depth + 1)


def _check_bounds(value: object, schema: Mapping[str, Any], where: str) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if (least is not None and value < least) or (most is not None and value > most):
            checks.invalid(f"'{where}' must be from {least} to {most}")


def _anything(_: object) -> bool:
    return True


_KINDS: Final[dict[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
"""What makes a value one of a type of JSON schema."""
