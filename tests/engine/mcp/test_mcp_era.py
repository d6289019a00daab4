"""What a message of the revision 2026-07-28 carries: the stamp, headers, marked parameters, questions in results."""

import base64
import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.mcp import mcp_errors
from app_server.engine.mcp.input_rounds import InputRequired, UnusableResult, complete, read_result
from app_server.engine.mcp.mcp_era import (
    MODERN_VERSION,
    InvalidMark,
    MirroredParameter,
    UnfitHeader,
    message_headers,
    mirrored_parameters,
    read_discovery,
    stamped,
    supported_versions,
)
from app_server_protocol.encoding import Json

PREFIX = "io.modelcontextprotocol/"


def call(name: str, arguments: Json = None) -> Json:
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}


def schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def marked(header: Json, kind: Json = "string") -> Json:
    return {"type": kind, "x-mcp-header": header}


def header_of(value: Json) -> str | None:
    mirrored = {"t": (MirroredParameter(("a", "b"), "X"),)}
    return message_headers(call("t", {"a": {"b": value}}), mirrored).get("mcp-param-x")


# --- the stamp and discovery
def test_the_stamp_is_added_to_what_the_caller_gave_and_cannot_be_forged() -> None:
    params: Json = {"name": "t", "_meta": {"own": 1, f"{PREFIX}protocolVersion": "1999"}}
    assert stamped(params, {"name": "c"}, {"roots": {}}) == {
        "name": "t",
        "_meta": {
            "own": 1,
            f"{PREFIX}protocolVersion": MODERN_VERSION,
            f"{PREFIX}clientInfo": {"name": "c"},
            f"{PREFIX}clientCapabilities": {"roots": {}},
        },
    }
    assert params["_meta"][f"{PREFIX}protocolVersion"] == "1999"


@pytest.mark.parametrize(
    "result",
    [None, [], {}, {"supportedVersions": "x"}, {"supportedVersions": []}, {"supportedVersions": [1]}],
)
def test_what_names_no_version_is_no_discovery(result: Json) -> None:
    assert read_discovery(result) is None


def test_a_discovery_names_versions_capabilities_and_the_server() -> None:
    result = {
        "resultType": "complete",
        "supportedVersions": ["a", 5, "b\n"],
        "capabilities": {"tools": {}},
        "_meta": {f"{PREFIX}serverInfo": {"name": "s"}},
    }
    found = read_discovery(result)
    assert found is not None
    assert (found.versions, found.capabilities, found.info) == (("a",), {"tools": {}}, {"name": "s"})
    assert read_discovery({**result, "resultType": "input_required"}) is None
    assert supported_versions({"supported": ["x", None]}) == ("x",)
    assert supported_versions("x") == ()


# --- headers
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("eu-west", "eu-west"),
        ("two words", "two words"),
        ("", ""),
        (" padded", "=?base64?IHBhZGRlZA==?="),
        ("líne", "=?base64?bMOtbmU=?="),
        ("a\r\nX-Evil: 1", "=?base64?YQ0KWC1FdmlsOiAx?="),
        ("tab\there", "=?base64?dGFiCWhlcmU=?="),
        ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-7, "-7"),
        (3.0, "3"),
        (2**53 - 1, "9007199254740991"),
        (None, None),
        ([1], None),
        ({"c": 1}, None),
    ],
)
def test_values_in_headers(value: Json, header: str | None) -> None:
    assert header_of(value) == header


@pytest.mark.parametrize("value", [2**53, -(2**53), 10**400, 1.5, "x" * 8193, "ü" * 4000, "\ud800"])
def test_a_value_that_is_unfit_for_a_header_fails_the_call(value: Json) -> None:
    with pytest.raises(UnfitHeader):
        header_of(value)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_every_text_arrives_and_no_header_has_a_control_character(value: str) -> None:
    sent = header_of(value)
    assert sent is not None
    assert sent.isascii()
    assert sent.isprintable()
    assert sent == sent.strip()
    is_encoded = sent.startswith("=?base64?") and sent.endswith("?=")
    assert (base64.b64decode(sent[9:-2], validate=True).decode() if is_encoded else sent) == value


def test_the_method_and_the_name_are_repeated() -> None:
    assert message_headers(call("t"), {}) == {"mcp-method": "tools/call", "mcp-name": "t"}
    read = {"method": "resources/read", "params": {"uri": "note://ö"}}
    assert message_headers(read, {}) == {
        "mcp-method": "resources/read",
        "mcp-name": "=?base64?bm90ZTovL8O2?=",
    }
    assert message_headers({"method": "tools/list", "params": {"name": "x"}}, {}) == {
        "mcp-method": "tools/list"
    }


def test_parameters_of_another_tool_are_not_repeated() -> None:
    mirrored = {"t": (MirroredParameter(("a",), "X"),)}
    assert "mcp-param-x" not in message_headers(call("other", {"a": "1"}), mirrored)
    assert "mcp-param-x" not in message_headers(call("t", None), mirrored)
    assert "mcp-param-x" not in message_headers(call("t", {"a": {"b": "1"}}), mirrored)


# --- marked parameters
def test_marked_parameters_are_found_through_properties() -> None:
    found = mirrored_parameters(
        schema(
            a=marked("A"),
            b=schema(c=marked("C", "integer")),
            d={"default": marked("No")},
            e={"type": "string"},
        )
    )
    assert {one.header: one.path for one in found} == {"A": ("a",), "C": ("b", "c")}
    assert mirrored_parameters(None) == mirrored_parameters([]) == ()


def test_a_property_may_be_called_like_the_mark_or_a_keyword() -> None:
    named = schema(default=marked("A"), **{"x-mcp-header": {"type": "string"}})
    assert [one.path for one in mirrored_parameters(named)] == [("default",)]


@pytest.mark.parametrize(
    "wrong",
    [
        schema(a=marked("has space")),
        schema(a=marked("")),
        schema(a=marked("ü")),
        schema(a=marked("a\n")),
        schema(a=marked(5)),
        schema(a=marked("A", "number")),
        schema(a=marked("A", ["string", "null"])),
        schema(a=marked("A", "array")),
        schema(a=marked("Same"), b=marked("same")),
        schema(a={"type": "array", "items": marked("A")}),
        schema(a={"anyOf": [marked("A")]}),
        schema(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": marked("A")}},
        marked("Root", "object"),
        schema(**{f"p{n}": marked(f"H{n}") for n in range(mcp_errors.MAX_MIRRORED + 1)}),
    ],
)
def test_forbidden_marks(wrong: Json) -> None:
    with pytest.raises(InvalidMark):
        mirrored_parameters(wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "x-mcp-header", "type", "items", "a", "$defs"]), inner, max_size=3
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_schema_gives_parameters_or_a_reason(any_schema: Json) -> None:
    with contextlib.suppress(InvalidMark):
        found = mirrored_parameters(any_schema)
        assert len({one.header.lower() for one in found}) == len(found)


# --- questions in results
ASKS: Json = {"resultType": "input_required", "inputRequests": {"k": {"method": "roots/list"}}}


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "task"},
        {"resultType": 5},
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": {}},
        {"resultType": "input_required", "inputRequests": []},
        {"resultType": "input_required", "inputRequests": {"a": {"method": 5}}},
        {"resultType": "input_required", "requestState": {"a": 1}},
        ASKS
        | {"inputRequests": {str(n): {"method": "roots/list"} for n in range(mcp_errors.MAX_INPUTS + 1)}},
    ],
)
def test_results_that_end_a_call(result: Json) -> None:
    with pytest.raises(UnusableResult):
        read_result("tools/call", result)


def test_complete_results_and_questions() -> None:
    finished: list[Json] = [{}, {"resultType": None}, {"resultType": "complete"}, [], None]
    for done in finished:
        assert read_result("tools/call", done) is None
    assert read_result("resources/read", ASKS) == InputRequired({"k": {"method": "roots/list"}}, None)
    with pytest.raises(UnusableResult):
        read_result("tools/list", ASKS)


async def test_answers_and_states_are_sent_once() -> None:
    results = iter(
        [
            ASKS | {"requestState": "one"},
            {"resultType": "input_required", "inputRequests": {"j": {"method": "roots/list"}}},
            {"content": []},
        ]
    )
    sent: list[Json] = []

    async def send(params: Json) -> Json:
        sent.append(params)
        return next(results)

    async def respond(method: str, params: Json) -> Json:
        return {"answers": len(sent)}

    params: Mapping[str, Json] = {"name": "t"}
    assert await complete("tools/call", params, send, respond, {"roots/list"}) == {"content": []}
    assert sent == [
        {"name": "t"},
        {"name": "t", "inputResponses": {"k": {"answers": 1}}, "requestState": "one"},
        {"name": "t", "inputResponses": {"j": {"answers": 2}}},
    ]
