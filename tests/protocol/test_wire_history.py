"""Events, history items, stored lines, operations and policies are unchanged by a round trip over the wire."""

import json
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app_server.engine.storage.line_reader import parse_event_msg
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import AddFileChange
from app_server_protocol.events.command_events import Duration, PatchApplyBeginEvent
from app_server_protocol.events.msg import EVENTS, SessionConfiguredEvent
from app_server_protocol.events.notice_events import ErrorEvent
from app_server_protocol.ids import ConversationId, SessionOrigin, new_conversation_id, parse_conversation_id
from app_server_protocol.mcp import CallToolResult, TextContent
from app_server_protocol.parse import read
from app_server_protocol.policy import AskForApproval, DangerFullAccess, ReadOnly, SandboxMode, WorkspaceWrite
from app_server_protocol.responses import (
    FunctionCallOutput,
    FunctionCallOutputPayload,
    MessageItem,
    OtherItem,
    ResponseItem,
    parse_response_item,
)
from app_server_protocol.rollout import (
    CompactedItem,
    SessionMetaLine,
    TurnContextItem,
    line_type,
    stored_line,
)
from app_server_protocol.v1 import v1_table
from app_server_protocol.v1.ops import OPERATIONS, Op, OverrideTurnContextOp, Submission, UserTurnOp
from app_server_protocol.wire_fields import SandboxPolicy
from tests.support.published import definitions
from tests.support.schema_examples import THREAD, bare, check_round_trip, examples

policies: TypeAdapter[SandboxPolicy] = TypeAdapter(SandboxPolicy)
operations: TypeAdapter[Op] = TypeAdapter(Op)
items: TypeAdapter[ResponseItem] = TypeAdapter(ResponseItem)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


DEFINITIONS = definitions(v1_table.TABLE.api)
ITEMS = examples("ResponseItem", DEFINITIONS)
FUTURE: Json = {"type": "from_the_future", "kept": {"deep": [1, None]}}


def test_a_history_item_is_written_as_it_was_read_but_for_its_id() -> None:
    for raw in (*ITEMS, FUTURE):
        item = parse_response_item(raw)
        written = {key: value for key, value in raw.items() if key not in ("id", "output")}
        assert bare(item.to_value()).items() >= bare(written).items()
        assert "id" not in item.to_value()
        assert item == items.validate_python(raw)
        assert isinstance(item, OtherItem) == (raw["type"] in ("from_the_future", "other"))


def test_ids_of_items_are_read_but_not_written() -> None:
    item = parse_response_item({"type": "message", "id": "msg-1", "role": "user", "content": []})
    assert isinstance(item, MessageItem)
    assert item.id == "msg-1"
    assert "id" not in item.to_value()


def test_an_output_is_written_as_text_and_read_from_every_spelling() -> None:
    written = FunctionCallOutput(call_id="c", output=FunctionCallOutputPayload(content="x", success=True))
    assert json.loads(written.to_json())["output"] == "x"
    as_object = {"type": "function_call_output", "call_id": "c", "output": {"content": "x", "success": True}}
    assert parse_response_item(as_object) == written


@given(st.dictionaries(st.sampled_from(["type", "role", "content", "call_id", "output"]), json_values))
def test_no_object_makes_reading_an_item_fail(raw: Json) -> None:
    json.loads(parse_response_item(raw).to_json())


@given(st.sampled_from([raw["type"] for raw in ITEMS]), json_values)
def test_a_damaged_item_is_kept_as_it_is(kind: str, value: Json) -> None:
    item = parse_response_item({"type": kind, "call_id": [value], "role": [value], "action": 1, "summary": 1})
    assert isinstance(item, OtherItem)
    assert item.to_value()["type"] == kind


PAYLOADS: Mapping[str, Callable[[Json], Json]] = {
    "session_meta": partial(read, SessionMetaLine),
    "response_item": parse_response_item,
    "compacted": partial(read, CompactedItem),
    "turn_context": partial(read, TurnContextItem),
    "event_msg": parse_event_msg,
}


META: Json = {
    "id": THREAD,
    "timestamp": "2026-03-04T10:20:30.123Z",
    "cwd": "/ws",
    "originator": "codex_cli_rs",
    "cli_version": "0.58.0",
    "instructions": None,
    "source": "vscode",
    "model_provider": "mock",
}
SETTINGS: Json = {
    "cwd": "/ws",
    "approval_policy": "on-request",
    "sandbox_policy": {
        "mode": "workspace-write",
        "writable_roots": ["/extra"],
        "network_access": False,
        "exclude_tmpdir_env_var": False,
        "exclude_slash_tmp": True,
    },
    "model": "m",
    "summary": "auto",
}
WITHOUT_ROOTS = {
    name: value for name, value in SETTINGS["sandbox_policy"].items() if name != "writable_roots"
}
SAID: Json = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("session_meta", META),
        ("session_meta", {**META, "git": {"commit_hash": "a04d826", "branch": "main"}}),
        ("session_meta", {**META, "source": {"subagent": "review"}}),
        ("session_meta", {**META, "source": {"subagent": {"other": "helper"}}}),
        ("turn_context", SETTINGS),
        ("turn_context", {**SETTINGS, "sandbox_policy": WITHOUT_ROOTS}),
        ("turn_context", {**SETTINGS, "effort": "high", "summary": "none"}),
        ("compacted", {"message": "SUMMARY"}),
        ("compacted", {"message": "SUMMARY", "replacement_history": [SAID]}),
        ("response_item", SAID),
        ("response_item", FUTURE),
        ("event_msg", {"type": "user_message", "message": "hi", "images": []}),
        ("event_msg", {"type": "user_message", "message": "hi"}),
    ],
)
def test_a_stored_line_survives_a_round_trip(kind: str, payload: Json) -> None:
    line = json.loads(stored_line("2026-03-04T10:20:30.123Z", PAYLOADS[kind](payload)))
    assert list(line.items()) == [
        ("timestamp", "2026-03-04T10:20:30.123Z"),
        ("type", kind),
        ("payload", payload),
    ]


def test_a_line_knows_its_type_by_its_payload() -> None:
    assert line_type(ErrorEvent(message="x")) == "event_msg"
    assert line_type(OtherItem(type="error")) == "response_item"


def test_a_conversation_of_a_later_version_stays_readable() -> None:
    payload = {**META, "source": "hologram", "memory": {"new": 1}}
    assert read(SessionMetaLine, payload).source is SessionOrigin.UNKNOWN


def test_an_operation_survives_a_round_trip() -> None:
    check_round_trip("Op", DEFINITIONS, lambda raw: operations.validate_python(raw).to_value())
    kinds = {kind.model_fields["type"].default for kind in OPERATIONS}
    assert {raw["type"] for raw in examples("Op", DEFINITIONS)} == kinds
    check_round_trip("Submission", DEFINITIONS, lambda raw: Submission.model_validate(raw).to_value())


def test_an_effort_of_null_is_told_from_one_that_is_absent() -> None:
    reset = OverrideTurnContextOp.model_validate({"type": "override_turn_context", "effort": None})
    assert reset.model_fields_set == {"type", "effort"}
    assert "effort" not in OverrideTurnContextOp(model="m").model_fields_set


@pytest.mark.parametrize("path", ["/a\0b", "/a\ud800b"])
def test_paths_that_no_file_can_have_are_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        UserTurnOp.model_validate({**SETTINGS, "type": "user_turn", "items": [], "cwd": path})
    with pytest.raises(ValidationError):
        policies.validate_python({"mode": "workspace-write", "writable_roots": [path]})


@pytest.mark.parametrize(
    ("raw", "policy"),
    [
        ({"mode": "read-only"}, ReadOnly()),
        ({"type": "readOnly"}, ReadOnly()),
        ({"mode": "readOnly"}, ReadOnly()),
        ({"type": "dangerFullAccess"}, DangerFullAccess()),
        ({"mode": "danger-full-access", "unknown": 1}, DangerFullAccess()),
        (
            {
                "type": "workspaceWrite",
                "writableRoots": ["/x"],
                "networkAccess": True,
                "excludeSlashTmp": True,
            },
            WorkspaceWrite(writable_roots=("/x",), network_access=True, exclude_slash_tmp=True),
        ),
        (
            {"type": "workspace-write", "writable_roots": ["/x"], "exclude_tmpdir_env_var": True},
            WorkspaceWrite(writable_roots=("/x",), exclude_tmpdir_env_var=True),
        ),
    ],
)
def test_every_spelling_of_a_sandbox_policy_is_understood(raw: Json, policy: SandboxPolicy) -> None:
    assert policies.validate_python(raw) == policy
    assert policies.validate_python(policy) == policy
    assert json.loads(policies.dump_json(policy))["mode"] == policy.mode


@pytest.mark.parametrize(
    "raw", [{}, {"mode": "off"}, {"mode": 5}, {"mode": ["read-only"]}, "read-only", None, []]
)
def test_an_unknown_sandbox_is_an_error_and_never_a_default(raw: Json) -> None:
    with pytest.raises(ValidationError):
        policies.validate_python(raw)


@pytest.mark.parametrize(
    ("spelling", "policy"),
    [
        ("on-request", AskForApproval.ON_REQUEST),
        ("onRequest", AskForApproval.ON_REQUEST),
        ("unlessTrusted", AskForApproval.UNTRUSTED),
        ("never", AskForApproval.NEVER),
    ],
)
def test_every_spelling_of_an_approval_policy_is_understood(spelling: str, policy: AskForApproval) -> None:
    assert AskForApproval(spelling) is policy
    with pytest.raises(ValueError, match="sometimes"):
        AskForApproval("sometimes")
    with pytest.raises(ValueError, match="Never"):
        AskForApproval("Never")


def test_sandbox_modes_are_understood_in_camel_case() -> None:
    assert SandboxMode("workspaceWrite") is SandboxMode.WORKSPACE_WRITE


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=16))
def test_a_conversation_id_is_a_uuid_of_version_7_that_sorts_by_time(clock: int, random: bytes) -> None:
    made = new_conversation_id(clock, random)
    assert parse_conversation_id(made) == made
    assert (len(made), made[14]) == (36, "7")
    assert made[19] in "89ab"
    assert int(made.replace("-", "")[:12], 16) == clock


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (THREAD, ConversationId(THREAD)),
        (THREAD.upper(), ConversationId(THREAD)),
        (THREAD.replace("-", ""), ConversationId(THREAD)),
        ("../../etc/passwd", None),
        (THREAD + "\n", None),
        ("", None),
    ],
)
def test_ids_are_read_in_every_usual_spelling(text: str, parsed: ConversationId | None) -> None:
    assert parse_conversation_id(text) == parsed


def test_an_item_with_a_key_that_is_no_text_is_an_unknown_one() -> None:
    assert isinstance(parse_response_item({"type": "message", "\ud800content": []}), OtherItem)
    assert isinstance(parse_response_item({"type": "\ud800"}), OtherItem)


any_text = st.text(st.characters(exclude_categories=()), max_size=30)


def test_an_event_survives_a_round_trip() -> None:
    def through(raw: Json) -> Json:
        event = parse_event_msg(raw)
        assert event is not None
        assert json.loads(event.to_json()) == event.to_value()
        assert event.to_json().startswith(f'{{"type":"{raw["type"]}"'.encode())
        assert parse_event_msg(event.to_value()) == event
        assert read(type(event), json.loads(event.to_json())) == event
        return event.to_value()

    check_round_trip("EventMsg", DEFINITIONS, through)
    assert {raw["type"] for raw in examples("EventMsg", DEFINITIONS)} == set(EVENTS)


@pytest.mark.parametrize("raw", [{"type": "from_the_future"}, {"type": 5}, {}, [], "text", None])
def test_what_is_no_known_event_is_none(raw: Json) -> None:
    assert parse_event_msg(raw) is None


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "agent_message", "message": 5},
        {
            "type": "patch_apply_begin",
            "call_id": "c",
            "auto_approved": True,
            "changes": {"/a": {"content": "x"}},
        },
        {
            "type": "patch_apply_begin",
            "call_id": "c",
            "auto_approved": True,
            "changes": {"/a": {"add": {"content": "x"}, "delete": {"content": "x"}}},
        },
    ],
)
def test_a_damaged_event_is_none(raw: Json) -> None:
    assert parse_event_msg(raw) is None


def test_events_inside_of_session_configured_are_models() -> None:
    event = read(
        SessionConfiguredEvent,
        {
            "session_id": THREAD,
            "model": "m",
            "history_log_id": 0,
            "history_entry_count": 0,
            "rollout_path": "/r",
            "initial_messages": [{"type": "error", "message": "x"}],
        },
    )
    assert event.initial_messages == (ErrorEvent(message="x"),)


@given(any_text, any_text)
def test_writing_never_fails_on_odd_text(path: str, content: str) -> None:
    event = PatchApplyBeginEvent(
        call_id="c", auto_approved=True, changes={path: AddFileChange(content=content)}
    )
    ((written, change),) = json.loads(event.to_json())["changes"].items()
    assert change == {"add": {"content": content}}
    # A key that UTF-8 cannot encode may get replacement characters; everything else is exact.
    assert written == path or "\ufffd" in written


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@given(any_json)
def test_writing_never_fails_on_values_that_pass_through(value: Json) -> None:
    result = CallToolResult(content=(TextContent(text="\ud800"),), structured_content=value)
    json.loads(result.to_json(), parse_constant=pytest.fail)
    json.loads(CallToolResult(content=(), structured_content=value).to_json(), parse_constant=pytest.fail)


def test_writing_does_not_fail_on_what_is_nested_too_deeply() -> None:
    value: Json = []
    for _ in range(900):
        value = [value]
    json.loads(CallToolResult(content=(), structured_content=value).to_json())


def test_a_duration_of_seconds() -> None:
    assert Duration.from_seconds(1.5) == Duration(secs=1, nanos=500_000_000)
    assert Duration.from_seconds(0.9999999999) == Duration(secs=1, nanos=0)
    assert Duration.from_seconds(-1) == Duration(secs=0, nanos=0)
