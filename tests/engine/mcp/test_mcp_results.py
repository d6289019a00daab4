"""Results for the model and the client: tools by name and schema, results, and texts of failures."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpServerConfig, McpStdioTransport
from app_server.engine.mcp import mcp_errors
from app_server.engine.mcp.input_schemas import InvalidSchema, normalize_schema
from app_server.engine.mcp.results import McpCallOutcome, parse_result, payload_of, text_result
from app_server.engine.mcp.stdio_transport import find_program, process_environment, starting_folder
from app_server.engine.mcp.streamable_http import display_url, request_headers
from app_server.engine.mcp.tool_catalog import qualify
from app_server_protocol.encoding import Json
from app_server_protocol.mcp import CallToolResult
from app_server_protocol.responses import FunctionCallOutputPayload
from tests.engine.mcp.fake_server import PNG


def parsed(raw: Json) -> CallToolResult:
    result = parse_result(raw)
    assert result is not None
    return result


def shown(raw: Json) -> FunctionCallOutputPayload:
    return payload_of(parsed(raw))


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_structured_content_comes_first() -> None:
    payload = shown({"content": [text("ignored")], "structuredContent": {"ok": True, "value": 42}})
    assert payload == FunctionCallOutputPayload(content='{"ok":true,"value":42}', success=True)


def test_without_it_the_blocks_are_given_as_json() -> None:
    payload = shown({"content": [text("hello"), text("world")], "structuredContent": None})
    assert payload.content == '[{"text":"hello","type":"text"},{"text":"world","type":"text"}]'
    assert payload.success is True


@pytest.mark.parametrize(("flag", "success"), [(True, False), (False, True), (None, True), ("yes", True)])
def test_success_is_the_absence_of_the_error_flag(flag: Json, success: bool) -> None:
    assert shown({"content": [], "structuredContent": {"message": "bad"}, "isError": flag}).success is success


def test_an_image_reaches_the_model_as_one() -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    payload = shown({"content": [text("look"), image]})
    assert payload.to_wire() == list(payload.content_items or ())
    assert [item.model_dump() for item in payload.content_items or ()] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
    ]


def test_an_image_that_is_already_a_data_url_is_not_wrapped_twice() -> None:
    image = {"type": "image", "data": f"data:image/png;base64,{PNG}", "mimeType": ""}
    (item,) = shown({"content": [image]}).content_items or ()
    assert item.model_dump()["image_url"] == f"data:image/png;base64,{PNG}"


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image", "data": "no base64!", "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "image", "data": PNG, "mimeType": "image/svg+xml"},
        {"type": "image", "data": PNG[:-16], "mimeType": "image/png"},
        {"type": "image", "data": "A" * 20_000_000, "mimeType": "image/png"},
    ],
)
def test_an_image_that_an_api_would_refuse_becomes_a_sentence(image: Json) -> None:
    payload = shown({"content": [image]})
    assert payload.content_items is None
    assert "an image was left out" in payload.content
    assert len(payload.content) < 200


@pytest.mark.parametrize("raw", [None, [], "x", {}, {"content": "not a list"}, {"content": None}])
def test_an_invalid_result_is_rejected(raw: Json) -> None:
    assert parse_result(raw) is None


def test_a_block_that_is_none_is_shown_as_it_came() -> None:
    payload = shown({"content": [{"type": "text"}, 5, {"type": "zzz", "foo": 1}]})
    assert [block.get("text") for block in json.loads(payload.content)] == ['{"type":"text"}', "5", None]


def test_text_is_cut_over_all_blocks_together() -> None:
    result = parsed({"content": [text("a" * mcp_errors.MAX_RESULT_CHARS), text("b" * 10)]})
    assert len(result.to_json()) < mcp_errors.MAX_RESULT_CHARS + 1000
    assert "[cut here: the text had 10 characters]" in payload_of(result).content


def test_structured_content_that_is_too_long_is_cut_as_text() -> None:
    result = parsed({"content": [], "structuredContent": {"a": "b" * (2 * mcp_errors.MAX_RESULT_CHARS)}})
    assert result.structured_content is None
    assert len(result.to_json()) < mcp_errors.MAX_RESULT_CHARS + 1000


def test_the_number_of_blocks_is_bounded() -> None:
    result = parsed({"content": [text("x")] * (mcp_errors.MAX_RESULT_BLOCKS + 5)})
    assert len(result.content) == mcp_errors.MAX_RESULT_BLOCKS + 1
    assert "5 more blocks" in payload_of(result).content


def test_notes_for_the_protocol_itself_are_not_passed_on() -> None:
    result = parsed({"content": [{**text("x"), "_meta": {"k": 1}}], "_meta": {"z": 1}})
    assert result.to_value() == {"content": [{"type": "text", "text": "x"}]}


def test_an_outcome_is_reported_to_client_and_model() -> None:
    worked = McpCallOutcome(text_result("x", is_error=False), None, 1.5)
    assert worked.event_result().to_value() == {
        "Ok": {"content": [{"text": "x", "type": "text"}], "isError": False}
    }
    failed = McpCallOutcome(None, "no", 0)
    assert failed.is_error
    assert failed.event_result().to_value() == {"Err": "no"}
    assert failed.payload() == FunctionCallOutputPayload(content="no", success=False)


def test_users_of_github_are_told_how_to_log_in() -> None:
    config = McpServerConfig(name="github", transport=McpHttpTransport(url=mcp_errors.GITHUB_URL))
    assert mcp_errors.start_failure(config, "OAuth is unsupported").message == (
        "GitHub MCP does not support OAuth. Log in by adding a personal access token "
        "(https://github.com/settings/personal-access-tokens) to your environment and config.toml:\n"
        "[mcp_servers.github]\nbearer_token_env_var = CODEX_GITHUB_PERSONAL_ACCESS_TOKEN"
    )


def test_one_cause_stands_alone_and_several_are_numbered() -> None:
    head = "tool call error: tool call failed for `s/t`\n\nCaused by:\n"
    assert (
        mcp_errors.tool_call_error("s", "t", ("tools/call failed: x",)) == head + "    tools/call failed: x"
    )
    numbered = head + "    0: timed out awaiting tools/call after 2s\n    1: deadline has elapsed"
    assert mcp_errors.tool_call_error("s", "t", mcp_errors.timed_out("tools/call", 2)) == numbered


def test_a_process_sees_an_allow_list_and_what_its_table_names() -> None:
    user = {
        "HOME": "/h",
        "PATH": "/bin",
        "OPENAI_API_KEY": "k",
        "MINE": "m",
        "LC_ALL": "C",
        "AWS_SECRET": "s",
    }
    transport = McpStdioTransport(
        command="x", env={"EXTRA": "e", "HOME": "/other"}, env_vars=("MINE", "MISSING")
    )
    seen = {"HOME": "/other", "PATH": "/bin", "LC_ALL": "C", "MINE": "m", "EXTRA": "e"}
    assert process_environment(transport, user, "/own", "/own/ws") == seen
    for inside in ("/ws", "/ws/sub"):
        assert process_environment(transport, user, inside, "/ws") == {**seen, "PYTHONSAFEPATH": "1"}
    wanted = McpStdioTransport(command="x", env={"PYTHONSAFEPATH": ""})
    assert process_environment(wanted, {}, "/ws", "/ws") == {"PYTHONSAFEPATH": ""}, (
        "the user's own word counts"
    )


def test_a_server_starts_in_the_workspace_only_where_the_user_says_so(tmp_path: Path) -> None:
    def folder(cwd: str | None = None, command: str = "x", home: Path = tmp_path) -> str:
        return starting_folder("a", McpStdioTransport(command=command, cwd=cwd), str(home), "/ws")

    assert folder() == str(tmp_path / "mcp" / "a")
    assert os.stat(tmp_path / "mcp" / "a").st_mode & 0o777 == 0o700
    assert folder(home=tmp_path / "none") == "/"
    assert folder(cwd="/srv") == "/srv"
    assert (folder(cwd="workspace"), folder(cwd="workspace", command="./x")) == ("/ws", "/ws")
    for cwd, command in ((".", "x"), ("tools", "x"), (None, "./x")):
        with pytest.raises(mcp_errors.McpFailure, match=r'is relative: .* `cwd = "workspace"`'):
            folder(cwd, command)


def test_a_program_is_not_looked_for_in_the_working_directory(tmp_path: Path) -> None:
    planted = tmp_path / "server"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    with pytest.raises(FileNotFoundError):
        find_program("server", {"PATH": ":.:/usr/bin"}, str(tmp_path))
    assert find_program("server", {"PATH": f".:{tmp_path}"}, "/") == str(planted)
    assert find_program("./server", {}, str(tmp_path)) == f"{tmp_path}/./server"


def test_a_token_comes_from_the_environment_and_wins_over_a_header() -> None:
    transport = McpHttpTransport(
        url="https://x",
        bearer_token_env_var="TOKEN",
        http_headers={"authorization": "old", "A": "1"},
        env_http_headers={"B": "FROM", "C": "MISSING"},
    )
    assert request_headers("s", transport, {"TOKEN": "t", "FROM": "2"}) == {
        "A": "1", "B": "2", "Authorization": "Bearer t",
    }  # fmt: skip
    with pytest.raises(
        mcp_errors.McpFailure, match="Environment variable TOKEN for MCP server 's' is not set"
    ):
        request_headers("s", transport, {})


def test_a_shown_url_has_no_secrets() -> None:
    assert display_url("https://me:secret@host:8/path?token=secret#x") == "https://host:8/path"


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


FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def test_a_plain_name_is_prefixed_with_its_server() -> None:
    assert qualify([("files", "read")]) == {"mcp__files__read": ("files", "read")}


def test_a_long_name_ends_in_the_sha1_of_the_whole() -> None:
    (name,) = qualify([("fake", "a" * 200)])
    assert name == "mcp__fake__aaaaaaaaaaaaa" + hashlib.sha1(b"mcp__fake__" + b"a" * 200).hexdigest()
    assert len(name) == 64


def test_a_name_that_is_taken_is_not_given_again() -> None:
    (name,) = qualify([("s", "x")], taken={"mcp__s__x"})
    assert name != "mcp__s__x"
    assert FIT.fullmatch(name)


@example([("s", "a.b"), ("s", "a b"), ("a__b", "c"), ("a", "b__c"), ("s", "a b"), ("s", "  ")])
@given(st.lists(st.tuples(st.from_regex(r"[a-zA-Z0-9_-]{1,90}", fullmatch=True), st.text(max_size=90))))
def test_every_name_fits_and_leads_to_one_tool(pairs: list[tuple[str, str]]) -> None:
    named = qualify(pairs)
    assert all(FIT.fullmatch(name) for name in named)
    assert set(named.values()) == {pair for pair in pairs if pair[1].strip()}
    assert len(set(named.values())) == len(named)
