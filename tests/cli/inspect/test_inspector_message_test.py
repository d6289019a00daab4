"""A generated test of one message: what it expects, what it leaves open, and that it fails if the server answers
differently.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from app_server.cli.inspect.scenario import differences, opened, test_of
from app_server.cli.inspect.session_replay import play
from app_server_protocol.encoding import Json
from tests.cli.inspect.recorded_turn import CLIENT, HEAD, SERVER, TURN_WITH_APPROVAL, analysed, asked

test_of.__test__ = False  # type: ignore[attr-defined]

ANSWERS = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        thread = {"id": "thread-%s", "createdAt": 5, "cwd": "/somewhere", "preview": "%s"}
        print(json.dumps({"id": message["id"], "result": {"thread": thread}}), flush=True)
"""


def test_what_differs_from_run_to_run_is_left_open() -> None:
    message = {
        "id": 3,
        "method": "ask",
        "params": {
            "threadId": "t",
            "thread": {"id": "t", "createdAt": 1, "path": "/x", "preview": "kept"},
            "turnId": "u",
            "items": [{"id": "i", "durationMs": 5, "text": "kept"}],
        },
    }
    assert opened(message) == {
        "id": "<any id>",
        "method": "ask",
        "params": {
            "threadId": "<thread1>",
            "thread": {"id": "<thread1>", "createdAt": "<any time>", "path": "<any path>", "preview": "kept"},
            "turnId": "<turn1>",
            "items": [{"id": "<item1>", "durationMs": "<any time>", "text": "kept"}],
        },
    }


@pytest.mark.parametrize(
    ("expected", "found", "complaints"),
    [
        ({"a": "<any time>"}, {"a": 5}, []),
        ({"a": "<thread1>", "b": "<thread1>"}, {"a": "x", "b": "x"}, []),
        (
            {"a": "<thread1>", "b": "<thread1>"},
            {"a": "x", "b": "y"},
            ["message.b: <thread1> is 'x', and here 'y'"],
        ),
        ({"a": 1}, {}, ["message.a is missing"]),
        ({}, {"a": 1}, ["message.a was not expected"]),
        ([1, 2], [1], ["message: expected [1, 2], got [1]"]),
        ({"a": True}, {"a": 1}, ["message.a: expected True, got 1"]),
        ({"a": [{"b": None}]}, {"a": [{"b": 0}]}, ["message.a[0].b: expected None, got 0"]),
    ],
)
def test_differences_have_their_place(expected: Json, found: Json, complaints: list[str]) -> None:
    assert differences(expected, found) == complaints


def problems(number: int, messages: list[Any], server: str) -> list[str]:
    """Return the failures when the test that is written for a message runs against a server."""
    names: dict[str, Any] = {}
    exec(compile(test_of(HEAD, analysed(messages), number), "exported", "exec"), names)
    return play([sys.executable, "-c", server], names["STEPS"])


def test_a_test_of_an_answer_passes_and_fails() -> None:
    thread = {"id": "thread-7", "createdAt": 1, "cwd": "/here", "preview": "hello"}
    messages = [asked(1, "thing/make"), (SERVER, {"id": 1, "result": {"thread": thread}})]
    assert problems(1, messages, ANSWERS % ("new", "hello")) == []
    assert problems(1, messages, ANSWERS % ("new", "good bye")) == [
        "message.result.thread.preview: expected 'hello', got 'good bye'"
    ]


def test_a_test_of_a_request_waits_for_its_answer() -> None:
    messages = [asked(1, "thing/make"), (CLIENT, {"method": "initialized"})]
    assert problems(0, messages, ANSWERS % ("a", "b")) == []
    [never] = problems(0, messages, "import sys; sys.stdin.readline()")
    assert never == "answer 1, number 1, never came: the server left"


def test_a_notification_that_no_step_waits_for_can_be_expected() -> None:
    told = "import sys; sys.stdin.readline(); print('%s', flush=True); sys.stdin.read()"
    messages = [
        (CLIENT, {"method": "initialized"}),
        (SERVER, {"method": "warning", "params": {"threadId": None, "message": "slow"}}),
    ]
    slow, quick = (
        f'{{"method":"warning","params":{{"threadId":null,"message":"{w}"}}}}' for w in ("slow", "quick")
    )
    assert problems(1, messages, told % slow) == []
    assert problems(1, messages, told % quick) == ["message.params.message: expected 'slow', got 'quick'"]


def test_what_is_no_message_has_no_test(tmp_path: Path) -> None:
    for number in (-1, len(TURN_WITH_APPROVAL)):
        with pytest.raises(ValueError, match="only a message"):
            test_of(HEAD, analysed(TURN_WITH_APPROVAL), number)


def test_every_message_of_a_turn_has_a_test_that_compiles() -> None:
    entries = analysed(TURN_WITH_APPROVAL)
    for entry in entries:
        text = test_of(HEAD, entries, entry.number)
        compile(text, "exported", "exec")
        assert "sk-abc" not in text
