"""Schemas, TypeScript and documentation are current, complete and fit what really goes over the wire."""

from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from protocol.base import Json
from protocol.events.msg import EVENTS
from protocol.export import examples, schemas, typescript
from protocol.export import main as export
from protocol.table import AnyClientRequest, AnyServerRequest
from protocol.v1.methods import TABLE
from tests.wire import samples

ROOT = Path(__file__).parents[2]
DEFINITIONS = schemas.definitions()


def validator(name: str) -> Draft7Validator:
    return Draft7Validator(schemas.alone(name, DEFINITIONS))


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
        assert set(schemas.references(document)) <= set(document.get("definitions", {})) | {name}


@pytest.mark.parametrize("row", TABLE.client_requests.values(), ids=lambda row: row.method)
def test_the_example_of_a_request_fits_its_schema(row: AnyClientRequest) -> None:
    params, result = examples.REQUESTS[row.method]
    validator("ClientRequest").validate({"id": 1, "method": row.method, "params": params})
    validator(row.result.__name__).validate(result)


@pytest.mark.parametrize("row", TABLE.server_requests.values(), ids=lambda row: row.method)
def test_the_example_of_a_server_request_fits_its_schema(row: AnyServerRequest) -> None:
    params, result = examples.SERVER_REQUESTS[row.method]
    validator("ServerRequest").validate({"id": 1, "method": row.method, "params": params})
    validator(row.result.__name__).validate(result)


def test_the_examples_of_notifications_fit_their_schema() -> None:
    for method, params in examples.NOTIFICATIONS.items():
        validator("ServerNotification").validate({"method": method, "params": params})


def test_the_samples_of_events_fit_their_schema() -> None:
    checked = validator("EventMsg")
    for raw in samples.EVENTS:
        if raw.get("item", {}).get("type") != "from_the_future":
            checked.validate(raw)


def test_a_schema_refuses_what_is_wrong() -> None:
    assert not validator("ClientRequest").is_valid(
        {"id": 1, "method": "newConversation", "params": {"cwd": 7}}
    )
    assert not validator("EventMsg").is_valid({"message": "a tag is always there"})
    assert not validator("ReviewDecision").is_valid("sometimes")


def test_the_thread_api_is_published_but_has_no_rows() -> None:
    published = {option["properties"]["method"]["const"] for option in DEFINITIONS["ClientRequest"]["oneOf"]}
    assert published == {*TABLE.client_requests, *schemas.REQUESTS}
    assert not set(TABLE.client_requests) & set(schemas.REQUESTS)


def test_typescript_has_a_file_for_every_type(tmp_path: Path) -> None:
    written = {path.name for path in export.write_typescript(tmp_path) if path.parent == tmp_path}
    assert {"index.ts", "EventMsg.ts", "SandboxPolicy.ts", "Result_of_CallToolResult_or_String.ts"} <= written
    text = (tmp_path / "SendUserTurnParams.ts").read_text()
    assert 'import type { SandboxPolicy } from "./SandboxPolicy";' in text
    assert "items: Array<InputItem>; cwd: string;" in text
    assert "effort?: ReasoningEffort | null;" in text
    index = (tmp_path / "index.ts").read_text()
    assert index.count("export type") == len(written) - 1


@pytest.mark.parametrize(
    ("schema", "expression"),
    [
        (
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "Array<string | null>",
        ),
        ({"enum": ["a", "b"]}, '"a" | "b"'),
        ({"type": "object"}, "Record<string, never>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "{ [key: string]: number }"),
        ({"type": "object", "properties": {"a-b": {}}, "required": ["a-b"]}, '{ "a-b": unknown; }'),
    ],
)
def test_schemas_as_type_expressions(schema: Json, expression: str) -> None:
    assert typescript.type_of(schema) == expression


def test_the_documentation_has_every_method_and_every_event() -> None:
    page = export.documentation()
    named = [*TABLE.client_requests, *TABLE.server_requests, *TABLE.server_notifications, *EVENTS]
    assert [name for name in named if f"`{name}`\n" not in page] == []
