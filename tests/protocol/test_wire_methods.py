"""The table of methods and its publications: valid examples, and current schemas, TypeScript and documentation."""

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from jsonschema import Draft7Validator
from pydantic import ValidationError

from app_server_protocol.acp import acp_table
from app_server_protocol.encoding import Json
from app_server_protocol.events.msg import EVENTS
from app_server_protocol.export import main as export
from app_server_protocol.export import schemas, typescript
from app_server_protocol.export.definitions import references
from app_server_protocol.export.guide import EXAMPLES
from app_server_protocol.method_table import (
    AnyClientRequest,
    AnyServerNotification,
    AnyServerRequest,
    NoParams,
    Table,
    by_method,
    table_of,
)
from app_server_protocol.parse import read
from app_server_protocol.policy import AskForApproval, ReviewDecision
from app_server_protocol.v1 import conversation, setup, v1_table
from app_server_protocol.v1.approval import ExecCommandApprovalResponse, parse_decision
from app_server_protocol.v1.conversation import NewConversationParams, SendUserMessageParams, TextInputItem
from app_server_protocol.v2 import v2_table
from app_server_protocol.wire_fields import PREFIX, describe_validation_error, unknown_method
from tests.support.schema_examples import THREAD

ROOT = Path(__file__).parents[2]
TURN: Json = EXAMPLES["requests"]["sendUserTurn"][0]
DEFINITIONS = schemas.definitions()


def validator(name: str) -> Draft7Validator:
    return Draft7Validator(schemas.alone(name, DEFINITIONS))


@pytest.mark.parametrize("row", v1_table.TABLE.client_requests.values(), ids=lambda row: row.method)
def test_the_example_of_a_request_fits_its_row_and_its_schema(row: AnyClientRequest) -> None:
    params, result = EXAMPLES["requests"][row.method]
    assert (params is None) == (row.params is NoParams)
    assert (row.parse(params).to_value() or None) == params or isinstance(params, dict)
    assert params is None or params.items() <= row.parse(params).to_value().items() or "Policy" in str(params)
    assert read(row.result, result).to_value() == result
    validator("ClientRequest").validate({"id": 1, "method": row.method, "params": params})
    validator(schemas.result_name(row)).validate(result)


@pytest.mark.parametrize("row", v1_table.TABLE.server_requests.values(), ids=lambda row: row.method)
def test_the_example_of_a_server_request_fits_its_row_and_its_schema(row: AnyServerRequest) -> None:
    params, result = EXAMPLES["server_requests"][row.method]
    assert read(row.params, params).to_value() == params
    assert read(row.result, result).to_value() == result
    validator("ServerRequest").validate({"id": 1, "method": row.method, "params": params})
    validator(schemas.result_name(row)).validate(result)


@pytest.mark.parametrize("row", v1_table.TABLE.server_notifications.values(), ids=lambda row: row.method)
def test_the_example_of_a_notification_fits_its_row_and_its_schema(row: AnyServerNotification) -> None:
    params = EXAMPLES["notifications"][row.method]
    assert read(row.params, params).to_value() == params
    validator("ServerNotification").validate({"method": row.method, "params": params})


def test_two_rows_of_one_table_have_different_methods() -> None:
    with pytest.raises(ValueError, match="getUserAgent"):
        by_method((setup.GET_USER_AGENT, setup.GET_USER_AGENT))


@pytest.mark.parametrize(
    "definitions",
    [DEFINITIONS, schemas.thread_definitions(experimental=True)],
    ids=["conversations", "threads"],
)
def test_every_place_in_the_order_of_publishing_has_its_method(definitions: Mapping[str, Json]) -> None:
    unions = ("ClientRequest", "ClientNotification", "ServerNotification", "ServerRequest")
    published = [
        option["properties"]["method"]["const"] for name in unions for option in definitions[name]["oneOf"]
    ]
    orders = ([name for name in published if name in order] == [*order] for order in schemas.ORDER.values())
    assert any(orders)


def test_a_method_without_a_place_in_the_order_of_publishing_comes_last() -> None:
    ranked = sorted(("new/b", "last", "new/a", "first"), key=partial(schemas._rank, ("first", "last")))
    assert ranked == ["first", "last", "new/a", "new/b"]


def test_what_orders_a_request_is_one_of_its_parameters() -> None:
    ordered = [row for row in v1_table.TABLE.client_requests.values() if row.ordered_by]
    assert {row.method for row in ordered} == {
        *("archiveConversation", "sendUserMessage", "sendUserTurn", "interruptConversation"),
        *("addConversationListener", "resumeConversation", "submit"),
    }
    for row in ordered:
        assert row.ordered_by in {field.alias for field in row.params.model_fields.values()}


def test_events_have_methods_of_their_own() -> None:
    assert conversation.event_method("task_started") == "codex/event/task_started"
    assert not {conversation.event_method(kind) for kind in EVENTS} & set(v1_table.TABLE.server_notifications)


@pytest.mark.parametrize(
    "table", [acp_table.TABLE, v1_table.TABLE, v2_table.TABLE], ids=lambda table: table.api.value
)
def test_a_table_has_the_rows_of_all_modules_of_its_folder(table: Table) -> None:
    folder = import_module(f"app_server_protocol.{table.api.value}")
    names = [each.name for each in iter_modules(folder.__path__)]
    assert table == table_of(table.api, (import_module(f"{folder.__name__}.{name}") for name in names))


def test_the_table_is_light_and_builds_no_validator_before_it_is_used() -> None:
    heavy = [
        "anyio",
        "httpcore2",
        "httpx2",
        "jsonschema",
        "mcp",
        "socket",
        "subprocess",
        "pydantic.json_schema",
    ]
    script = f"""
import sys
import pydantic.main
before = set(sys.modules)
import app_server_protocol.v1.v1_table
from app_server_protocol.events.msg import EVENTS
print(sorted(set({heavy}) & (set(sys.modules) - before)))
print([name for name, kind in EVENTS.items() if vars(kind).get('__pydantic_complete__')])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_absent_null_and_empty_parameters_are_the_same() -> None:
    row = conversation.NEW_CONVERSATION
    assert row.parse(None) == row.parse({}) == NewConversationParams()
    assert setup.GET_USER_AGENT.parse([1, 2]) == NoParams()


def test_parameters_are_understood_in_snake_case_and_unknown_fields_are_ignored() -> None:
    parsed = conversation.NEW_CONVERSATION.parse(
        {"approval_policy": "onRequest", "modelProvider": "x", "zzz": 1}
    )
    assert parsed == NewConversationParams(approval_policy=AskForApproval.ON_REQUEST, model_provider="x")


def test_a_conversation_id_is_read_in_every_usual_spelling() -> None:
    raw = {"conversationId": THREAD.upper(), "items": []}
    assert SendUserMessageParams.model_validate(raw).conversation_id == THREAD


def test_lone_surrogates_in_what_the_user_says_are_replaced() -> None:
    item = TextInputItem.model_validate({"type": "text", "data": {"text": "a\ud800b\U0001f600"}})
    assert item.data.text == "a\ufffdb\U0001f600"


@pytest.mark.parametrize(
    ("method", "params", "field", "words"),
    [
        ("newConversation", {"cwd": 7}, "cwd", "a string"),
        ("newConversation", {"approvalPolicy": "sometimes"}, "approvalPolicy", "on-failure"),
        ("newConversation", {"sandbox": "Read-Only!"}, "sandbox", "read-only"),
        ("newConversation", {"cwd": "/tmp/\0x"}, "cwd", "NUL"),
        ("newConversation", {"cwd": "/tmp/\ud800"}, "cwd", "Unicode"),
        ("newConversation", {"config": []}, "config", "an object"),
        ("newConversation", [1], "", "an object"),
        ("newConversation", "x", "", "an object"),
        ("initialize", None, "clientInfo", "missing field `clientInfo`"),
        ("sendUserMessage", {"items": []}, "conversationId", "missing field `conversationId`"),
        ("sendUserMessage", {"conversationId": "not-a-uuid", "items": []}, "conversationId", "UUID"),
        ("sendUserMessage", {"conversationId": THREAD, "items": [{}]}, "items.0.type", "items.0.type"),
        ("sendUserTurn", {**TURN, "sandboxPolicy": {"mode": "off"}}, "sandboxPolicy.mode", "read-only"),
        ("sendUserTurn", {**TURN, "sandboxPolicy": {}}, "sandboxPolicy.mode", "sandboxPolicy.mode"),
        ("addConversationListener", {"conversationId": THREAD, "experimentalRawEvents": "yes"}, None, "true"),
        ("listConversations", {"pageSize": -1}, "pageSize", "at least 0"),
        ("listConversations", {"pageSize": 1.5}, "pageSize", "an integer"),
        ("listConversations", {"pageSize": True}, "pageSize", "an integer"),
        ("getConversationSummary", {}, "", "rolloutPath"),
        ("submit", {"conversationId": THREAD, "op": {"type": "x"}}, "op.type", "interrupt"),
        ("execOneOffCommand", {"command": "ls"}, "command", "an array"),
    ],
)
def test_wrong_parameters_are_named(method: str, params: Json, field: str | None, words: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        v1_table.TABLE.client_requests[method].parse(params)
    message, named = describe_validation_error(wrong.value)
    assert message.startswith(PREFIX)
    assert words in message
    assert field is None or named == field


def test_an_error_message_quotes_nothing_that_was_sent() -> None:
    with pytest.raises(ValidationError) as wrong:
        conversation.SEND_USER_MESSAGE.parse({"conversationId": THREAD, "items": [{"type": "secret" * 1000}]})
    assert "secret" not in describe_validation_error(wrong.value)[0]


def test_an_unknown_method_is_named_and_cut() -> None:
    assert unknown_method("no/such") == "Invalid request: unknown variant `no/such`: Method not found"
    assert len(unknown_method("x" * 1_000_000).encode()) < 300


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"decision": "approved"}, ReviewDecision.APPROVED),
        ({"decision": "approved_for_session"}, ReviewDecision.APPROVED_FOR_SESSION),
        ({"decision": "denied"}, ReviewDecision.DENIED),
        ({"decision": "abort"}, ReviewDecision.ABORT),
        ({"decision": "accept"}, None),
        ({"decision": "acceptForSession"}, None),
        ({"decision": "decline"}, ReviewDecision.DENIED),
        ({"decision": "cancel"}, ReviewDecision.ABORT),
        ({"decision": "Accept"}, None),
        ({"decision": "acceptAll"}, None),
        ({"decision": ["approved"]}, None),
        ({"decision": True}, None),
        ({}, None),
        (["approved"], None),
        ("approved", None),
        (None, None),
    ],
)
def test_a_decision_is_only_read_from_a_known_word_in_its_place(
    answer: Json, decision: ReviewDecision | None
) -> None:
    assert parse_decision(answer) is decision
    if decision is not None:
        assert ExecCommandApprovalResponse.model_validate(answer).decision is decision


def test_a_key_is_not_shown_by_the_parameters_that_hold_it() -> None:
    assert "sk-secret" not in repr(setup.LOGIN_API_KEY.parse({"apiKey": "sk-secret"}))


def test_the_generated_files_are_current() -> None:
    assert export.stale_files(ROOT, export.generated_files()) == []


def test_check_names_what_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export.main(["--root", str(tmp_path)]) == 0
    written = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "schema" / "EventMsg.json").write_text("{}")
    (tmp_path / "schema" / "Gone.json").write_text("{}")
    (tmp_path / "docs" / "protocol.md").unlink()
    assert export.main(["--check", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "not current: docs/protocol.md",
        "not current: schema/EventMsg.json",
        "not current: schema/Gone.json",
    ]
    assert export.main(["--root", str(tmp_path)]) == 0
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == written


def test_every_definition_stands_on_its_own_and_is_a_schema() -> None:
    for name in DEFINITIONS:
        document = schemas.alone(name, DEFINITIONS)
        Draft7Validator.check_schema(document)
        assert set(references(document)) <= set(document.get("definitions", {})) | {name}


def test_a_schema_refuses_what_is_wrong() -> None:
    assert not validator("ClientRequest").is_valid(
        {"id": 1, "method": "newConversation", "params": {"cwd": 7}}
    )
    assert not validator("EventMsg").is_valid({"message": "a tag is always there"})
    assert not validator("ReviewDecision").is_valid("sometimes")


UNSERVED_REQUESTS = frozenset(schemas.UNSERVED["conversations"]["client_requests"])


def test_the_thread_api_is_published_but_has_no_rows() -> None:
    published = {option["properties"]["method"]["const"] for option in DEFINITIONS["ClientRequest"]["oneOf"]}
    assert published == {*v1_table.TABLE.client_requests, *UNSERVED_REQUESTS}
    assert not set(v1_table.TABLE.client_requests) & UNSERVED_REQUESTS


def test_typescript_has_a_file_for_every_type(tmp_path: Path) -> None:
    written = {path.name for path in export.write_typescript(tmp_path) if path.parent == tmp_path}
    assert {"index.ts", "EventMsg.ts", "SandboxPolicy.ts", "Result_of_CallToolResult_or_String.ts"} <= written
    text = (tmp_path / "SendUserTurnParams.ts").read_text()
    assert 'import type { SandboxPolicy } from "./SandboxPolicy";' in text
    assert "items: Array<InputItem>; cwd: string;" in text
    assert "effort?: ReasoningEffort | null;" in text
    index = (tmp_path / "index.ts").read_text()
    assert index.count("export type") == len(written) - 1
    assert index.endswith('export * as v2 from "./v2";\n')


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ClientRequest", ['"newConversation"', '"thread/start"', 'from "./v2/ThreadStartParams"']),
        ("ServerNotification", ['"authStatusChange"', '"item/completed"']),
        ("ServerRequest", ['"execCommandApproval"', '"item/tool/requestUserInput"']),
        ("InitializeResponse", ["codexHome: AbsolutePathBuf;", "capabilities?: ServerCapabilities"]),
        ("InitializeParams", ["capabilities?: InitializeCapabilities | null | ClientCapabilities"]),
        ("Personality", ['export type { Personality } from "./v2/Personality";']),
    ],
)
def test_the_messages_of_both_apis_are_beside_the_thread_types(
    tmp_path: Path, name: str, parts: list[str]
) -> None:
    export.write_typescript(tmp_path)
    text = (tmp_path / f"{name}.ts").read_text()
    assert [part for part in parts if part not in text] == []


def test_types_of_threads_that_are_beside_them_exist() -> None:
    threads = schemas.thread_definitions(experimental=True)
    assert [name for name in typescript.BESIDE_THREADS if name not in threads] == []


def test_a_type_requires_what_the_server_always_writes(tmp_path: Path) -> None:
    export.write_typescript(tmp_path)
    thread = (tmp_path / "v2" / "Thread.ts").read_text()
    assert "forkedFromId: string | null;" in thread
    # An optional field that is left out without a value is never null, and a client need not send an optional one.
    assert "brandColor?: string;" in (tmp_path / "v2" / "SkillInterface.ts").read_text()
    assert "detail?: ImageDetail | null;" in (tmp_path / "v2" / "ImageUserInput.ts").read_text()


@pytest.mark.parametrize(
    ("schema", "expression"),
    [
        (
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "Array<string | null>",
        ),
        ({"enum": ["a", "b"]}, '"a" | "b"'),
        ({"type": "object"}, "Record<string, never>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "{ [key in string]?: number }"),
        ({"type": "object", "properties": {"a-b": {}}, "required": ["a-b"]}, '{ "a-b": unknown; }'),
    ],
)
def test_schemas_as_type_expressions(schema: Json, expression: str) -> None:
    assert typescript.type_of(schema) == expression


def test_the_documentation_has_every_method_and_every_event() -> None:
    pages = export.documentation()
    named = [
        *v1_table.TABLE.client_requests,
        *v1_table.TABLE.server_requests,
        *v1_table.TABLE.server_notifications,
        *EVENTS,
    ]
    page = pages[export.DOCUMENTATION]
    assert [name for name in named if f"`{name}`\n" not in page] == []
    threads = pages[export.THREADS_REFERENCE]
    named = [
        *v2_table.TABLE.client_requests,
        *v2_table.TABLE.server_requests,
        *v2_table.TABLE.server_notifications,
    ]
    assert [name for name in named if f"`{name}`\n" not in threads] == []


def test_the_requests_of_the_thread_reference_fit_their_schemas() -> None:
    requests = [
        json.loads(line)
        for line in export.documentation()[export.THREADS_REFERENCE].splitlines()
        if line.startswith('{"id"')
    ]
    assert len(requests) == len(v2_table.TABLE.client_requests)
    for request in requests:
        v2_table.TABLE.client_requests[request["method"]].parse(request["params"])
