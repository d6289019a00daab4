"""What a line answers to what the server asks."""

import json

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.chat.open_questions import OpenQuestions, PendingQuestion
from app_server.client.approval_requests import parse_request
from protocol.structs import Json

WORDS = ("type", "properties", "required", "enum", "oneOf", "const", "items", "default", "title", "object")


def question(method: str, **params: Json) -> PendingQuestion:
    base = {"threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1}
    request = parse_request(method, {**base, **params}, None)
    assert request is not None
    return PendingQuestion(request, anyio.Event())


def answer(asked: PendingQuestion) -> Json:
    assert asked.reply is not None
    assert asked.answered.is_set()
    return asked.reply.result.to_value()


def command(**more: Json) -> PendingQuestion:
    return question("item/commandExecution/requestApproval", command="rm -r x", cwd="/w", **more)


@pytest.mark.parametrize(
    ("words", "decision"),
    [
        *((word, "accept") for word in ("y", "yes", " Y ", "YES")),
        *((word, "acceptForSession") for word in ("a", "always")),
        *((word, "decline") for word in ("n", "no")),
        *((word, "cancel") for word in ("s", "stop")),
    ],
)
def test_whole_words_decide_on_commands(words: str, decision: str) -> None:
    asked = command(reason="because")
    assert asked.parts() == [
        ("Run this command?", "rm -r x"),
        ("in the folder", "/w"),
        ("The reason that is given:", "because"),
    ]
    assert asked.enter(words) is None
    assert answer(asked) == {"decision": decision}


@given(
    st.text(max_size=12) | st.sampled_from("yans").flatmap(lambda c: st.text("yesalwnotp .,!").map(c.__add__))
)
def test_nothing_else_decides_anything(words: str) -> None:
    if words.strip().lower() in {"y", "yes", "a", "always", "n", "no", "s", "stop"}:
        return
    asked = command()
    assert asked.enter(words) == "no answer: expected y or yes, a or always, n or no, s or stop"
    assert asked.reply is None


def test_a_question_is_answered_by_what_was_begun_when_it_could_be_read() -> None:
    asked = command()
    assert not asked.seen_by(1000.0)
    asked.shown_at = 5.0
    assert not asked.seen_by(4.0)
    assert not asked.seen_by(5.2)
    assert asked.seen_by(5.4)


async def test_one_question_is_asked_at_a_time_and_one_that_is_taken_back_makes_room() -> None:
    questions, shown, answers = OpenQuestions(), list[PendingQuestion](), list[Json]()
    first, second = command(), command()

    async def ask(asked: PendingQuestion) -> None:
        await questions.ask(asked, shown.append)
        answers.append(asked.said)

    async with anyio.create_task_group() as group, anyio.create_task_group() as gone:
        gone.start_soon(ask, first)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(ask, second)
        await anyio.wait_all_tasks_blocked()
        assert (shown, questions.current) == ([first], first)
        gone.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
            assert (shown, questions.current) == ([first, second], second)
            assert second.enter("y") is None
            assert questions.current is None
    assert answers == ["yes"]


def test_a_line_answers_a_question_of_the_model() -> None:
    options = [{"label": "red", "description": "a colour"}]
    asked = question(
        "item/tool/requestUserInput",
        questions=[
            {"id": "q", "header": "Colour", "question": "Which?", "options": options},
            {"id": "r", "header": "Size", "question": "How large?", "isSecret": True},
        ],
        isBlocking=True,
    )
    assert asked.keys == ()
    assert asked.parts() == [("The model asks:", "Colour: Which?\n- red: a colour")]
    asked.shown_at = 1.0
    assert asked.enter("blue ") is None
    assert not asked.answered.is_set()
    assert not asked.seen_by(100.0)
    assert asked.parts() == [("The model asks:", "Size: How large?")]
    assert asked.enter("huge") is None
    assert answer(asked) == {"answers": {"q": {"answers": ["blue"]}, "r": {"answers": ["huge"]}}}
    assert "huge" not in asked.said


@pytest.mark.parametrize("line", ["", " "])
def test_an_empty_line_declines(line: str) -> None:
    asked = question("item/tool/requestUserInput", questions=[], isBlocking=True)
    assert asked.enter(line) is None
    assert answer(asked) == {"answers": {}}


FORM: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "how you are called"},
        "age": {"type": "integer", "default": 7},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "red"}, {"const": "b"}]},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}},
    },
    "required": ["name", "colour"],
}


def elicitation(schema: Json) -> PendingQuestion:
    return question(
        "mcpServer/elicitation/request",
        serverName="docs",
        mode="form",
        message="Who?",
        requestedSchema=schema,
        _meta=None,
    )


def test_the_form_of_an_mcp_server_is_shown() -> None:
    assert elicitation(FORM).parts() == [
        ("An MCP server asks:", "docs: Who?"),
        (
            "for these values:",
            "name (string, required): Name; how you are called\n"
            "age (integer, optional): otherwise 7\n"
            'colour (string, required): one of "r", "b"\n'
            'tags (array, optional): one of "x", "y"',
        ),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("not json", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("[1]", "expected a JSON object"),
        ('{"age": 3}', "required, and not given: name, colour"),
        ('{"name": "me", "colour": null}', "required, and not given: colour"),
        ('{"name": 1, "colour": "r"}', "name: expected a value of type string"),
        ('{"name": "me", "colour": "r", "age": true}', "age: expected a value of type integer"),
        ('{"name": "me", "colour": "g"}', 'colour: expected one of "r", "b"'),
        ('{"name": "me", "colour": "b", "tags": ["x", "z"]}', 'tags: expected one of "x", "y"'),
    ],
)
def test_values_that_are_not_what_an_mcp_server_asks_for_are_not_sent(line: str, problem: str) -> None:
    asked = elicitation(FORM)
    assert (asked.enter(line) or "").startswith(problem)
    assert asked.reply is None


def test_values_for_an_mcp_server_are_json() -> None:
    asked = elicitation(FORM)
    assert asked.enter('{"name": "me", "colour": "b", "tags": ["x"]}') is None
    assert answer(asked)["content"] == {"name": "me", "colour": "b", "tags": ["x"]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), each)
    ),
    max_leaves=12,
)


@given(json_values, st.dictionaries(st.sampled_from(WORDS), json_values))
def test_any_form_can_be_shown_and_answered(schema: Json, values: Json) -> None:
    asked = elicitation(schema)
    asked.parts()
    asked.enter(json.dumps(values))


def test_a_page_to_visit_is_shown_with_its_address() -> None:
    asked = question(
        "mcpServer/elicitation/request",
        serverName="docs",
        mode="url",
        message="Log in.",
        url="https://x.example/y",
        elicitationId="e",
    )
    assert asked.parts()[0] == ("An MCP server asks whether you visit a page:", "https://x.example/y")
    assert asked.enter("no") is None
    assert answer(asked)["action"] == "decline"


def test_a_confirmation_for_an_mcp_server_takes_a_word() -> None:
    asked = elicitation({"type": "object", "properties": {}})
    assert asked.enter("yes") is None
    assert answer(asked)["action"] == "accept"
