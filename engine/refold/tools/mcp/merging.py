"""Plain schemas joined: all of two, or any of several; what comes of it accepts at least what it should; pure."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from refold.tools.mcp.limits import MCP_DESCRIPTION_CHARS_MAX, MCP_NOTE_CHARS_MAX

Schema: TypeAlias = dict[str, Any]


def rule(key: str, value: object) -> str:
    """Return a rule as the note of a description tells it."""
    try:
        said = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        said = "..."
    return f"{key}: {said}"[:MCP_NOTE_CHARS_MAX]


def noted(schema: Schema, note: str) -> Schema:
    """Return a schema whose description also says a note."""
    described = "\n".join(filter(None, (schema.get("description"), f"({note})")))
    return {**schema, "description": described[:MCP_DESCRIPTION_CHARS_MAX]}


def merged(one: Schema, other: Schema) -> Schema:
    """Return a schema that accepts whatever both accept, and as little else as can be said plainly."""
    found, notes = dict(one), list[str]()
    for key, value in other.items():
        if key in found and key not in _JOINED and found[key] != value:
            notes.append(rule(key, value))
        found[key] = _JOINED.get(key, _first)(found[key], value) if key in found else value
    return noted(found, "; ".join(notes)) if notes else found


def union(branches: Sequence[Schema]) -> Schema:
    """Return one schema of objects that accepts whatever one of several does; what differs is told, not checked."""
    names = dict.fromkeys(name for branch in branches for name in branch.get("properties", {}))
    properties = {name: _property(name, branches) for name in names}
    required = [name for name in names if all(name in branch.get("required", ()) for branch in branches)]
    said = [" ".join(sorted(branch.get("required", ()))) or "nothing" for branch in branches]
    needs = f"one of these sets is required: {'; '.join(said)}" if len(set(said)) > 1 else ""
    found: Schema = {"properties": properties}
    if branches and all(branch.get("additionalProperties") is False for branch in branches):
        found["additionalProperties"] = False
    if required:
        found["required"] = required
    texts = [str(branch["description"]) for branch in branches if branch.get("description")]
    found = noted(found, f"one of: {' | '.join(texts)}") if texts else found
    for branch in branches:
        left = {key: value for key, value in branch.items() if key not in _UNITED}
        found = noted(found, rule("one of", left)) if left else found
    return noted(found, needs) if needs else found


_UNITED: Final = frozenset({"type", "properties", "required", "additionalProperties", "description", "default"})


def _property(name: str, branches: Sequence[Schema]) -> Schema:
    """Return what a property may be in one of several objects, or in all of them."""
    known: list[Any] = []
    for branch in branches:
        held = branch.get("properties", {}).get(name)
        if held is None and branch.get("additionalProperties") is False:
            continue
        others = branch.get("additionalProperties")
        known.append(held if held is not None else others if isinstance(others, dict) else {})
    distinct = [held for place, held in enumerate(known) if not any(_same(held, one) for one in known[:place])]
    if len(distinct) == 1:
        return dict(distinct[0])
    if {} not in distinct:
        return {"anyOf": distinct}
    shown = msgspec.json.encode([schema for schema in distinct if schema]).decode()
    return noted({}, f"one of: {shown}")


def intersection(one: Any, other: list[Any]) -> list[Any]:
    """Return the values that stand in both lists; where there are none, those of the first."""
    if one is None:
        return other
    return [value for value in one if any(_same(value, candidate) for candidate in other)] or one


def _same(one: object, other: object) -> bool:
    """Return whether two values are one in JSON, where 1 is 1.0 and true is no number."""
    return one == other and _booleans(one) == _booleans(other)


def _booleans(value: object) -> object:
    """Return the shape of a value: what in it is true or false."""
    if isinstance(value, list):
        return [_booleans(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _booleans(held) for key, held in cast("dict[str, object]", value).items()}
    return isinstance(value, bool)


def _first(one: Any, _: Any) -> Any:
    return one


def kinds_of(kinds: Any) -> list[str]:
    """Return the types that a schema names, one or several, as a list."""
    return [kinds] if isinstance(kinds, str) else list(cast("list[str]", kinds))


def _types(one: Any, other: Any) -> Any:
    """Return the types that both allow; an integer is a number."""
    ones, others = kinds_of(one), kinds_of(other)
    both = [kind for kind in ones if kind in others or (kind == "integer" and "number" in others)]
    both += [kind for kind in others if kind == "integer" and "number" in ones and kind not in both]
    return one if not both else both[0] if len(both) == 1 else both


def _properties(one: dict[str, Schema], other: dict[str, Schema]) -> dict[str, Schema]:
    return {name: merged(one.get(name, {}), other.get(name, {})) for name in (*one, *(other.keys() - one.keys()))}


def _others(one: Any, other: Any) -> Any:
    """Return what both allow of further properties."""
    if one is False or other is False:
        return False
    if one is True or other is True:
        return other if one is True else one
    return merged(one, other)


def _texts(one: str, other: str) -> str:
    return one if other in one else f"{one}\n{other}"[:MCP_DESCRIPTION_CHARS_MAX]


def _names(one: Any, other: Any) -> Any:
    return [*one, *(name for name in other if name not in one)]


def _either(one: Any, other: Any) -> Any:
    return one or other


def _more(one: Any, other: Any) -> Any:
    return max(one, other)


def _less(one: Any, other: Any) -> Any:
    return min(one, other)


_JOINED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "type": _types,
    "properties": _properties,
    "required": _names,
    "enum": intersection,
    "items": merged,
    "additionalProperties": _others,
    "description": _texts,
    "uniqueItems": _either,
    "default": _first,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _more),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _less),
}
"""How the two values of a word become one; of any other word the first stays."""
