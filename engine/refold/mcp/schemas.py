"""Plain JSON schemas: flattened for every provider, rejecting nothing that the original accepts. Pure.

References within the schema are inlined, and alternatives are joined if possible. A rule that providers do not support
moves from the schema into the description, so a plain schema can accept more than the original, but never less. Nothing
is fetched.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import unquote, urljoin

import msgspec
from msgspec import Meta

from refold import checks
from refold.errors import InvalidInput, RefoldError
from refold.limits import (
    MCP_ALTERNATIVES_COUNT_MAX,
    MCP_CHECKS_COUNT_MAX,
    MCP_DESCRIPTION_CHARS_MAX,
    MCP_NOTE_CHARS_MAX,
    MCP_SCHEMA_BYTES_MAX,
    MCP_SCHEMA_DEPTH_MAX,
    MCP_SCHEMA_PARTS_COUNT_MAX,
    TOOL_SCHEMA_BYTES_MAX,
)

# References in JSON schemas, in the terms of the specification.

# Drafts that ignore the siblings of a reference, and write anchors as identifiers.
_OLD_DRAFTS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
# Drafts that call an identifier `id` and ignore `const`.
_OLDEST_DRAFTS: Final = ("draft-03", "draft-04")
# Keywords whose values can look like schemas but are not.
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})


class SchemaPlace(NamedTuple):
    """A place in a schema: the document of its references, the references being resolved, and the depth."""

    document: Any
    known: dict[object, Any]  # Documents by URI, anchors by document and name; filled on first use.
    root: Any
    uri: str = ""
    draft: str = ""
    open: tuple[tuple[int, str], ...] = ()
    depth: int = 0

    @property
    def is_old(self) -> bool:
        """Whether the siblings of a reference are ignored here."""
        return any(draft in self.draft for draft in _OLD_DRAFTS)

    @property
    def is_oldest(self) -> bool:
        """Whether `const` is ignored here."""
        return any(draft in self.draft for draft in _OLDEST_DRAFTS)

    def below(self) -> "SchemaPlace":
        """Return the place one schema deeper."""
        return self._replace(depth=self.depth + 1)

    def inside(self, schema: Mapping[str, Any]) -> "SchemaPlace":
        """Return the place of a schema here, which is a document of its own if it has an identifier."""
        identifier = self._identifier(schema)
        if not identifier or identifier.startswith("#") or schema is self.document:
            return self
        return self._replace(
            document=schema, uri=_uri_of(self.uri, identifier), draft=_text_of(schema, "$schema") or self.draft
        )

    def anchors(self, schema: Mapping[str, Any]) -> list[object]:
        """List the names by which references within its document can name a schema."""
        identifier = self._identifier(schema)
        if self.is_old:
            return [identifier[1:]] if identifier.startswith("#") else []
        return [schema.get("$anchor"), schema.get("$dynamicAnchor")]

    def _identifier(self, schema: Mapping[str, Any]) -> str:
        return "" if self.is_old and "$ref" in schema else _text_of(schema, "id" if self.is_oldest else "$id")


def _root_place(schema: Mapping[str, Any]) -> SchemaPlace:
    return SchemaPlace(None, {}, schema, draft=_text_of(schema, "$schema")).inside(schema)._replace(document=schema)


def resolve(reference: object, place: SchemaPlace) -> tuple[Mapping[str, Any], SchemaPlace] | None:
    """Resolve a reference to its schema and that schema's place; `None` if it points outside the whole schema."""
    if not isinstance(reference, str):
        return None
    uri, _, fragment = reference.partition("#")
    document = _index(place).get(_uri_of(place.uri, uri)) if uri else place
    if document is None:
        return None
    target = document._replace(open=place.open, depth=place.depth)
    fragment = unquote(fragment)
    if fragment and not fragment.startswith("/"):
        anchored = _index(place).get((id(target.document), fragment))
        return None if anchored is None else (anchored, target)
    return _follow_pointer(fragment.split("/")[1:], target)


def _index(place: SchemaPlace) -> dict[object, Any]:
    if not place.known:
        for schema, inner in _walk(place.root):
            if schema is inner.document:
                place.known.setdefault(inner.uri, inner)
            for anchor in inner.anchors(schema):
                place.known.setdefault((id(inner.document), anchor), schema)
    return place.known


def _follow_pointer(parts: list[str], place: SchemaPlace) -> tuple[Mapping[str, Any], SchemaPlace] | None:
    value = place.document
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and name in value:
            value = cast("Mapping[str, object]", value)[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(cast("list[object]", value)):
            value = cast("list[object]", value)[int(name)]
        else:
            return None
        place = place.inside(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else place
    if isinstance(value, bool):
        return {} if value else {"not": {}}, place
    return (cast("Mapping[str, Any]", value), place) if isinstance(value, Mapping) else None


def _walk(root: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], SchemaPlace]]:
    """Yield a schema and all schemas within it, each with its place, up to a limit."""
    waiting: list[tuple[object, SchemaPlace]] = [(root, _root_place(root))]
    for _ in range(MCP_SCHEMA_PARTS_COUNT_MAX):
        if not waiting:
            return
        value, place = waiting.pop()
        if isinstance(value, Mapping):
            schema = cast("Mapping[str, Any]", value)
            place = place.inside(schema)
            yield schema, place
            waiting += [(inner, place) for key, inner in schema.items() if key not in _VALUES]
        elif isinstance(value, list):
            waiting += [(inner, place) for inner in cast("list[object]", value)]


def _text_of(schema: Mapping[str, Any], key: str) -> str:
    value = schema.get(key)
    return value if isinstance(value, str) else ""


def _uri_of(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference).partition("#")[0]
    except ValueError:
        return reference.partition("#")[0]


# Joining plain schemas, by all of two or any of several; the result accepts at least what it should.

Schema: TypeAlias = dict[str, Any]


def rule(key: str, value: object) -> str:
    """Render a rule as a note for a description."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        text = "..."
    return f"{key}: {text}"[:MCP_NOTE_CHARS_MAX]


def add_note(schema: Schema, note: str) -> Schema:
    """Add a note to the description of a schema."""
    described = "\n".join(filter(None, (schema.get("description"), f"({note})")))
    return {**schema, "description": described[:MCP_DESCRIPTION_CHARS_MAX]}


def merge(one: Schema, other: Schema) -> Schema:
    """Merge two schemas into one that accepts every value that both accept, and as little else as possible."""
    both, notes = dict(one), list[str]()
    for key, value in other.items():
        if key not in both:
            both[key] = value
        elif key in _JOINED:
            both[key] = _JOINED[key](both[key], value)
        elif both[key] != value:
            notes.append(rule(key, value))
    return add_note(both, "; ".join(notes)) if notes else both


def union(branches: Sequence[Schema]) -> Schema:
    """Join object schemas into one that accepts every value of any of them; differences go into the description."""
    names = dict.fromkeys(name for branch in branches for name in branch.get("properties", {}))
    if len(names) * len(branches) > MCP_ALTERNATIVES_COUNT_MAX:
        return add_note({}, "one of more alternatives than are shown")
    joined: Schema = {"properties": {name: _union_property(name, branches) for name in names}}
    if branches and all(branch.get("additionalProperties") is False for branch in branches):
        joined["additionalProperties"] = False
    requirements = [branch.get("required", ()) for branch in branches]
    required = [name for name in (requirements or [()])[0] if all(name in each for each in requirements)]
    if required:
        joined["required"] = required
    texts = [str(branch["description"]) for branch in branches if branch.get("description")]
    joined = add_note(joined, f"one of: {' | '.join(texts)}") if texts else joined
    for branch in branches:
        rest = {key: value for key, value in branch.items() if key not in _UNITED}
        joined = add_note(joined, rule("one of", rest)) if rest else joined
    sets = [" ".join(sorted(each)) or "nothing" for each in requirements]
    return add_note(joined, f"one of these sets is required: {'; '.join(sets)}") if len(set(sets)) > 1 else joined


_UNITED: Final = frozenset({"type", "properties", "required", "additionalProperties", "description", "default"})


def _union_property(name: str, branches: Sequence[Schema]) -> Schema:
    different: dict[object, Any] = {}
    for branch in branches:
        others: object = branch.get("additionalProperties")
        schema: object = branch.get("properties", {}).get(name)
        if schema is None and others is False:
            continue
        if schema is None:
            schema = cast("object", others if isinstance(others, dict) else {})
        different.setdefault(_freeze(schema), schema)
    distinct = list(different.values())
    if len(distinct) == 1:
        return dict(distinct[0])
    if {} not in distinct:
        return {"anyOf": distinct}
    return add_note({}, f"one of: {msgspec.json.encode([schema for schema in distinct if schema]).decode()}")


def intersection(one: Any, other: list[Any]) -> list[Any]:
    """Return the values in both lists, or those of the first if there are none."""
    if one is None:
        return other
    others = set(map(_freeze, other))
    return [value for value in one if _freeze(value) in others] or one


def _freeze(value: object) -> object:
    """Return a key that is equal for values that are equal in JSON: 1 equals 1.0, and true is not a number."""
    if isinstance(value, list):
        return ("list", *map(_freeze, cast("list[object]", value)))
    if isinstance(value, dict):
        return frozenset((key, _freeze(inner)) for key, inner in cast("dict[str, object]", value).items())
    return isinstance(value, bool), value


def _kinds_of(kinds: Any) -> list[str]:
    return [kinds] if isinstance(kinds, str) else list(dict.fromkeys(cast("list[str]", kinds)))


def _merge_types(one: Any, other: Any) -> Any:
    ones, others = _kinds_of(one), _kinds_of(other)
    both = [kind for kind in ones if kind in others or (kind == "integer" and "number" in others)]
    both += [kind for kind in others if kind == "integer" and "number" in ones and kind not in both]
    return one if not both else both[0] if len(both) == 1 else both


def _merge_properties(one: dict[str, Schema], other: dict[str, Schema]) -> dict[str, Schema]:
    return one | {name: merge(one[name], schema) if name in one else schema for name, schema in other.items()}


def _merge_additional(one: Any, other: Any) -> Any:
    if one is False or other is False:
        return False
    if one is True or other is True:
        return other if one is True else one
    return merge(one, other)


# How two values of a keyword are joined; for any other keyword, the first value is kept.
_JOINED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "type": _merge_types,
    "properties": _merge_properties,
    "required": lambda one, other: list(dict.fromkeys((*one, *other))),
    "enum": intersection,
    "items": merge,
    "additionalProperties": _merge_additional,
    "description": lambda one, other: one if other in one else f"{one}\n{other}"[:MCP_DESCRIPTION_CHARS_MAX],
    "uniqueItems": lambda one, other: one or other,
    "default": lambda one, _: one,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}


# Keywords that say nothing about an instance, and keywords that are handled separately.
_SILENT: Final = frozenset(
    ("$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions", "examples")
) | frozenset(("title", "readOnly", "writeOnly", "deprecated", "$ref", "allOf", "anyOf", "oneOf", "const"))


_COUNTS: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)
_Kind = Literal["string", "number", "integer", "boolean", "object", "array", "null"]
# The types of the keywords that are kept, according to the specification.
_PLAIN: Final[dict[str, Any]] = {
    "type": _Kind | Annotated[list[_Kind], Meta(min_length=1)],
    "description": str,
    "default": Any,
    "enum": Annotated[list[Any], Meta(min_length=1)],
    "required": list[str],
    "format": str,
    "pattern": str,
    "uniqueItems": bool,
    **dict.fromkeys(_COUNTS, int | float),
}


def _is_plain(key: str, value: object) -> bool:
    try:
        if key in _PLAIN:
            msgspec.convert(value, _PLAIN[key])
    except msgspec.ValidationError:
        return False
    return key in _PLAIN


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the schema of a tool's arguments to a form that every provider accepts: an object with properties.

    Every object that is valid for the schema is valid for the result, which is at most `TOOL_SCHEMA_BYTES_MAX`: a
    larger schema loses depth, and one over `MCP_SCHEMA_BYTES_MAX` loses everything. Raises `InvalidInput` for a schema
    of anything but an object, and for one that JSON cannot represent.

    >>> plain_schema({"$defs": {"n": {"type": "integer"}}, "properties": {"count": {"$ref": "#/$defs/n"}}})
    {'type': 'object', 'properties': {'count': {'type': 'integer'}}}
    """
    depth = 0 if _is_too_large(schema) else MCP_SCHEMA_DEPTH_MAX
    while depth:
        plain = _object_schema(_SchemaReader(depth).read(schema, _root_place(schema)))
        try:
            size = len(msgspec.json.encode(plain))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"the schema holds what JSON cannot ({error}); the server has to mend it") from error
        if size <= TOOL_SCHEMA_BYTES_MAX:
            return plain
        depth //= 2
    return {"type": "object", "properties": {}, "description": "(the schema is too large to be shown)"}


def _is_too_large(schema: Mapping[str, Any]) -> bool:
    # Reads no more of the schema than the limit.
    waiting: list[object] = [schema]
    size = 0
    while waiting and size <= MCP_SCHEMA_BYTES_MAX:
        value = waiting.pop()
        size += len(value) if isinstance(value, str) else 1
        if isinstance(value, Mapping):
            named = cast("Mapping[str, object]", value)
            size += sum(map(len, map(str, named)))
            waiting += named.values()
        elif isinstance(value, list):
            waiting += cast("list[object]", value)
    return size > MCP_SCHEMA_BYTES_MAX


def _object_schema(schema: Schema) -> dict[str, Any]:
    kinds = schema.get("type", "object")
    if kinds != "object" and "object" not in kinds:
        checks.invalid(f"the arguments are of type {checks.brief(kinds)}; a tool takes an object")
    branches = schema.pop("anyOf", None)
    if branches is not None:
        schema = merge(
            schema, union([branch for branch in _flatten(branches) if "object" in branch.get("type", "object")])
        )
    rest = {key: value for key, value in schema.items() if key not in {"type", "properties", "default"}}
    return {"type": "object", "properties": schema.get("properties", {}), **rest}


def _flatten(branches: list[Schema]) -> list[Schema]:
    flat: list[Schema] = []
    for branch in branches:
        rest = {key: value for key, value in branch.items() if key != "anyOf"}
        flat += [merge(rest, inner) for inner in _flatten(branch["anyOf"])] if "anyOf" in branch else [branch]
    return flat


class _SchemaReader:
    def __init__(self, depth_max: int) -> None:
        self._depth_max = depth_max
        self._parts = 0

    def read(self, schema: object, place: SchemaPlace) -> Schema:
        if not isinstance(schema, Mapping):
            return add_note({}, "no value is valid") if schema is False else {}
        self._parts += 1
        keywords = cast("Mapping[str, Any]", schema)
        if place.depth >= self._depth_max or self._parts > MCP_SCHEMA_PARTS_COUNT_MAX:
            return add_note(_outline(keywords, described_only="$ref" in keywords), "not all of it is shown")
        return self._read_keywords(keywords, place.inside(keywords))

    def _read_keywords(self, schema: Mapping[str, Any], place: SchemaPlace) -> Schema:
        is_alone = "$ref" in schema and place.is_old
        joined = _outline(schema, described_only=True) if is_alone else self._read_own(schema, place)
        if "$ref" in schema:
            joined = merge(joined, self._read_reference(schema["$ref"], place))
        for part in [] if is_alone else _schemas(schema.get("allOf")):
            joined = merge(joined, self.read(part, place.below()))
        for word in () if is_alone else ("anyOf", "oneOf"):
            branches = [self.read(part, place.below()) for part in _schemas(schema.get(word))]
            if branches:
                joined = merge(joined, _alternatives(branches))
        return joined

    def _read_own(self, schema: Mapping[str, Any], place: SchemaPlace) -> Schema:
        own: Schema = {}
        for key, value in schema.items():
            if _is_plain(key, value):
                own[key] = value
            elif key not in _SILENT and key not in _NESTED and not key.startswith("x-"):
                own = add_note(own, rule(key, value))
        if own.get("default", 0) is None:
            del own["default"]
        if "const" in schema and not place.is_oldest:
            own["enum"] = intersection(own.get("enum"), [schema["const"]])
        if "description" in own:
            own["description"] = own["description"][:MCP_DESCRIPTION_CHARS_MAX]
        properties, others, items = (schema.get(word) for word in ("properties", "additionalProperties", "items"))
        if isinstance(properties, Mapping):
            named = cast("Mapping[str, object]", properties)
            own["properties"] = {str(name): self.read(inner, place.below()) for name, inner in named.items()}
        if others is not None and "patternProperties" not in schema:
            own["additionalProperties"] = others if isinstance(others, bool) else self.read(others, place.below())
        elif others is not None:
            own = add_note(own, rule("additionalProperties", others))
        if isinstance(items, Mapping) and "prefixItems" not in schema:
            own["items"] = self.read(cast("object", items), place.below())
        elif items is not None and items is not True:
            own = add_note(own, rule("items", cast("object", items)))
        return own

    def _read_reference(self, reference: object, place: SchemaPlace) -> Schema:
        """Read the schema of a reference, or an outline if it is recursive or cannot be resolved."""
        target, name = resolve(reference, place), str(reference)
        if target is None:
            return add_note({}, f"as {name[:MCP_NOTE_CHARS_MAX]}, which is not here")
        schema, there = target
        opened = (id(there.document), name.partition("#")[2])
        if opened in place.open:
            outline = _outline(schema) if "$ref" not in schema and "allOf" not in schema else {}
            return add_note(outline, f"recursive {name.rpartition('/')[2] or name}")
        return self.read(schema, there.below()._replace(open=(*place.open, opened)))


_NESTED: Final = frozenset({"properties", "additionalProperties", "items"})


def _schemas(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _outline(schema: Mapping[str, Any], *, described_only: bool = False) -> Schema:
    words = ("description",) if described_only else ("type", "description")
    return {word: schema[word] for word in words if word in schema and _is_plain(word, schema[word])}


def _alternatives(branches: list[Schema]) -> Schema:
    """Join alternatives into one schema if only one is not null, else use `anyOf`."""
    others = [branch for branch in branches if branch.get("type") != "null"]
    if len(others) == len(branches):
        return branches[0] if len(branches) == 1 else {"anyOf": branches}
    if len(others) != 1 or "anyOf" in others[0]:
        return {"anyOf": branches} if others else {"type": "null"}
    joined = dict(others[0])
    if "type" in joined:
        joined["type"] = list(dict.fromkeys((*_kinds_of(joined["type"]), "null")))
    if "enum" in joined and None not in joined["enum"]:
        joined["enum"] = [*joined["enum"], None]
    return joined


# Results of remote tools, checked against their own schemas in a bounded number of steps.
#
# The schema comes from the server, so a check of it might never end: patterns can backtrack forever, and references can
# double at each step. Therefore the plain schema is used, without patterns, and steps are counted; a value in which no
# fault was found by then is accepted as it is.

_CHECKED: Final = ("type", "enum", "required", "properties", "additionalProperties", "items", "anyOf", *_COUNTS)


class _StepLimitError(Exception):
    """The step limit of a check is exhausted."""


def checker_of(schema: Mapping[str, Any]) -> Callable[[object], str]:
    """Return a function that returns the fault of a value, or an empty string."""
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # noqa: PLC0415 - of the extra `mcp`
    from jsonschema.validators import create  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    left = [0]

    def count_steps(check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def steps(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
            left[0] -= 1 + sum(len(each) for each in (rule, value) if isinstance(each, (list, dict)))  # pyright: ignore[reportUnknownArgumentType]
            if left[0] < 0:
                raise _StepLimitError
            yield from check(validator, rule, value, schema) or ()

        return steps

    words = {word: count_steps(Draft202012Validator.VALIDATORS[word]) for word in _CHECKED}
    try:
        validator: Any = create(Draft202012Validator.META_SCHEMA, words)(plain_schema(schema))
    except RefoldError as error:
        fault = f"its schema of results is none: {error}"
        return lambda _: fault

    def fault_of(value: Any) -> str:
        left[0] = MCP_CHECKS_COUNT_MAX
        try:
            error = next(validator.iter_errors(value), None)
        except Exception:  # noqa: BLE001 - out of steps, or a multiple of zero: accept what cannot be checked
            return ""
        return "" if error is None else str(error.message)[:MCP_NOTE_CHARS_MAX]

    return fault_of
