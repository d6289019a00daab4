"""Handling of results in a session: of a reviewer, of a schema, of MCP servers as they start."""

import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.session.answer_schema import LONGEST_SCHEMA, check_schema, schema_problem
from app_server.engine.session.review import note, parse_review
from app_server.engine.session.review_texts import findings_block
from app_server.engine.session.session_servers import SessionServers
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.support.worker_threads import NO_THREAD
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import McpServersSettled
from app_server_protocol.engine.item_values import ReviewOutputEvent
from app_server_protocol.engine.notices import WarningNotice

FINDING: Json = {
    "title": "Off by one",
    "body": "The last entry\nis skipped.",
    "confidence_score": 0.9,
    "priority": 1,
    "code_location": {"absolute_file_path": "/w/a.py", "line_range": {"start": 3, "end": 4}},
}
OUTPUT: Json = {
    "findings": [FINDING],
    "overall_correctness": "patch is incorrect",
    "overall_explanation": "One mistake.",
    "overall_confidence_score": 0.8,
}


@pytest.mark.parametrize(
    "wrapping", ["{}", "Here it is:\n```json\n{}\n```\nThat is all.", "\n\n{} \n", "I found: {}"]
)
def test_findings_are_found_in_whatever_is_around_them(wrapping: str) -> None:
    output = parse_review(wrapping.replace("{}", json.dumps(OUTPUT)))
    assert [finding.title for finding in output.findings] == ["Off by one"]
    assert output.overall_explanation == "One mistake."


@pytest.mark.parametrize(
    "text", ["Looks good.", "", "{", "} {", "[1, 2]", '{"findings": "many"}', "{" * 100_000]
)
def test_what_is_no_review_is_its_explanation(text: str) -> None:
    assert parse_review(text) == ReviewOutputEvent(overall_explanation=text)


@given(st.text())
def test_no_answer_breaks_the_review(text: str) -> None:
    assert isinstance(parse_review(text), ReviewOutputEvent)


def test_the_note_tells_place_and_body_of_each_finding() -> None:
    output = parse_review(json.dumps({**OUTPUT, "findings": [FINDING, FINDING]}))
    block = findings_block(output.findings)
    assert block.count("- Off by one — /w/a.py:3-4\n  The last entry\n  is skipped.") == 2
    assert block.splitlines()[1] == "Full review comments:"
    assert findings_block(output.findings[:1]).splitlines()[1] == "Review comment:"
    text = note(output)
    assert text.startswith("<user_action>")
    assert "One mistake." in text
    assert block in text


def test_the_note_of_an_interrupted_review_says_so() -> None:
    text = note(None)
    assert "interrupted" in text
    assert "<action>review</action>" in text
    assert "None." in text


DEEP: Json = {}
for _ in range(500):
    DEEP = {"properties": {"a": DEEP}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"$ref": "http://127.0.0.1:9/never-fetched"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {}, "type": ["string", "null"]},
        {"$schema": "urn:nobody-knows-it", "type": "object"},
        {"type": "nonsense", "description": "x" * LONGEST_SCHEMA},
        {"pattern": "(a+)+$"},
        DEEP,
        {"description": "\ud800"},
    ],
)
def test_a_schema_is_passed_on(schema: Json) -> None:
    assert schema_problem(schema) is None


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ([], "$: expected an object"),
        ("object", "$: expected an object"),
        (True, "$: expected an object"),
        ({"$schema": 5}, "$['$schema']: 5 is not of type"),
        ({"type": "objekt"}, "$.type: 'objekt' is not"),
        ({"properties": {"a": 5}}, "$.properties.a: 5 is not"),
        ({"required": "a" * 1000}, "$.required: 'aaa"),
    ],
)
def test_any_other_error_names_its_place(schema: Json, told: str) -> None:
    problem = schema_problem(schema)
    assert problem is not None
    assert problem.startswith(told)
    assert len(problem) < 300


async def test_without_a_thread_to_look_in_the_turn_fails_with_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(CoreError, match="try again"):
        await check_schema({"type": "object"})


class Manager:
    """Manager whose servers are ready when a test lets them."""

    def __init__(self, *, configured: bool = True) -> None:
        self.configured, self.started = configured, False
        self.servers: object = object()
        self.settled = anyio.Event()
        self.runs = 0

    async def run_servers(self) -> None:
        self.started = True
        self.runs += 1
        await anyio.sleep_forever()

    async def ready(self) -> None:
        await self.settled.wait()

    def reload(self, servers: object) -> None:
        self.servers, self.settled = servers, anyio.Event()

    def failures(self) -> list[Any]:
        return [SimpleNamespace(message="no such program")]

    def notices(self) -> list[str]:
        return ["too many tools"]


class Emitted(list[Any]):
    def emit(self, operation_id: str, event: object) -> None:
        assert operation_id == "", "it happens outside of operations"
        self.append(event)


TOLD = [McpServersSettled(("no such program",)), WarningNotice(message="too many tools")]


async def test_servers_that_were_replaced_are_not_reported() -> None:
    manager, emitted = Manager(), Emitted()
    servers = SessionServers(cast("Any", manager), cast("Any", emitted))
    async with anyio.create_task_group() as group:
        servers.start(group)
        await anyio.wait_all_tasks_blocked()
        first = manager.settled
        servers.reload({})
        first.set()
        await anyio.wait_all_tasks_blocked()
        assert emitted == []
        manager.settled.set()
        await anyio.wait_all_tasks_blocked()
        assert (emitted, manager.runs) == (TOLD, 1)
        group.cancel_scope.cancel()


async def test_nothing_is_started_where_nothing_is_configured_or_the_session_has_ended() -> None:
    manager, emitted = Manager(configured=False), Emitted()
    servers = SessionServers(cast("Any", manager), cast("Any", emitted))
    async with anyio.create_task_group() as group:
        servers.start(group)
        await anyio.wait_all_tasks_blocked()
        assert manager.runs == 0
    servers.stop()
    servers.reload({})
    assert (manager.runs, emitted) == (0, [])
