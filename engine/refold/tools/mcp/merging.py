"""Plain schemas joined: all of two, or any of several; what comes of it accepts at least what it should; pure."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from refold.tools.mcp.limits import MCP_ALTERNATIVES_COUNT_MAX, MCP_DESCRIPTION_CHARS_MAX, MCP_NOTE_CHARS_MAX

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
    if len(names) * len(branches) > MCP_ALTERNATIVES_COUNT_MAX:
        return noted({}, "one of more alternatives than are shown")
    properties = {name: _property(name, branches) for name in names}
    needed = [frozenset(branch.get("required", ())) for branch in branches]
    required = [
        name for name in (branches[0].get("required", ()) if branches else ()) if all(name in one for one in needed)
    ]
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
    different: dict[object, Any] = {}
    for held in known:
        different.setdefault(_frozen(held), held)
    distinct = list(different.values())
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
    others = set(map(_frozen, other))
    return [value for value in one if _frozen(value) in others] or one


def _frozen(value: object) -> object:
    """Return what two values share exactly if they are one in JSON, where 1 is 1.0 and true is no number."""
    if isinstance(value, list):
        return ("list", *map(_frozen, cast("list[object]", value)))
    if isinstance(value, dict):
        return frozenset((key, _frozen(held)) for key, held in cast("dict[str, object]", value).items())
    return isinstance(value, bool), value


def _first(one: Any, _: Any) -> Any:
    return one


def kinds_of(kinds: Any) -> list[str]:
    """Return the types that a schema names, one or several, each once, as a list."""
    return [kinds] if isinstance(kinds, str) else list(dict.fromkeys(cast("list[str]", kinds)))


def _types(one: Any, other: Any) -> Any:
    """Return the types that both allow; an integer is a number."""
    ones, others = kinds_of(one), kinds_of(other)
    both = [kind for kind in ones if kind in others or (kind == "integer" and "number" in others)]
    both += [kind for kind in others if kind == "integer" and "number" in ones and kind not in both]
    return one if not both else both[0] if len(both) == 1 else both


def _properties(one: dict[str, Schema], other: dict[str, Schema]) -> dict[str, Schema]:
    found = dict(one)
    for name, held in other.items():
        found[name] = merged(found[name], held) if name in found else held
    return found


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
    return list(dict.fromkeys((*one, *other)))


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
