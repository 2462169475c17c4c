"""JSON schemas of others, made plain: what every provider takes, and nothing that was valid is refused; pure.

References within the schema are written out, alternatives joined where they can be. A rule that providers do not take
is dropped from the schema and told in the description: so a plain schema may accept more than the one it was made of,
and never less. Nothing is fetched.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from refold import checks
from refold.errors import InvalidInput
from refold.tools.limits import TOOL_SCHEMA_BYTES_MAX
from refold.tools.mcp.limits import (
    MCP_DESCRIPTION_CHARS_MAX,
    MCP_NOTE_CHARS_MAX,
    MCP_SCHEMA_BYTES_MAX,
    MCP_SCHEMA_DEPTH_MAX,
    MCP_SCHEMA_PARTS_COUNT_MAX,
)
from refold.tools.mcp.merging import Schema, intersection, kinds_of, merged, noted, rule, union
from refold.tools.mcp.references import Place, resolved, root_of

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SILENT: Final = frozenset(
    ("$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions", "examples")
) | frozenset(("title", "readOnly", "writeOnly", "deprecated", "$ref", "allOf", "anyOf", "oneOf", "const"))
"""What says nothing of an instance, and what is worked on by itself."""


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))


def _is_type(value: object) -> bool:
    kinds = cast("list[object]", value) if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_some(value: object) -> bool:
    return isinstance(value, list) and bool(cast("list[object]", value))


def _is_anything(_: object) -> bool:
    return True


_COUNTS: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)
_KEPT: Final[dict[str, Callable[[object], bool]]] = {
    "type": _is_type,
    "description": _is_text,
    "default": _is_anything,
    "enum": _is_some,
    "required": _is_texts,
    "format": _is_text,
    "pattern": _is_text,
    "uniqueItems": _is_flag,
    **dict.fromkeys(_COUNTS, _is_count),
}
"""What stays as it is, if it is what the specification says it is."""


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments in the form that every provider takes: an object with properties.

    Every object that is valid for the schema is valid for what is returned, which is no larger than
    ``TOOL_SCHEMA_BYTES_MAX``; of one that would be larger, less and less depth is kept, and of one that is over
    ``MCP_SCHEMA_BYTES_MAX`` nothing. Raises ``InvalidInput`` for a
    schema of something that is no object, and for one that JSON cannot hold.

    >>> plain_schema({"$defs": {"n": {"type": "integer"}}, "properties": {"count": {"$ref": "#/$defs/n"}}})
    {'type': 'object', 'properties': {'count': {'type': 'integer'}}}
    """
    depth = 0 if _is_larger(schema) else MCP_SCHEMA_DEPTH_MAX
    while depth:
        found = _root(_Reader(depth).read(schema, root_of(schema)))
        if _size_bytes(found) <= TOOL_SCHEMA_BYTES_MAX:
            return found
        depth //= 2
    return {"type": "object", "properties": {}, "description": "(the schema is too large to be shown)"}


def _is_larger(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is too large to be read, looking at no more of it than that takes."""
    left: list[object] = [schema]
    size = 0
    while left and size <= MCP_SCHEMA_BYTES_MAX:
        held = left.pop()
        size += len(held) if isinstance(held, str) else 1
        if isinstance(held, Mapping):
            named = cast("Mapping[str, object]", held)
            size += sum(map(len, map(str, named)))
            left += named.values()
        elif isinstance(held, list):
            left += cast("list[object]", held)
    return size > MCP_SCHEMA_BYTES_MAX


def _size_bytes(schema: Schema) -> int:
    try:
        return len(msgspec.json.encode(schema))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"the schema holds what JSON cannot ({error}); the server has to mend it"
        raise InvalidInput(message) from error


def _root(schema: Schema) -> dict[str, Any]:
    """Return a schema as the root that providers ask for: an object with properties, and no alternatives."""
    kinds = schema.get("type", "object")
    if kinds != "object" and "object" not in kinds:
        checks.invalid(f"the arguments are of type {checks.shown(kinds)}; a tool takes an object")
    branches = schema.pop("anyOf", None)
    if branches is not None:
        schema = merged(schema, union([branch for branch in _flat(branches) if _may_be_object(branch)]))
    rest = {key: value for key, value in schema.items() if key not in {"type", "properties", "default"}}
    return {"type": "object", "properties": schema.get("properties", {}), **rest}


def _flat(branches: list[Schema]) -> list[Schema]:
    """Return alternatives in the place of alternatives of alternatives."""
    flat: list[Schema] = []
    for branch in branches:
        rest = {key: value for key, value in branch.items() if key != "anyOf"}
        flat += [merged(rest, inner) for inner in _flat(branch["anyOf"])] if "anyOf" in branch else [branch]
    return flat


def _may_be_object(schema: Schema) -> bool:
    return "object" in schema.get("type", "object")


class _Reader:
    """One reading of a schema, down to a depth and a number of parts."""

    def __init__(self, depth_max: int) -> None:
        self._depth_max = depth_max
        self._parts = 0

    def read(self, schema: object, place: Place) -> Schema:
        """Return a schema in its plain form."""
        if not isinstance(schema, Mapping):
            return noted({}, "no value is valid") if schema is False else {}
        self._parts += 1
        given = cast("Mapping[str, Any]", schema)
        if place.depth >= self._depth_max or self._parts > MCP_SCHEMA_PARTS_COUNT_MAX:
            return noted(_outline(given, described_only="$ref" in given), "not all of it is shown")
        return self._joined(given, place.inside(given))

    def _joined(self, schema: Mapping[str, Any], place: Place) -> Schema:
        """Return what a schema says by itself, by its reference, and by all that it is joined of."""
        is_alone = "$ref" in schema and place.is_old
        found = _outline(schema, described_only=True) if is_alone else self._own(schema, place)
        if "$ref" in schema:
            found = merged(found, self._referred(schema["$ref"], place))
        for part in _schemas(None if is_alone else schema.get("allOf")):
            found = merged(found, self.read(part, place.below()))
        for word in ("anyOf", "oneOf"):
            branches = [self.read(part, place.below()) for part in _schemas(None if is_alone else schema.get(word))]
            if branches:
                found = merged(found, _alternatives(branches))
        return found

    def _own(self, schema: Mapping[str, Any], place: Place) -> Schema:
        """Return what a schema says by itself."""
        found: Schema = {}
        for key, value in schema.items():
            if key in _KEPT and _KEPT[key](value):
                found[key] = value
            elif key not in _SILENT and key not in _NESTED and not key.startswith("x-"):
                found = noted(found, rule(key, value))
        if found.get("default", 0) is None:
            del found["default"]
        if "const" in schema and not place.is_oldest:
            found["enum"] = intersection(found.get("enum"), [schema["const"]])
        if "description" in found:
            found["description"] = found["description"][:MCP_DESCRIPTION_CHARS_MAX]
        return self._nested(schema, place, found)

    def _nested(self, schema: Mapping[str, Any], place: Place, found: Schema) -> Schema:
        """Add the schemas of properties and items."""
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            named = cast("Mapping[str, object]", properties)
            found["properties"] = {str(name): self.read(held, place.below()) for name, held in named.items()}
        others, items = schema.get("additionalProperties"), schema.get("items")
        if others is not None and "patternProperties" not in schema:
            found["additionalProperties"] = others if isinstance(others, bool) else self.read(others, place.below())
        elif others is not None:
            found = noted(found, rule("additionalProperties", others))
        if isinstance(items, Mapping) and "prefixItems" not in schema:
            found["items"] = self.read(cast("object", items), place.below())
        elif items is not None and items is not True:
            found = noted(found, rule("items", cast("object", items)))
        return found

    def _referred(self, reference: object, place: Place) -> Schema:
        """Return what a reference leads to; where that is itself, or elsewhere, what can be said of it."""
        found, name = resolved(reference, place), str(reference)
        if found is None:
            return noted({}, f"as {name[:MCP_NOTE_CHARS_MAX]}, which is not here")
        target, there = found
        opened = (id(there.document), name.partition("#")[2])
        if opened in place.open:
            said = _outline(target) if "$ref" not in target and "allOf" not in target else {}
            return noted(said, f"recursive {name.rpartition('/')[2] or name}")
        return self.read(target, there.below()._replace(open=(*place.open, opened)))


_NESTED: Final = frozenset({"properties", "additionalProperties", "items"})


def _schemas(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _outline(schema: Mapping[str, Any], *, described_only: bool = False) -> Schema:
    """Return a schema's description, and its type if it is wanted."""
    wanted = ("description",) if described_only else ("type", "description")
    return {key: schema[key] for key in wanted if key in schema and _KEPT[key](schema[key])}


def _alternatives(branches: list[Schema]) -> Schema:
    """Return alternatives as one schema where there is one beside null, else as ``anyOf``."""
    others = [branch for branch in branches if branch.get("type") != "null"]
    if len(others) == len(branches):
        return branches[0] if len(branches) == 1 else {"anyOf": branches}
    if len(others) != 1 or "anyOf" in others[0]:
        return {"anyOf": branches} if others else {"type": "null"}
    found = dict(others[0])
    if "type" in found:
        kinds = kinds_of(found["type"])
        found["type"] = [*kinds, *(["null"] if "null" not in kinds else [])]
    if "enum" in found and None not in found["enum"]:
        found["enum"] = [*found["enum"], None]
    return found
