"""What a key or a line answers to what the server asks."""

from __future__ import annotations

import anyio
import pytest

from app_server.chat.open_questions import PendingQuestion
from app_server.client.approval_requests import parse_request
from protocol.base import Json


def question(method: str, **params: Json) -> PendingQuestion:
    base = {"threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1}
    request = parse_request(method, {**base, **params}, None)
    assert request is not None
    return PendingQuestion(request, anyio.Event())


def answer(asked: PendingQuestion) -> Json:
    assert asked.reply is not None
    assert asked.answered.is_set()
    return asked.reply.result.to_value()


@pytest.mark.parametrize(
    ("key", "decision"),
    [("y", "accept"), ("a", "acceptForSession"), ("n", "decline"), ("s", "cancel")],
)
def test_keys_decide_on_commands(key: str, decision: str) -> None:
    asked = question("item/commandExecution/requestApproval", command="rm -r x", cwd="/w", reason="because")
    assert "rm -r x" in asked.describe()[0]
    assert asked.describe()[-1] == "Reason: because"
    assert asked.press(key)
    assert answer(asked) == {"decision": decision}


def test_other_keys_decide_nothing() -> None:
    asked = question("item/fileChange/requestApproval")
    assert not asked.press("x")
    assert asked.enter("maybe") == "expected one of y, a, n, s"
    assert asked.reply is None


def test_a_line_answers_a_question_of_the_model() -> None:
    options = [{"label": "red", "description": "a colour"}]
    asked = question(
        "item/tool/requestUserInput",
        questions=[{"id": "q", "header": "Colour", "question": "Which?", "options": options}],
        isBlocking=True,
    )
    assert asked.keys == ()
    assert "  - red" in asked.describe()
    assert asked.enter("blue ") is None
    assert answer(asked) == {"answers": {"q": {"answers": ["blue"]}}}


def test_an_empty_line_declines() -> None:
    asked = question("item/tool/requestUserInput", questions=[], isBlocking=True)
    assert asked.enter(" ") is None
    assert answer(asked) == {"answers": {}}


FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}}


def elicitation(schema: Json) -> PendingQuestion:
    return question(
        "mcpServer/elicitation/request",
        serverName="s",
        mode="form",
        message="Who?",
        requestedSchema=schema,
        _meta=None,
    )


def test_values_for_an_mcp_server_are_json() -> None:
    asked = elicitation(FORM)
    problem = asked.enter("not json")
    assert problem is not None
    assert problem.startswith("expected JSON")
    assert asked.enter("[1]") == "expected a JSON object"
    assert asked.enter('{"name": "me"}') is None
    assert answer(asked)["content"] == {"name": "me"}


def test_a_confirmation_for_an_mcp_server_takes_a_key() -> None:
    asked = elicitation({"type": "object", "properties": {}})
    assert asked.press("n")
    assert answer(asked)["action"] == "decline"
