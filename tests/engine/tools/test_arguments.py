"""Arguments of tools: accepted values, errors with their location, and a schema that agrees."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app_server.engine.model.prompt import FunctionTool
from app_server.engine.tools import tool_schemas
from app_server.engine.tools.registry import TOOLS
from app_server.engine.tools.tool_base import ToolFailure
from app_server_protocol.encoding import Json

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(
    ["command", "workdir", "timeout_ms", "with_escalated_permissions", "plan", "step", "status", "other"]
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
STEPS = st.lists(
    st.fixed_dictionaries({"step": st.text(max_size=3), "status": st.sampled_from(["pending", "done"])})
)
ARGUMENTS = (
    st.dictionaries(KEYS, VALUES, max_size=5)
    | st.fixed_dictionaries(
        {"command": st.lists(st.text(max_size=3), max_size=3)},
        optional={"timeout_ms": LEAVES, "workdir": LEAVES},
    )
    | st.fixed_dictionaries({"plan": STEPS}, optional={"explanation": LEAVES})
)


def every_model() -> list[type[tool_schemas.ToolArguments]]:
    kinds = list(tool_schemas.ToolArguments.__subclasses__())
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    return [kind for kind in kinds if kind.__module__.startswith("app_server.")]


def lenient(schema: Json) -> Json:
    """Return the schema as it is checked: null is allowed for optional fields, and unknown fields are allowed."""
    if schema.get("type") == "array":
        return {**schema, "items": lenient(schema["items"])}
    if schema.get("type") != "object":
        return schema
    required = schema.get("required", [])
    properties = {
        name: lenient(each) if name in required else {"anyOf": [lenient(each), {"type": "null"}]}
        for name, each in schema["properties"].items()
    }
    return {"type": "object", "properties": properties, "required": required}


@pytest.mark.parametrize("kind", [tool_schemas.ShellArguments, tool_schemas.PlanArguments])
@given(value=ARGUMENTS)
def test_what_is_accepted_is_what_the_schema_says(
    kind: type[tool_schemas.ToolArguments], value: Json
) -> None:
    try:
        tool_schemas.parse_arguments(json.dumps(value), kind)
    except ToolFailure:
        return
    assert Draft202012Validator(lenient(tool_schemas.parameters(kind))).is_valid(value)


@pytest.mark.parametrize("kind", every_model())
def test_null_is_the_same_as_leaving_out(kind: type[tool_schemas.ToolArguments]) -> None:
    schema = tool_schemas.parameters(kind)
    filler = {"string": "x", "number": 1, "boolean": True, "array": []}
    required = {}
    for name in schema.get("required", []):
        each = schema["properties"][name]
        required[name] = each["enum"][0] if "enum" in each else filler[each["type"]]
    optional = dict.fromkeys(schema["properties"].keys() - required.keys())
    parsed = tool_schemas.parse_arguments(json.dumps(required | optional | {"unknown": {"to": "us"}}), kind)
    assert parsed == tool_schemas.parse_arguments(json.dumps(required), kind)


def test_every_function_tool_has_a_schema_that_is_one() -> None:
    for tool in TOOLS:
        spec = tool.spec()
        if isinstance(spec, FunctionTool):
            Draft202012Validator.check_schema(spec.parameters)
            assert spec.parameters["additionalProperties"] is False


def test_arguments_of_other_kinds_have_no_schema() -> None:
    class Odd(tool_schemas.ToolArguments):
        many: dict[str, str]

    with pytest.raises(TypeError, match="no schema"):
        tool_schemas.parameters(Odd)


def test_usual_arguments() -> None:
    usual = {"command": ["ls"], "workdir": None, "timeout_ms": 5, "with_escalated_permissions": False}
    parsed = tool_schemas.parse_arguments(json.dumps({**usual, "more": 1}), tool_schemas.ShellArguments)
    assert (parsed.command, parsed.workdir, parsed.timeout_ms) == (("ls",), None, 5)


def test_a_whole_number_may_be_written_with_a_fraction_of_zero() -> None:
    assert (
        tool_schemas.parse_arguments('{"session_id": 7.0}', tool_schemas.WriteStdinArguments).session_id == 7
    )
    with pytest.raises(ToolFailure, match=r"\$\.session_id"):
        tool_schemas.parse_arguments('{"session_id": 7.5}', tool_schemas.WriteStdinArguments)


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    class Nothing(tool_schemas.ToolArguments):
        limit: int | None = None

    assert tool_schemas.parse_arguments(text, Nothing).limit is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON: "),
        ("[1]", "$: Expected `object`"),
        ("null", "$: Expected `object`"),
        ('{"command": "ls"}', "$.command: "),
        ('{"command": ["ls", 5]}', "$.command[1]: "),
        ('{"command": null}', "$.command: "),
        ('{"command": ["ls"], "timeout_ms": -1}', "$.timeout_ms: "),
        ('{"command": ["ls"], "timeout_ms": true}', "$.timeout_ms: "),
        ('{"command": ["ls"], "timeout_ms": "5"}', "$.timeout_ms: "),
        ('{"command": ["ls"], "timeout_ms": NaN}', "not JSON"),
        ('{"command": ["ls"], "timeout_ms": 1e999}', "$.timeout_ms: "),
        ('{"command": ["ls"], "with_escalated_permissions": "yes"}', "$.with_escalated_permissions: "),
        ('{"command": ["\\ud800"]}', "not JSON"),
        ('{"command": ["\ud800"]}', "not JSON"),
        ("{}", "$: Object missing required field `command`"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_an_error_names_its_place(text: str, told: str) -> None:
    with pytest.raises(ToolFailure) as raised:
        tool_schemas.parse_arguments(text, tool_schemas.ShellArguments)
    assert str(raised.value).startswith("failed to parse function arguments: " + told)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("text", "value"), [("", None), (" \n", None), ("null", None), ("{}", {}), ('{"a": [1]}', {"a": [1]})]
)
def test_arguments_that_others_check_are_passed_on(text: str, value: Json) -> None:
    assert tool_schemas.parse_json(text) == value


@pytest.mark.parametrize("text", ["{", "NaN", "[" * 100_000, '{"a": "\ud800"}'])
def test_what_is_no_json_is_not_passed_on(text: str) -> None:
    with pytest.raises(ToolFailure, match="not JSON"):
        tool_schemas.parse_json(text)
