"""Arguments of a tool call: decoded, bounded, and checked against the tool's schema."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from refold import checks
from refold.limits import JSON_DEPTH_MAX, TOOL_ARGUMENTS_BYTES_MAX

_FLAW_CHARS: Final = 20  # Characters shown after a flaw, to help a model find the place.


def decode_arguments(arguments: object, schema: bytes = b"{}") -> dict[str, Any]:
    """Decode arguments given as a dict or as JSON; `None`, an empty text and `null` mean no arguments.

    Raises `InvalidInput` for anything else, and over `TOOL_ARGUMENTS_BYTES_MAX`. The message says where invalid JSON
    breaks, and which fields the schema requires.

    >>> decode_arguments('{"key": "port"}'), decode_arguments("")
    ({'key': 'port'}, {})
    """
    if isinstance(arguments, (str, bytes)):
        _check_size(len(arguments))
        text, arguments = arguments, None
        try:
            if text.strip():
                arguments = cast("object", msgspec.json.decode(text))
        except checks.UNDECODABLE as error:
            checks.invalid(f"arguments are no JSON: {_flaw(text, error)}; send {_describe_fields(schema)}")
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        checks.invalid(
            f"arguments must be a JSON object, not {type(arguments).__name__}; send {_describe_fields(schema)}"
        )
    fields = cast("dict[str, Any]", arguments)
    try:
        size = len(msgspec.json.encode(fields))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        checks.invalid("arguments hold what JSON cannot; give a JSON object")
    _check_size(size)
    return fields


def _flaw(text: str | bytes, error: Exception) -> str:
    """Describe the flaw in a text that is not JSON, and where it is."""
    import json  # noqa: PLC0415 - only for its messages, which give line and column

    try:
        json.loads(text)
    except json.JSONDecodeError as flaw:
        where = f"{flaw.msg.removesuffix(' at')} at line {flaw.lineno}, column {flaw.colno}"
        behind = flaw.doc[flaw.pos : flaw.pos + _FLAW_CHARS]
        return f"{where} (before {behind!r})" if behind else f"{where}, where it ends"
    except (RecursionError, ValueError) as flaw:  # Bytes that are not text, and numbers of thousands of digits.
        return str(flaw)
    return str(error)  # Extensions that other programs accept as JSON, such as NaN.


def _describe_fields(schema: bytes) -> str:
    required = ", ".join(msgspec.json.decode(schema).get("required", ()))
    return f"one JSON object with {required}" if required else "one JSON object and nothing else"


def _check_size(size: int) -> None:
    if size > TOOL_ARGUMENTS_BYTES_MAX:
        advice = "pass less, or the name of a file"
        checks.invalid(f"arguments are {size:,} bytes, over {TOOL_ARGUMENTS_BYTES_MAX = :,}; {advice}")


def check_schema(schema: Mapping[str, Any], what: str) -> None:
    """Raise `InvalidInput` for a schema whose own fields have wrong types, so that no call fails because of it."""
    properties: object = schema.get("properties", {})
    required: object = schema.get("required", [])
    schemas = cast("dict[str, object]", properties).values() if isinstance(properties, dict) else (None,)
    if not all(isinstance(each, (dict, bool)) for each in schemas):
        checks.invalid(f"the properties of {what} must be an object of schemas")
    fields = cast("list[object]", required) if isinstance(required, list) else (None,)
    if not all(isinstance(field, str) for field in fields):
        checks.invalid(f"what is required of {what} must be an array of names")


def check_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any], where: str = "", depth: int = 0) -> None:
    """Raise `InvalidInput` if a required argument is missing, or an argument has a wrong type or no listed value.

    Supports `required`, `type`, `enum`, `minimum`, `maximum`, `properties`, `items` and `additionalProperties: false`;
    the tool must check the rest of a schema itself.
    """
    properties = schema.get("properties", {})
    for required in schema.get("required", ()):
        if arguments.get(required) is None and not (required in arguments and _allows_null(properties.get(required))):
            checks.invalid(f"missing required field: {where}{required}")
    for field, value in arguments.items():
        if field in properties and properties[field] is not False:
            if value is not None and isinstance(properties[field], dict):
                _check_value(value, properties[field], where + field, depth + 1)
        elif schema.get("additionalProperties") is False:
            known = ", ".join(name for name, each in properties.items() if each is not False)
            checks.invalid(f"unknown field: {where}{field}" + (f"; there are {known}" if known else ""))


def _allows_null(schema: object) -> bool:
    """Return whether a schema's types, values or branches include null, as providers' strict modes require."""
    if not isinstance(schema, dict):
        return False
    fields = cast("dict[str, Any]", schema)
    kinds, options = fields.get("type"), fields.get("enum") or ()
    is_null = "null" in ([kinds] if isinstance(kinds, str) else kinds or ()) or None in options
    return is_null or any(map(_allows_null, [*(fields.get("anyOf") or ()), *(fields.get("oneOf") or ())]))


_TYPES: Final[dict[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def _check_value(value: object, schema: Mapping[str, Any], where: str, depth: int) -> None:
    if depth > JSON_DEPTH_MAX:
        checks.invalid(f"'{where}' is nested deeper than {JSON_DEPTH_MAX = }")
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else kinds or ()
    if allowed and not any(kind not in _TYPES or _TYPES[kind](value) for kind in allowed):
        checks.invalid(f"'{where}' must be of type {' or '.join(allowed)}")
    options = schema.get("enum")
    if options is not None and value not in options:
        checks.invalid(f"'{where}' must be one of: {', '.join(map(str, options))}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if (least is not None and value < least) or (most is not None and value > most):
            checks.invalid(f"'{where}' must be from {least} to {most}")
    if isinstance(value, dict):
        check_arguments(cast("dict[str, Any]", value), schema, f"{where}.", depth)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(cast("list[object]", value)):
            _check_value(item, schema["items"], f"{where}[{index}]", depth + 1)


# Integers that a model writes as 3.0.


def with_integers(arguments: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with an int in the place of each integral float where a schema allows no other number.

    JSON has one kind of number, and JSON Schema counts 3.0 as an integer; Python functions do not.

    >>> with_integers({"a": 3.0, "b": 3.0}, {"properties": {"a": {"type": "integer"}, "b": {"type": "number"}}})
    {'a': 3, 'b': 3.0}
    """
    converted: dict[str, Any] = (
        _convert_floats(arguments, _Shape([schema], schema), 0) if _has_floats(arguments) else arguments
    )
    return converted


def _has_floats(value: object) -> bool:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, float):
            return True
        if isinstance(each, (dict, list)):
            waiting += cast("Collection[object]", each.values() if isinstance(each, dict) else each)
    return False


def _convert_floats(value: Any, shape: "_Shape", depth: int) -> Any:
    if isinstance(value, float):
        return int(value) if shape.is_integer and value.is_integer() else value
    if not shape.schemas or depth > JSON_DEPTH_MAX:
        return value
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _convert_floats(each, shape.field(name), depth + 1) for name, each in fields.items()}
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [_convert_floats(each, shape.item(place), depth + 1) for place, each in enumerate(items)]
    return value


class _Shape:
    """All schemas that apply to a value, those of references and branches included.

    The shapes of fields and items are kept, so that a schema is read once and not for each value that it applies to.
    """

    def __init__(self, schemas: Iterable[object], root: Mapping[str, Any]) -> None:
        self.schemas = _branches(schemas, root)
        kinds = {kind for schema in self.schemas for kind in _kinds(schema)}
        self.is_integer = "integer" in kinds and "number" not in kinds
        self._properties = [known for schema in self.schemas if (known := _object(schema, "properties"))]
        self._first_items = [items for schema in self.schemas if (items := _array(schema, "prefixItems"))]
        self._root = root
        self._parts: dict[tuple[str, str | int], _Shape] = {}

    def field(self, name: str) -> "_Shape":
        """Return the shape of a field of an object."""
        if any(name in known for known in self._properties):
            return self._part("properties", name, lambda: [known.get(name) for known in self._properties])
        return self._part(
            "additionalProperties", 0, lambda: [schema.get("additionalProperties") for schema in self.schemas]
        )

    def item(self, place: int) -> "_Shape":
        """Return the shape of an item of an array."""
        if any(place < len(items) for items in self._first_items):
            return self._part(
                "prefixItems", place, lambda: [items[place] for items in self._first_items if place < len(items)]
            )
        return self._part("items", 0, lambda: [schema.get("items") for schema in self.schemas])

    def _part(self, keyword: str, key: str | int, schemas: Callable[[], list[object]]) -> "_Shape":
        part = self._parts.get((keyword, key))
        if part is None:
            part = self._parts[keyword, key] = _Shape(schemas(), self._root)
        return part


def _object(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    """Return the value of a keyword that has an object; an empty one if it has none."""
    value: object = schema.get(keyword)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _array(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    value: object = schema.get(keyword)
    return cast("list[object]", value) if isinstance(value, list) else []


def _branches(schemas: Iterable[object], root: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the schemas, those that they refer to in the root, and those of which a value satisfies one or all."""
    waiting, branches, seen = list(schemas), list[dict[str, Any]](), set[str]()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        fields = cast("dict[str, Any]", schema)
        branches.append(fields)
        reference = fields.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            where, _, name = reference.removeprefix("#/").partition("/")
            waiting.append(_object(root, where).get(name))
        for keyword in ("anyOf", "oneOf", "allOf"):
            waiting += _array(fields, keyword)
    return branches


def _kinds(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the types that a schema allows, and those of the numbers that it lists."""
    kinds = schema.get("type")
    yield from [kinds] if isinstance(kinds, str) else _array(schema, "type")
    for option in _array(schema, "enum"):
        if isinstance(option, (int, float)) and not isinstance(option, bool):
            yield "integer" if isinstance(option, int) else "number"
