"""Which input schemas reach the model, and how."""

import pytest

from app_server.core.mcp.input_schemas import InvalidSchema, normalize_schema
from protocol.base import Json


def test_what_tells_the_model_something_stays() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3, "enum": [3, 4], "description": "how many"}},
        "required": ["n"],
        "additionalProperties": False,
        "$defs": {"q": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    }
    assert normalize_schema({"$schema": "https://json-schema.org/draft-07", **schema}) == schema


def test_what_apis_insist_on_is_added() -> None:
    assert normalize_schema({}) == {"type": "object", "properties": {}}
    fit = normalize_schema({"type": "object", "properties": {"a": {"type": "array"}, "b": True}})
    assert fit["properties"] == {"a": {"type": "array", "items": {}}, "b": {}}


def deep(levels: int) -> dict[str, Json]:
    return {"type": "object", "properties": {"a": deep(levels - 1)}} if levels else {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "object",
        {"type": "zzz"},
        {"type": "string"},
        {"properties": {"a": {"type": "zzz"}}},
        {"properties": {"a": {"type": 5}}},
        {"properties": {"a": 5}},
        {"properties": []},
        {"required": "a"},
        {"required": [1]},
        {"properties": {"a": {"anyOf": {}}}},
        {"properties": {"a": {"$ref": "#/$defs/none"}}},
        {"properties": {"a": {"$ref": "http://elsewhere/x.json"}}},
        {"description": "x" * 100_000},
        {"description": "\ud800"},
        deep(60),
    ],
)
def test_a_schema_that_an_api_would_refuse_omits_the_tool(schema: Json) -> None:
    with pytest.raises(InvalidSchema):
        normalize_schema(schema)


def test_a_reference_that_leads_somewhere_is_kept() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x~1y"}},
        "$defs": {"x/y": {"type": "string"}},
    }
    assert normalize_schema(schema) == schema
