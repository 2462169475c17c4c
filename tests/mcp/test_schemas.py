"""Schemas of remote tools made plain: nothing that was valid is refused, nothing is fetched, all of it is bounded."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # It ships no annotations.
import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from referencing import Registry

from refold import InvalidInput
from refold.limits import MCP_DESCRIPTION_CHARS_MAX, TOOL_SCHEMA_BYTES_MAX
from refold.mcp import plain_schema
from tests.support.sizes import sizes

NAMES = ("a", "b", "title")
scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 2, -3, 1.5, "", "a", "bb", "abc"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from([*NAMES, "x1"]), values, max_size=4)
kinds = st.sampled_from(["string", "number", "integer", "boolean", "object", "array", "null"])
references = st.sampled_from(
    ["#/$defs/one", "#/$defs/two", "#", "#/properties/a", "#/$defs/a~1b", "#/$defs/c%20d", "#/definitions/old"]
)


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas with everything that a server might say, around others."""
    named = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    several = st.lists(inner, min_size=1, max_size=3)
    words = {
        "type": st.one_of(kinds, st.lists(kinds, min_size=1, max_size=3, unique=True)),
        "description": st.sampled_from(["said", "of it"]),
        "title": st.just("T"),
        "default": scalars,
        "enum": st.lists(values, min_size=1, max_size=4),
        "const": values,
        "minimum": st.integers(-3, 2),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 3),
        "pattern": st.sampled_from(["^a", "b$", "."]),
        "minItems": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "minProperties": st.integers(0, 2),
        "items": inner,
        "prefixItems": several,
        "contains": inner,
        "properties": named,
        "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.sampled_from(["^x", "^a$"]), inner, max_size=1),
        "propertyNames": st.just({"maxLength": 2}),
        "unevaluatedProperties": st.sampled_from([False]),
        "dependentRequired": st.just({"a": ["b"]}),
        "if": inner,
        "then": inner,
        "not": inner,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "$ref": references,
    }
    return st.lists(st.sampled_from(sorted(words)), max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({word: words[word] for word in chosen})
    )


nested = st.recursive(st.one_of(st.booleans(), schemas_of(st.just({}))), schemas_of, max_leaves=10)
roots = st.builds(
    lambda root, one, two, three: {
        **(root if isinstance(root, dict) else {}),
        "$defs": {"one": one, "two": two, "a/b": three, "c d": one},
        "definitions": {"old": two},
    },
    *(nested for _ in range(4)),
)


def is_valid(schema: Any, instance: Any) -> bool | None:
    """Whether an instance is valid, ``None`` where nobody can say: a reference to itself, or to nothing."""
    validator = jsonschema.Draft202012Validator(schema, registry=Registry())
    try:
        return bool(validator.is_valid(instance))
    except Exception as error:  # noqa: BLE001 - the judge gives up in several ways
        event(type(error).__name__)
        return None


SEEN = {"valid": 0}


def check_that_what_was_valid_stays_so(schema: dict[str, Any], instances: list[dict[str, Any]]) -> None:
    try:
        plain = plain_schema(schema)
    except InvalidInput:
        assert all(not is_valid(schema, instance) for instance in instances)
        return
    jsonschema.Draft202012Validator.check_schema(plain)
    assert "$ref" not in keys_of(plain)
    for instance in instances:
        if is_valid(schema, instance):
            SEEN["valid"] += 1
            assert is_valid(plain, instance), plain


def keys_of(schema: Any) -> set[str]:
    """All words of a schema, those inside of it too, without the names of properties."""
    if isinstance(schema, list):
        return set().union(*map(keys_of, schema))
    if not isinstance(schema, dict):
        return set()
    inner = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return set(schema) | keys_of(inner) | keys_of(schema.get("anyOf", []))


def run(examples: int) -> None:
    profile = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    SEEN["valid"] = 0
    profile(given(roots, st.lists(objects, min_size=8, max_size=8))(check_that_what_was_valid_stays_so))()
    assert SEEN["valid"] > examples, "the instances are hardly ever valid, so that nothing was shown"


@sizes("examples", quick=40, slow=200)
def test_what_was_valid_stays_valid(examples: int) -> None:
    run(examples)


CORNERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x1": 5}),
    ({"patternProperties": {"^x": {}}, "additionalProperties": {"type": "null"}}, {"x1": 5, "a": None}),
    ({"properties": {"a": {"anyOf": [{"type": "string", "enum": ["b"]}, {"type": "null"}]}}}, {"a": None}),
    ({"properties": {"a": {"prefixItems": [{"const": 1}], "items": {"const": 2}}}}, {"a": [1, 2]}),
    ({"properties": {"a": {"$ref": "#/$defs/a", "type": "string"}}, "$defs": {"a": {"maxLength": 3}}}, {"a": "abc"}),
    ({"anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"const": 1}}}]}, {"a": "x", "b": "y"}),
    (
        {"anyOf": [{"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"b": {"const": 1}}}]},
        {"b": 1},
    ),
    ({"anyOf": [{"additionalProperties": {"const": 1}}, {"properties": {"b": {"const": 2}}}]}, {"b": 1}),
    ({"oneOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"required": ["title"]}]}, {"b": 1}),
    ({"allOf": [{"enum": [{"a": 1}, {"a": 2}]}, {"const": {"a": 1.0}}]}, {"a": 1}),
    ({"properties": {"a": {"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]}}}, {"a": 1}),
    ({"allOf": [{"additionalProperties": {"type": "number"}}, {"additionalProperties": {"minimum": 1}}]}, {"a": 1}),
    ({"properties": {"a": {"$id": "urn:x", "$ref": "#/$defs/n", "$defs": {"n": {"const": 1}}}}, "$defs": {}}, {"a": 1}),
]


@pytest.mark.parametrize(("schema", "instance"), CORNERS)
def test_a_corner_stays_valid(schema: dict[str, Any], instance: dict[str, Any]) -> None:
    assert is_valid(schema, instance) is True
    assert is_valid(plain_schema(schema), instance) is True


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": ["object", "null"]}, {"type": "object", "properties": {}}),
        (
            {"$schema": "x", "title": "T", "properties": {"title": {"title": "T", "type": "string", "default": None}}},
            {"type": "object", "properties": {"title": {"type": "string"}}},
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "default": None}}},
            {"type": "object", "properties": {"a": {"type": ["string", "null"], "minLength": 1}}},
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/A", "description": "said"}}, "$defs": {"A": {"const": 5}}},
            {"type": "object", "properties": {"a": {"description": "said", "enum": [5]}}},
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "properties": {"a": {"$ref": "#/definitions/A", "maxLength": 0}},
                "definitions": {"A": {"type": "string"}},
            },
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "number"}}},
                    {"properties": {"a": {"minimum": 1}}, "required": ["a"]},
                ]
            },
            {"type": "object", "properties": {"a": {"type": "number", "minimum": 1}}, "required": ["a"]},
        ),
        (
            {"properties": {"a": {"type": "string", "not": {"const": "x"}}}},
            {"type": "object", "properties": {"a": {"type": "string", "description": '(not: {"const":"x"})'}}},
        ),
        (
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
            {
                "type": "object",
                "properties": {"a": {}, "b": {}},
                "description": "(one of these sets is required: a; b)",
            },
        ),
        (
            {"properties": {"a": {"$ref": "https://example.org/schema.json"}}},
            {
                "type": "object",
                "properties": {"a": {"description": "(as https://example.org/schema.json, which is not here)"}},
            },
        ),
    ],
)
def test_a_schema_becomes_plain(schema: dict[str, Any], plain: dict[str, Any]) -> None:
    before = json.dumps(schema)
    assert plain_schema(schema) == plain
    assert json.dumps(schema) == before


def test_a_recursive_schema_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}}}
    plain = plain_schema({"properties": {"first": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})
    first = plain["properties"]["first"]
    assert first["properties"]["value"] == {"type": "integer"}
    assert first["properties"]["next"] == {"type": "object", "description": "(recursive node)"}
    assert plain_schema({"$ref": "#"}) == {"type": "object", "properties": {}, "description": "(recursive #)"}
    loop = {"$ref": "#/$defs/b"}
    assert plain_schema({"$ref": "#/$defs/a", "$defs": {"a": loop, "b": {"$ref": "#/$defs/a"}}})["properties"] == {}


def doubling(levels: int) -> dict[str, Any]:
    """A small schema that is large once its references are written out."""
    twice = {f"d{n}": {"properties": {x: {"$ref": f"#/$defs/d{n + 1}"} for x in "ab"}} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**twice, f"d{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        doubling(40),
        {"properties": {f"name-{number}": {"description": "x" * 200} for number in range(2_000)}},
        {"properties": {"a": {"description": "x" * 10**6, "enum": ["y" * 10**6]}}},
        {"description": "x" * 10**6, "not": {"enum": ["y" * 10**6]}},
    ],
)
def test_a_schema_that_would_be_too_large_is_cut(schema: dict[str, Any]) -> None:
    plain = plain_schema(schema)
    assert plain["type"] == "object"
    assert len(msgspec.json.encode(plain)) <= TOOL_SCHEMA_BYTES_MAX
    assert len(plain.get("description", "")) <= MCP_DESCRIPTION_CHARS_MAX


def test_a_schema_that_is_nested_without_end_is_cut() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}}
    assert plain_schema(schema)["properties"]["a"]["type"] == "object"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5, "properties": [], "required": "a", "items": 5},
        {"properties": {"a": 5, "b": None, "c": {"type": "strange", "enum": "x", "minimum": "y", "pattern": 5}}},
        {"allOf": {"a": 1}, "anyOf": "x", "oneOf": [5, None], "$ref": 5, "$defs": []},
        {"$ref": "#/properties/a/0/x", "properties": {"a": [{"x": True}]}},
        {"$ref": "#/%zz~3"},
        {"enum": []},
    ],
)
def test_a_schema_that_is_none_is_an_object_of_anything(schema: dict[str, Any]) -> None:
    plain = plain_schema(schema)
    jsonschema.Draft202012Validator.check_schema(plain)
    assert plain["type"] == "object"


@pytest.mark.parametrize("schema", [{"$ref": "#/\ud800"}, {"required": ["\ud800"]}])
def test_what_json_cannot_hold_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="what JSON cannot"):
        plain_schema(schema)


@pytest.mark.parametrize("kind", ["string", ["string", "null"], "array"])
def test_a_tool_takes_an_object(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="a tool takes an object"):
        plain_schema({"type": kind})
