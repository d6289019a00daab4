"""Whether what a client sends as a schema is one."""

import threading

import pytest

from app_server.core.errors import CoreError
from app_server.core.session.output_schema import check_schema
from app_server.core.session.schema_problem import LONGEST, schema_problem
from app_server.core.threads import NO_THREAD
from protocol.base import Json

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
        {"type": "nonsense", "description": "x" * LONGEST},
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


async def test_without_a_schema_nothing_has_to_be_followed() -> None:
    await check_schema(None)


async def test_without_a_thread_to_look_in_the_turn_fails_with_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(CoreError, match="try again"):
        await check_schema({"type": "object"})
