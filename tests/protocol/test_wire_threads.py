"""The thread API on the wire matches its models and its schemas."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from pydantic import TypeAdapter, ValidationError

from app_server.cli import dispatch
from app_server_protocol import jsonrpc
from app_server_protocol.encoding import Json
from app_server_protocol.export import main as export
from app_server_protocol.export import schemas, typescript
from app_server_protocol.export.definitions import references
from app_server_protocol.method_table import (
    AnyClientRequest,
    AnyServerNotification,
    AnyServerRequest,
    NoParams,
)
from app_server_protocol.parse import read
from app_server_protocol.v2 import v2_table
from app_server_protocol.v2.account import ApiKeyLoginAccountParams, ChatgptAccount, LoginAccountParams
from app_server_protocol.v2.fields import EXPERIMENTAL, experimental_fields_in_use
from app_server_protocol.v2.files import AtPath
from app_server_protocol.v2.items import ThreadItem
from app_server_protocol.v2.question import McpServerElicitationRequestParams
from app_server_protocol.v2.server import PlanType
from app_server_protocol.v2.settings import (
    ApprovalMode,
    AskForApproval,
    GranularAskForApproval,
    SandboxPolicy,
)
from app_server_protocol.v2.thread import SessionSource, Thread
from app_server_protocol.v2.thread_open import ThreadStartParams, ThreadStartResponse
from app_server_protocol.v2.turn import TurnInterruptParams, TurnStartParams
from app_server_protocol.wire_fields import describe_validation_error
from tests.support.loading import modules_loaded_by
from tests.support.published import definitions
from tests.support.schema_examples import check_round_trip, examples

ROOT = Path(__file__).parents[2]
STABLE = schemas.thread_definitions(experimental=False)
EVERYTHING = schemas.thread_definitions(experimental=True)
PUBLISHED = definitions(v2_table.TABLE.api)


def row_of(method: str) -> AnyClientRequest:
    return v2_table.TABLE.client_requests[method]


def check(name: str, kind: type, through: Callable[[Json], Json] | None = None) -> None:
    check_round_trip(name, PUBLISHED, through or (lambda raw: read(kind, raw).to_value()))


def test_an_item_is_written_as_it_was_read() -> None:
    adapter: TypeAdapter[ThreadItem] = TypeAdapter(ThreadItem)
    check_round_trip("ThreadItem", PUBLISHED, lambda raw: adapter.validate_python(raw).to_value())


@pytest.mark.parametrize("row", v2_table.TABLE.server_notifications.values(), ids=lambda row: row.method)
def test_a_notification_is_written_as_it_was_read(row: AnyServerNotification) -> None:
    check(schemas.params_name(row), row.params)


@pytest.mark.parametrize("row", v2_table.TABLE.client_requests.values(), ids=lambda row: row.method)
def test_a_request_and_its_answer_are_written_as_they_were_read(row: AnyClientRequest) -> None:
    if row.params is not NoParams:
        check(schemas.params_name(row), row.params, lambda raw: row.parse(raw).to_value())
    check(schemas.result_name(row), row.result)


@pytest.mark.parametrize("row", v2_table.TABLE.server_requests.values(), ids=lambda row: row.method)
def test_a_question_and_its_answer_are_written_as_they_were_read(row: AnyServerRequest) -> None:
    check(schemas.params_name(row), row.params)
    check(schemas.result_name(row), row.result)


@pytest.mark.parametrize(
    "raw",
    ["cli", "appServer", {"custom": "atlas"}, {"subAgent": "review"}, {"subAgent": {"other": "x"}}],
    ids=str,
)
def test_a_source_is_a_word_or_an_object_with_one_field(raw: Json) -> None:
    adapter: TypeAdapter[SessionSource] = TypeAdapter(SessionSource)
    assert adapter.dump_python(adapter.validate_python(raw), mode="json", by_alias=True) == raw


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("turn/start", {"threadId": "t", "input": [{"type": "hologram"}]}),
        ("turn/start", {"threadId": "t", "input": [{"text": "no tag"}]}),
        ("turn/start", {"threadId": "t", "input": [], "sandboxPolicy": {"type": "none"}}),
        ("turn/start", {"threadId": "t", "input": [], "approvalPolicy": "sometimes"}),
        ("turn/start", {"threadId": "t", "input": [], "approvalPolicy": {"granular": {}}}),
        ("turn/start", {"threadId": "t", "input": [], "approvalPolicy": {"other": 1}}),
        ("review/start", {"threadId": "t", "target": {"type": "everything"}}),
        ("review/start", {"threadId": "t", "target": {"type": "custom"}}),
        ("review/start", {"threadId": "t", "target": {"type": "uncommittedChanges"}, "delivery": "detached"}),
        ("thread/start", {"dynamicTools": [{"type": "oracle"}]}),
        ("thread/list", {"sortKey": "name"}),
        ("thread/list", {"limit": -1}),
        ("thread/list", {"limit": True}),
        ("thread/items/list", {"threadId": "t", "cursor": {"type": "turn", "itemId": "i"}}),
        ("account/login/start", {"type": "password"}),
        ("account/login/start", {"type": "apiKey"}),
        ("command/exec", {"command": ["ls"], "size": {"rows": 65536, "cols": 1}}),
        ("command/exec", {"command": "ls"}),
        ("fs/readFile", {"path": "relative"}),
        ("fs/readFile", {"path": "/with\0nul"}),
        ("config/value/write", {"keyPath": "a", "value": 1, "mergeStrategy": "append"}),
    ],
)
def test_what_no_shape_describes_is_refused_in_words(method: str, params: Json) -> None:
    with pytest.raises(ValidationError) as wrong:
        row_of(method).parse(params)
    message, _ = describe_validation_error(wrong.value)
    assert message.startswith("Invalid request: ")


def test_a_missing_field_is_named() -> None:
    for method, field in (
        ("turn/start", "threadId"),
        ("initialize", "clientInfo"),
        ("thread/read", "threadId"),
    ):
        with pytest.raises(ValidationError) as wrong:
            row_of(method).parse(None)
        assert describe_validation_error(wrong.value)[0] == f"Invalid request: missing field `{field}`"


def test_a_relative_path_is_refused_in_the_words_that_clients_know() -> None:
    with pytest.raises(ValidationError) as wrong:
        AtPath.model_validate({"path": "a.txt"})
    message, field = describe_validation_error(wrong.value)
    assert "AbsolutePathBuf deserialized without a base path" in message
    assert field == "path"


def test_unknown_fields_are_ignored_and_absent_parameters_are_empty() -> None:
    row = row_of("thread/start")
    assert row.parse(None) == row.parse({}) == row.parse({"zzz": 1, "approval_policy": None})
    assert row_of("account/logout").parse([1]) == row_of("account/logout").parse(None)


def test_a_field_that_must_be_there_though_null_is_asked_for_and_written() -> None:
    without = {key: value for key, value in examples("Thread", PUBLISHED)[0].items() if key != "projectId"}
    with pytest.raises(ValidationError, match="projectId"):
        read(Thread, without)
    assert b'"projectId":null' in read(Thread, {**without, "projectId": None}).to_json()
    assert b'"email":null' in ChatgptAccount(email=None, plan_type=PlanType.PLUS).to_json()
    assert "projectId" in STABLE["Thread"]["required"]
    assert "email" in STABLE["ChatgptAccount"]["required"]


def test_an_optional_field_without_a_value_is_null_unless_the_wire_leaves_it_out() -> None:
    answer = read(ThreadStartResponse, examples("ThreadStartResponse", PUBLISHED)[0])
    assert answer.to_value().items() >= {"reasoningEffort": None, "activePermissionProfile": None}.items()
    asked = v2_table.TABLE.server_requests["item/commandExecution/requestApproval"].params
    least = {"threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1}
    assert read(asked, least).to_value() == {**least, "kind": "command", "environmentId": None}


@pytest.mark.parametrize(
    ("raw", "mode"),
    [
        ("untrusted", ApprovalMode.UNTRUSTED),
        ("unlessTrusted", ApprovalMode.UNTRUSTED),
        ("on-request", ApprovalMode.ON_REQUEST),
        ("onRequest", ApprovalMode.ON_REQUEST),
        ("on-failure", ApprovalMode.ON_REQUEST),
        ("never", ApprovalMode.NEVER),
    ],
)
def test_an_approval_policy_is_understood_in_every_usual_spelling(raw: str, mode: ApprovalMode) -> None:
    assert TypeAdapter(AskForApproval).validate_python(raw) is mode


def test_a_granular_approval_policy_is_an_object() -> None:
    kinds = {"sandbox_approval": True, "rules": False, "mcp_elicitations": True}
    parsed = TypeAdapter(AskForApproval).validate_python({"granular": kinds})
    assert isinstance(parsed, GranularAskForApproval)
    assert not parsed.granular.request_permissions


@pytest.mark.parametrize(
    ("raw", "written"),
    [
        ({"type": "dangerFullAccess"}, {"type": "dangerFullAccess"}),
        ({"type": "danger-full-access"}, {"type": "dangerFullAccess"}),
        ({"type": "read-only"}, {"type": "readOnly", "networkAccess": False}),
        ({"type": "read_only", "network_access": True}, {"type": "readOnly", "networkAccess": True}),
        ({"type": "externalSandbox"}, {"type": "externalSandbox", "networkAccess": "restricted"}),
        (
            {"type": "workspace-write", "writable_roots": ["/a"], "exclude_slash_tmp": True},
            {
                "type": "workspaceWrite",
                "writableRoots": ["/a"],
                "networkAccess": False,
                "excludeTmpdirEnvVar": False,
                "excludeSlashTmp": True,
            },
        ),
    ],
)
def test_a_sandbox_policy_is_understood_in_every_usual_spelling(raw: Json, written: Json) -> None:
    adapter: TypeAdapter[SandboxPolicy] = TypeAdapter(SandboxPolicy)
    parsed = adapter.validate_python(raw)
    assert parsed.to_value() == written
    assert adapter.validate_python(parsed) == parsed


@pytest.mark.parametrize(
    "raw", [{"mode": "danger-full-access"}, {"mode": "read-only"}, "dangerFullAccess", {}]
)
def test_a_sandbox_policy_of_another_api_is_none(raw: Json) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(SandboxPolicy).validate_python(raw)


def test_a_turn_is_interrupted_without_its_id_too() -> None:
    assert TurnInterruptParams.model_validate({}) == TurnInterruptParams(thread_id="", turn_id="")
    assert STABLE["TurnInterruptParams"]["required"] == ["threadId", "turnId"]


def test_parameters_that_are_a_union_come_as_one_of_its_shapes() -> None:
    parsed = LoginAccountParams.model_validate({"type": "apiKey", "apiKey": "sk-secret"})
    assert parsed.root == ApiKeyLoginAccountParams(api_key="sk-secret")
    assert "sk-secret" not in repr(parsed)
    assert parsed.to_json() == b'{"type":"apiKey","apiKey":"sk-secret"}'


def test_lone_surrogates_in_what_the_user_says_are_replaced() -> None:
    raw = {"threadId": "t", "input": [{"type": "text", "text": "a\ud800b"}]}
    assert TurnStartParams.model_validate(raw).to_value()["input"][0]["text"] == "a\ufffdb"


def test_the_rows_are_in_the_table_once_and_name_a_parameter_that_orders_them() -> None:
    for method, row in v2_table.TABLE.client_requests.items():
        assert row.method == method
        spelled = {field.alias for field in row.params.model_fields.values()}
        assert row.ordered_by is None or row.ordered_by in spelled
    assert row_of("turn/start").ordered_by == "threadId"
    assert row_of("thread/list").ordered_by is None
    assert jsonrpc.INITIALIZE in v2_table.TABLE.client_requests


def test_the_experimental_fields_that_a_client_uses_are_found() -> None:
    params = ThreadStartParams.model_validate(
        {"model": "m", "dynamicTools": [], "permissions": None, "experimentalRawEvents": False}
    )
    assert experimental_fields_in_use(params) == ("dynamicTools",)
    assert experimental_fields_in_use(ThreadStartParams()) == ()
    sent = ThreadStartParams.model_validate({"historyMode": "legacy", "experimentalRawEvents": True})
    assert experimental_fields_in_use(sent) == ("historyMode", "experimentalRawEvents")


def test_what_is_experimental_is_only_in_the_experimental_schema() -> None:
    assert "dynamicTools" in EVERYTHING["ThreadStartParams"]["properties"]
    assert "dynamicTools" not in STABLE["ThreadStartParams"]["properties"]
    assert "DynamicToolSpec" in EVERYTHING
    assert "DynamicToolSpec" not in STABLE
    assert "ThreadSettingsUpdateParams" not in STABLE
    stable = {option["properties"]["method"]["const"] for option in STABLE["ClientRequest"]["oneOf"]}
    assert stable == {row.method for row in v2_table.TABLE.client_requests.values() if not row.experimental}
    everything = {option["properties"]["method"]["const"] for option in EVERYTHING["ClientRequest"]["oneOf"]}
    assert everything == set(v2_table.TABLE.client_requests)
    assert EXPERIMENTAL not in "".join(export.thread_schema_files().values())


@pytest.mark.parametrize("definitions", [STABLE, EVERYTHING], ids=["stable", "everything"])
def test_every_definition_stands_on_its_own_and_is_a_schema(definitions: dict[str, Json]) -> None:
    Draft7Validator.check_schema({"definitions": definitions})
    for name, schema in definitions.items():
        assert set(references(schema)) <= set(definitions), name


def test_a_question_of_a_server_has_its_common_fields_beside_its_mode() -> None:
    schema = STABLE["McpServerElicitationRequestParams"]
    assert schema["required"] == ["threadId", "serverName"]
    assert "threadId" not in STABLE["FormElicitation"]["properties"]
    expression = typescript.type_of(schema)
    assert expression.startswith("(FormElicitation | UrlElicitation) & { threadId: string; ")
    with pytest.raises(ValidationError):
        McpServerElicitationRequestParams.model_validate(
            {"mode": "form", "message": "m", "requestedSchema": {}}
        )


def test_typescript_of_threads_is_beside_that_of_conversations(tmp_path: Path) -> None:
    written = {path.relative_to(tmp_path).as_posix() for path in export.write_typescript(tmp_path)}
    assert {"index.ts", "v2/index.ts", "v2/ThreadItem.ts", "v2/TurnStartParams.ts"} <= written
    assert "v2/ThreadSettingsUpdateParams.ts" not in written
    assert "dynamicTools" not in (tmp_path / "v2" / "ThreadStartParams.ts").read_text()
    export.write_typescript(tmp_path, experimental=True)
    assert (
        "dynamicTools?: Array<DynamicToolSpec> | null;"
        in (tmp_path / "v2" / "ThreadStartParams.ts").read_text()
    )


def test_a_conversation_client_does_not_load_the_shapes_of_threads() -> None:
    loaded = modules_loaded_by(
        "import app_server.server.bootstrap.full_server, app_server_protocol.v1.v1_table"
    )
    assert {name for name in loaded if name.startswith("app_server_protocol.v2.")} == set()


def test_loading_the_table_builds_no_validator() -> None:
    script = """
import app_server_protocol.v2.v2_table
from app_server_protocol.base import Model

def below(kind):
    for each in kind.__subclasses__():
        yield each
        yield from below(each)

built = {kind.__name__ for kind in below(Model) if "v2" in kind.__module__ and kind.__pydantic_complete__}
print(sorted(built - {"WireUnion"}))  # which has no shape of its own
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_command_writes_what_is_experimental_when_asked(tmp_path: Path) -> None:
    assert dispatch.main(["generate-json-schema", "--out", str(tmp_path / "a")]) == 0
    assert dispatch.main(["generate-json-schema", "--out", str(tmp_path / "b"), "--experimental"]) == 0
    assert not (tmp_path / "a" / "v2" / "ThreadSettingsUpdateParams.json").exists()
    assert (tmp_path / "b" / "v2" / "ThreadSettingsUpdateParams.json").exists()
    assert (tmp_path / "a" / "v2" / export.EXPERIMENTAL_BUNDLE).exists()
    assert (tmp_path / "b" / "ClientRequest.json").exists()
