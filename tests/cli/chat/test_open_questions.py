"""The answers that typed lines give to questions of the server."""

import json
from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.cli.chat.open_questions import OpenQuestions, PendingQuestion
from app_server.client.approval_requests import parse_request
from app_server_protocol.encoding import Json

pytestmark = pytest.mark.scenario

WORDS = (
    *("type", "properties", "required", "enum", "oneOf", "const", "items", "default", "title", "format"),
    *("enumNames", "minLength", "maxItems", "minimum", "object", "string", "array", "email", "uri"),
)


def question(method: str, **params: Json) -> PendingQuestion:
    base = {"threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1}
    request = parse_request(method, {**base, **params}, None)
    assert request is not None
    return PendingQuestion(request, anyio.Event())


def entered(asked: PendingQuestion, *lines: str) -> list[str | None]:
    """Return the complaint about each line, None for a line that is accepted."""
    return [asked.enter(line) for line in lines]


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
    assert asked.keys == ("y", "a", "n", "s")
    assert "[a] always this command, in this thread" in asked.hint
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


def test_a_folder_is_named_where_it_is_not_that_of_the_thread() -> None:
    asked = command()
    asked.folder = "/w"
    assert asked.parts() == [("Run this command?", "rm -r x")]


@pytest.mark.parametrize("word", ["r", "rule"])
def test_a_rule_that_is_proposed_is_told_in_words_and_kept_when_it_is_chosen(word: str) -> None:
    asked = command(proposedExecpolicyAmendment=["git", "log all"])
    assert asked.parts()[2] == (
        "A rule would run, without a question, whatever begins with:",
        "git 'log all'",
    )
    assert "[r] rule for all threads" in asked.hint
    assert asked.enter(word) is None
    rule = {"execpolicy_amendment": ["git", "log all"]}
    assert answer(asked) == {"decision": {"acceptWithExecpolicyAmendment": rule}}


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
    assert asked.parts() == [("The model asks:", "Colour: Which?\n1) red: a colour")]
    asked.shown_at = 1.0
    assert asked.enter("1 ") is None
    assert not asked.answered.is_set()
    assert not asked.seen_by(100.0)
    assert asked.parts() == [("The model asks:", "Size: How large?")]
    assert asked.enter("huge") is None
    assert answer(asked) == {"answers": {"q": {"answers": ["red"]}, "r": {"answers": ["huge"]}}}
    assert "huge" not in asked.said


@pytest.mark.parametrize("line", ["", " "])
def test_an_empty_line_declines(line: str) -> None:
    asked = question("item/tool/requestUserInput", questions=[], isBlocking=True)
    assert asked.enter(line) is None
    assert answer(asked) == {"answers": {}}


FORM: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "how you are called", "maxLength": 5},
        "age": {"type": "integer", "default": 7, "minimum": 1},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "red"}, {"const": "b"}]},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 2},
        "mail": {"type": "string", "format": "email"},
        "sure": {"type": "boolean"},
    },
    "required": ["name", "colour"],
}


def elicitation(schema: Json, **more: Json) -> PendingQuestion:
    return question(
        "mcpServer/elicitation/request",
        **{
            "serverName": "docs",
            "mode": "form",
            "message": "Who?",
            "requestedSchema": schema,
            "_meta": None,
            **more,
        },
    )


def test_the_form_of_an_mcp_server_is_asked_field_by_field_and_shown_before_it_is_sent() -> None:
    asked, seen = elicitation(FORM), list[tuple[str, str, str]]()
    for line in ("me", "", "2", "y, 1", "", "no"):
        [(what, field), said] = asked.parts()
        assert said == ("It says:", "docs: Who?")
        seen.append((what, field, asked.hint))
        asked.shown_at = 1.0
        assert asked.enter(line) is None
        assert asked.shown_at is None  # the next question has to be read, too
    says_no = "; /decline says no to all of it"
    what = "An MCP server asks for value {} of 6 ({}):"
    assert seen == [
        (
            what.format(1, "required"),
            "name: Name; how you are called: maxLength 5",
            f"a text{says_no}",
        ),
        (
            what.format(2, "optional"),
            "age: minimum 1; otherwise 7",
            f"a whole number; an empty line takes the default{says_no}",
        ),
        (what.format(3, "required"), "colour\n1) red\n2) b", f"one of the list{says_no}"),
        (
            what.format(4, "optional"),
            "tags: minItems 2\n1) x\n2) y",
            f"some of the list, with commas between them; an empty line leaves it out{says_no}",
        ),
        (
            what.format(5, "optional"),
            "mail: format email",
            f"a text; an empty line leaves it out{says_no}",
        ),
        (what.format(6, "optional"), "sure", f"yes or no; an empty line leaves it out{says_no}"),
    ]
    values = 'name = me\nage = 7\ncolour = b\ntags = ["y", "x"]\nsure = false'
    assert asked.parts() == [
        ("Send these values to an MCP server?", values),
        ("It asked:", "docs: Who?"),
    ]
    assert asked.reply is None
    assert asked.enter("y") is None
    assert answer(asked) == {
        "action": "accept",
        "content": {"name": "me", "age": 7, "colour": "b", "tags": ["y", "x"], "sure": False},
        "_meta": None,
    }


@pytest.mark.parametrize(
    ("before", "line", "problem"),
    [
        ((), "", "this value is required: expected a text"),
        ((), "too long", "'too long' is too long (expected a text)"),
        (("me",), "soon", "expected a whole number"),
        (("me",), "1.5", "1.5 is not of type 'integer' (expected a whole number)"),
        (("me",), "true", "True is not of type 'integer' (expected a whole number)"),
        (("me",), "NaN", "expected a whole number"),
        (("me",), "1e999", "expected a whole number"),
        (("me",), "[" * 100_000, "expected a whole number"),
        (("me",), "0", "0 is less than the minimum of 1 (expected a whole number)"),
        (("me", ""), "green", "expected a name or a number of the list, 1 to 2"),
        (("me", ""), "3", "expected a name or a number of the list, 1 to 2"),
        (("me", "", "red"), "x", "['x'] is too short (expected some of the list, with commas between them)"),
        (("me", "", "red", ""), "me", "'me' is not a 'email' (expected a text)"),
        (("me", "", "red", "", ""), "perhaps", "expected yes or no"),
    ],
)
def test_a_value_that_an_mcp_server_does_not_take_is_refused_at_once(
    before: tuple[str, ...], line: str, problem: str
) -> None:
    asked = elicitation(FORM)
    assert set(entered(asked, *before)) <= {None}
    place = asked.parts()
    assert asked.enter(line) == f"no answer: {problem}"
    assert asked.parts() == place
    assert asked.reply is None


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("uri", "https://x.example/y", "there"),
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-02-29T12:00:00+00:00", "noon"),
    ],
)
def test_formats_are_checked(kind: str, good: str, bad: str) -> None:
    asked = elicitation({"properties": {"it": {"type": "string", "format": kind}}})
    assert entered(asked, bad, good) == [f"no answer: '{bad}' is not a '{kind}' (expected a text)", None]


def test_a_form_can_be_declined_and_begun_again() -> None:
    asked = elicitation({"properties": {"it": {"type": "string"}}})
    assert entered(asked, "wrong", "b", "right", "yes") == [None] * 4
    assert answer(asked)["content"] == {"it": "right"}
    asked = elicitation({"properties": {"it": {"type": "string"}}, "required": ["other"]})
    assert entered(asked, "x", "/decline") == [None] * 2
    assert answer(asked)["action"] == "decline"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), each)
    ),
    max_leaves=12,
)
forms = st.fixed_dictionaries(
    {"properties": st.dictionaries(st.text(max_size=3), st.dictionaries(st.sampled_from(WORDS), json_values))}
)


@given(json_values | forms, st.lists(json_values.map(json.dumps) | st.text(max_size=5), max_size=4))
def test_any_form_can_be_shown_and_answered(schema: Json, lines: Sequence[str]) -> None:
    asked = elicitation(schema)
    for line in lines:
        assert asked.parts()
        assert asked.hint
        asked.enter(line)
    if asked.reply is not None:
        json.dumps(answer(asked), allow_nan=False)


CALL: Json = {
    "codex_approval_kind": "mcp_tool_call",
    "persist": ["session", "always"],
    "tool_name": "delete",
    "tool_description": "Deletes a note",
    "tool_params": {"note": "a"},
}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("yes", {"action": "accept", "content": {}, "_meta": None}),
        ("always", {"action": "accept", "content": {}, "_meta": {"persist": "session"}}),
        ("rule", {"action": "accept", "content": {}, "_meta": {"persist": "always"}}),
        ("no", {"action": "decline", "content": None, "_meta": None}),
    ],
)
def test_a_call_of_a_server_is_shown_and_decided(word: str, expected: Json) -> None:
    asked = elicitation({"type": "object", "properties": {}}, _meta=CALL)
    assert asked.parts() == [
        ("Call this tool of an MCP server?", "docs: delete"),
        ("with the arguments:", '{"note": "a"}'),
        ("The server says of it:", "Deletes a note"),
    ]
    assert asked.keys == ("y", "a", "r", "n")
    assert "always this tool, in this thread" in asked.hint
    assert asked.enter(word) is None
    assert answer(asked) == expected


def test_a_rule_is_not_offered_where_the_settings_cannot_keep_it() -> None:
    asked = elicitation({"type": "object", "properties": {}}, _meta={**CALL, "persist": ["session"]})
    assert asked.keys == ("y", "a", "n")
    assert "no answer" in (asked.enter("rule") or "")


def test_nothing_lasting_is_offered_where_each_call_is_asked_about() -> None:
    each = {key: value for key, value in CALL.items() if key != "persist"}
    asked = elicitation({"type": "object", "properties": {}}, _meta=each)
    assert asked.keys == ("y", "n")
    assert "no answer" in (asked.enter("always") or "")


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
