"""References and drafts of remote tools' schemas: followed wherever the schema has what they name, in its own draft."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]  # It ships no annotations.
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from referencing import Registry

from refold import InvalidInput
from refold.limits import MCP_SCHEMA_BYTES_MAX
from refold.mcp import plain_schema
from tests.mcp.test_schemas import objects, roots

OLD = "http://json-schema.org/draft-07/schema#"
OLDEST = "http://json-schema.org/draft-04/schema#"
DRAFTS = (OLD, OLDEST, "http://json-schema.org/draft-06/schema#", "https://json-schema.org/draft/2019-09/schema")
TEXT = {"type": "string"}


def is_valid(schema: Any, instance: Any) -> bool | None:
    """Whether an instance is valid in the schema's own draft, ``None`` where nobody can say."""
    try:
        return bool(jsonschema.validators.validator_for(schema)(schema, registry=Registry()).is_valid(instance))
    except Exception:  # noqa: BLE001 - the judge gives up in several ways
        return None


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here", **TEXT}}},
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$dynamicAnchor": "here", **TEXT}}},
        {"$schema": OLD, "properties": {"a": {"$ref": "#here"}}, "definitions": {"x": {"$id": "#here", **TEXT}}},
        {"$schema": OLDEST, "properties": {"a": {"$ref": "#here"}}, "definitions": {"x": {"id": "#here", **TEXT}}},
        {"$id": "https://e.org/s", "properties": {"a": {"$ref": "https://e.org/s#/$defs/x"}}, "$defs": {"x": TEXT}},
        {"$id": "https://e.org/s", "properties": {"a": {"$ref": "t"}}, "$defs": {"x": {"$id": "/t", **TEXT}}},
        {
            "$id": "https://e.org/s",
            "properties": {"a": {"$ref": "t#y"}},
            "$defs": {"x": {"$id": "t", "$defs": {"y": {"$anchor": "y", **TEXT}}}},
        },
        {
            "properties": {"a": {"$ref": "#/$defs/x/properties/b"}},
            "$defs": {"x": {"$id": "urn:x", "properties": {"b": {"$ref": "#/$defs/y"}}, "$defs": {"y": TEXT}}},
        },
    ],
)
def test_a_reference_is_followed_to_what_is_here(schema: dict[str, Any]) -> None:
    assert (is_valid(schema, {"a": "x"}), is_valid(schema, {"a": 5})) == (True, False)
    assert plain_schema(schema)["properties"]["a"] == TEXT


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$id": "urn:x", "$defs": {"y": {"$anchor": "here"}}}}},
        {"properties": {"a": {"$ref": "#here"}}, "default": {"$anchor": "here"}},
        {"properties": {"a": {"$ref": "http://[bad/x#y"}}},
    ],
)
def test_what_is_not_here_is_told(schema: dict[str, Any]) -> None:
    assert "which is not here" in plain_schema(schema)["properties"]["a"]["description"]


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        (
            {
                "$schema": OLD,
                "properties": {
                    "a": {
                        "$id": "urn:x",
                        "properties": {"b": {"$ref": "#/definitions/s", "maxLength": 0}},
                        "definitions": {"s": TEXT},
                    }
                },
            },
            {"a": {"b": "abc"}},
        ),
        (
            {
                "$schema": OLD,
                "properties": {"a": {"$id": "#a", "allOf": [{"$ref": "#/definitions/s"}], "definitions": {"s": False}}},
                "definitions": {"s": TEXT},
            },
            {"a": "x"},
        ),
        ({"$schema": OLDEST, "properties": {"a": {"const": 5}}}, {"a": 6}),
    ],
)
def test_what_is_valid_in_an_older_draft_stays_so(schema: dict[str, Any], instance: dict[str, Any]) -> None:
    assert is_valid(schema, instance) is True
    assert is_valid(plain_schema(schema), instance) is True


@settings(max_examples=40, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(DRAFTS), roots, st.lists(objects, min_size=8, max_size=8))
def test_what_was_valid_stays_valid_in_every_draft(draft: str, root: dict[str, Any], instances: list[Any]) -> None:
    schema = {"$schema": draft, **root}
    try:
        plain = plain_schema(schema)
    except InvalidInput:
        assert all(not is_valid(schema, instance) for instance in instances)
        return
    assert all(is_valid(plain, instance) for instance in instances if is_valid(schema, instance)), plain


def test_what_is_never_valid_is_told() -> None:
    plain = plain_schema({"properties": {"a": False, "b": {"$ref": "#/$defs/n"}}, "$defs": {"n": False}})
    assert plain["properties"] == {"a": {"description": "(no value is valid)"}, "b": {"description": "(not: {})"}}


def test_what_all_alternatives_require_is_required() -> None:
    plain = plain_schema({"anyOf": [{"required": ["a", "b"]}, {"required": ["c", "a"]}]})
    assert plain["required"] == ["a"]


def test_properties_stand_in_the_order_they_were_written_in() -> None:
    names = list("qwertyuiop")
    plain = plain_schema({"allOf": [{"properties": {"a": {}}}, {"properties": dict.fromkeys(names, TEXT)}]})
    assert list(plain["properties"]) == ["a", *names]


MANY = [f"n{number}" for number in range(20_000)]


@pytest.mark.parametrize(
    "schema",
    [
        {"required": MANY, "allOf": [{"required": MANY[::-1]}]},
        {"properties": {"a": {"enum": MANY, "allOf": [{"enum": MANY[::-1]}]}}},
        {"properties": {"a": {"type": ["string"] * 60_000, "allOf": [{"type": ["integer"] * 60_000}]}}},
        {
            "anyOf": [
                {"properties": dict.fromkeys(MANY, True), "required": MANY},
                *({"required": [n]} for n in MANY[:4_000]),
            ]
        },
        {"allOf": [{"properties": {name: {}}} for name in MANY]},
    ],
)
def test_a_schema_of_many_words_is_read(schema: dict[str, Any]) -> None:
    assert plain_schema(schema)["type"] == "object"


def test_of_a_schema_that_is_too_large_nothing_is_read() -> None:
    schema = {"type": "object", "required": ["a"], "description": "x" * MCP_SCHEMA_BYTES_MAX}
    assert plain_schema(schema)["description"] == "(the schema is too large to be shown)"


def test_a_default_without_end_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidInput, match="what JSON cannot"):
        plain_schema({"properties": {"a": {"default": value}}})
