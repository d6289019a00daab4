"""Schemas of tools as providers read them. The schemas are of the kinds that MCP servers really offer."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app_server.engine.config.quirk_settings import SchemaForm
from app_server.engine.model.schema_forms import in_form
from app_server_protocol.encoding import Json

AT_ROOT = ("anyOf", "oneOf", "allOf", "not", "enum")
"""Keywords that a root may not have (Anthropic, OpenAI, Moonshot)."""


def one(schema: Json, form: SchemaForm = "plain") -> Json:
    """Return the schema of one property in a form."""
    written = in_form({"type": "object", "properties": {"it": schema}}, form)
    assert isinstance(written, dict)
    properties = written["properties"]
    assert isinstance(properties, dict)
    return properties["it"]


def test_the_full_form_is_the_schema() -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "oneOf": []}
    assert in_form(schema, "full") is schema


@pytest.mark.parametrize("form", ["plain", "gemini"])
@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf"])
def test_alternatives_at_the_root_become_optional_properties(form: SchemaForm, key: str) -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        key: [
            {"properties": {"path": {"type": "string"}}, "required": ["path"]},
            {"properties": {"id": {"type": "integer"}, "url": {"type": "string"}}, "required": ["url"]},
        ],
    }
    text = {"type": "string"}
    assert in_form(schema, form) == {
        "type": "object",
        "properties": {"id": text, "path": text, "url": text},
        "required": ["id"],
    }


def test_a_reference_or_null_is_what_the_reference_names() -> None:
    schema = {
        "$defs": {"Issue": {"type": "object", "properties": {"id": {"type": "string"}}}},
        "type": "object",
        "properties": {"issue": {"anyOf": [{"$ref": "#/$defs/Issue"}, {"type": "null"}], "default": None}},
    }
    issue = {"type": "object", "properties": {"id": {"type": "string"}}}
    assert in_form(schema, "plain") == {"type": "object", "properties": {"issue": issue}}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        pytest.param({"type": "unknown"}, {}, id="a type that does not exist"),
        pytest.param({"anyOf": [{"type": "null"}], "enum": [None]}, {}, id="nothing but null"),
        pytest.param({"type": ["string", "null"]}, {"type": "string"}, id="a text or null"),
        pytest.param(
            {"type": ["array", "string"], "items": {"type": "string"}, "minItems": 1, "description": "names"},
            {
                "description": "names",
                "anyOf": [
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    {"type": "string"},
                ],
            },
            id="several types, with what is said about one of them",
        ),
        pytest.param(
            {"type": "string", "anyOf": [{"enum": ["a"]}, {"pattern": "^b"}]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "pattern": "^b"}]},
            id="a type beside alternatives (Moonshot)",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {}, "b": {}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            {"type": "object", "properties": {"a": {}, "b": {}}},
            id="alternatives that only require",
        ),
        pytest.param(
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            {"type": "number", "minimum": 0},
            id="a bound of draft 4",
        ),
        pytest.param({"type": "string", "required": True}, {"type": "string"}, id="a property of draft 3"),
        pytest.param(
            {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            id="a tuple of draft 7",
        ),
        pytest.param({"type": "array"}, {"type": "array", "items": {}}, id="an array of anything (OpenAI)"),
    ],
)
def test_what_a_server_writes_is_plain(schema: Json, written: Json) -> None:
    assert one(schema) == written


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        pytest.param({"type": "array"}, {"type": "array", "items": {"type": "string"}}, id="items"),
        pytest.param(
            {"type": ["array", "null"], "items": {"type": "integer"}},
            {"type": "array", "items": {"type": "integer"}},
            id="an array or null",
        ),
        pytest.param(
            {"type": "integer", "enum": [1, 2], "description": "Size."},
            {"type": "integer", "description": "Size. One of: 1, 2"},
            id="an enum of numbers",
        ),
        pytest.param(
            {"type": "string", "enum": ["", "a"]},
            {"type": "string", "description": "One of: , a"},
            id="blank",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "gone"]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            id="a required property that is not there",
        ),
        pytest.param(
            {"oneOf": [{"type": "string"}, {"type": "integer"}], "additionalProperties": False},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            id="one of",
        ),
    ],
)
def test_what_google_reads(schema: Json, written: Json) -> None:
    assert one(schema, "gemini") == written


NAMES = st.sampled_from(["a", "b", "type", "items", "anyOf"])
LEAVES = st.one_of(
    st.just({}),
    st.builds(
        lambda kind, more: {"type": kind, **more},
        st.one_of(
            st.sampled_from(["string", "integer", "object", "array", "null", "file"]),
            st.lists(st.sampled_from(["string", "null", "array", "number"]), unique=True),
        ),
        st.sampled_from(
            [{}, {"enum": ["x", None, 1]}, {"const": 3}, {"format": "uri"}, {"exclusiveMaximum": True}]
        ),
    ),
    st.sampled_from(
        [{"$ref": "#/$defs/a"}, {"$ref": "#"}, {"$ref": "https://elsewhere"}, {"$ref": "#/nowhere"}]
    ),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda named, required: {"type": "object", "properties": named, "required": required},
            st.dictionaries(NAMES, inner, max_size=3),
            st.lists(NAMES, unique=True, max_size=2),
        ),
        st.builds(
            lambda items: {"type": "array", "items": items}, st.one_of(inner, st.lists(inner, max_size=2))
        ),
        st.builds(
            lambda key, parts, kind: {key: parts, **kind},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
            st.sampled_from([{}, {"type": "object"}, {"type": "string"}]),
        ),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(SCHEMAS, SCHEMAS, st.sampled_from(["plain", "gemini"]))
def test_every_schema_becomes_a_valid_one_without_what_providers_refuse(
    schema: dict[str, Json], named: Json, form: SchemaForm
) -> None:
    written = in_form({**schema, "$defs": {"a": named}}, form)
    Draft202012Validator.check_schema(written)
    assert isinstance(written, dict)
    assert written["type"] == "object"
    assert not set(AT_ROOT) & set(written)
    for each in _schemas(written):
        assert not {"$ref", "$defs", "const", "$schema"} & set(each)
        assert isinstance(each.get("type", "string"), str)
        if form == "gemini":
            assert not {"oneOf", "additionalProperties"} & set(each)
            assert each.get("type") != "array" or each.get("items")
            assert set(each.get("required", ())) <= set(each.get("properties", ()))


def _schemas(schema: Json) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas in it. Names of properties are no keywords."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in schema.items():
        if key == "properties":
            parts = list(value.values()) if isinstance(value, dict) else []
        elif isinstance(value, list) and key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            parts = value
        else:
            parts = [value] if key in ("items", "additionalProperties") else []
        for part in parts:
            yield from _schemas(part)
