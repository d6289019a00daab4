"""Refusals of providers, and the quirks that are learnt from them."""

import json

import msgspec
import pytest

from app_server.engine.model.quirks import Quirks
from app_server.engine.model.refusals import FORMS, lesson_of
from app_server_protocol.encoding import Json

REQUEST = (
    b'{"model":"m","stream_options":{},"store":false,"parallel_tool_calls":true,"reasoning_effort":"low"}'
)


@pytest.mark.parametrize("quirks", [quirks for _, quirks in FORMS], ids=str)
def test_a_form_that_is_taught_is_one_that_requests_have(quirks: Json) -> None:
    assert msgspec.convert(dict(quirks), Quirks) is not None


EXTRA = {
    "type": "extra_forbidden",
    "loc": ["body", "stream_options"],
    "msg": "Extra inputs are not permitted",
}
"""Validation error of Mistral, which writes it in place of a message."""


def error(message: str, param: str | None = None) -> str:
    return json.dumps({"error": {"message": message, "param": param}})


@pytest.mark.parametrize(
    ("body", "quirks"),
    [
        (error("Unsupported parameter: 'store'", "store"), {"omit": ("store",)}),
        (
            error("Unrecognized request argument supplied: parallel_tool_calls"),
            {"omit": ("parallel_tool_calls",)},
        ),
        (
            json.dumps(
                {"detail": [{"loc": ["body", "stream_options"], "msg": "extra fields not permitted"}]}
            ),
            {"omit": ("stream_options",)},
        ),
        (
            json.dumps({"object": "error", "message": {"detail": [EXTRA]}, "type": "invalid_request_error"}),
            {"omit": ("stream_options",)},
        ),
        (
            error(
                "Function tools with reasoning_effort are not supported for m in /v1/chat/completions."
                " Please use /v1/responses instead."
            ),
            {"responses_only": True},
        ),
        (error("unknown variant `developer`, expected one of `system`, `user`"), {"role": "system"}),
        (error("Unexpected role 'user' after role 'tool'"), {"after_tool": "assistant"}),
        (error('Only `type:"function"` tools are supported'), {"custom_tools": False, "web_search": False}),
        (error("'type' of tool must be 'function'"), {"custom_tools": False, "web_search": False}),
        (
            error("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."),
            {"tool_ids": "nine"},
        ),
        (
            error(
                "Invalid 'messages[2].tool_calls[0].id': string too long. Expected one with maximum length 40"
            ),
            {"tool_ids": "forty"},
        ),
        (error("messages[1].content must be a string"), {"text_parts": False}),
        (error("messages.2.content: Input should be a valid string, got null"), {"null_content": False}),
        (error("Can only get item pairs from a mapping."), {"arguments": "object"}),
        (error("Invalid reasoning.context: expected all_turns"), {"reasoning_context": "all_turns"}),
    ],
)
def test_a_refusal_teaches_a_form(body: str, quirks: Json) -> None:
    lesson = lesson_of(400, body, REQUEST, Quirks())
    assert lesson is not None
    assert lesson.quirks == quirks


@pytest.mark.parametrize(
    "message",
    [
        "messages.2: text content blocks must contain non-whitespace text",
        "messages: text content blocks must be non-empty",
        "messages.4: all messages must have non-empty content except for the optional final assistant message",
        "The text field in the ContentBlock object at messages.2.content.0 is blank",
        "messages[3].content must not be empty",
    ],
)
def test_a_refusal_of_blank_text_teaches_that_a_message_with_calls_has_none(message: str) -> None:
    lesson = lesson_of(400, error(message), REQUEST, Quirks(null_content=False))
    assert lesson is not None
    assert lesson.quirks == {"null_content": True}
    assert lesson_of(400, error(message), REQUEST, Quirks()) is None


@pytest.mark.parametrize(
    "message",
    [
        "Invalid schema for function 'list_rows': In context=('properties', 'rows'), array schema missing items.",
        "Invalid schema for function 'f': schema must have type 'object' and not have 'oneOf'/'anyOf' at the top level",
        "tools.4.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
    ],
)
def test_a_refused_schema_of_a_tool_is_written_in_its_plain_form(message: str) -> None:
    lesson = lesson_of(400, error(message), REQUEST, Quirks(schema="full"))
    assert lesson is not None
    assert lesson.quirks == {"schema": "plain"}
    assert lesson_of(400, error(message), REQUEST, Quirks()) is None


def test_the_schema_of_an_answer_teaches_nothing_about_tools() -> None:
    message = "Invalid schema for response_format 'answer': 'additionalProperties' is required to be false"
    assert lesson_of(400, error(message), REQUEST, Quirks(schema="full")) is None
    assert lesson_of(400, error(message), REQUEST, Quirks()) is None


@pytest.mark.parametrize(
    "message",
    [
        "invalid_encrypted_content",
        "Function call is missing a thought_signature in functionCall parts",
        "Invalid `signature` in `thinking` block",
    ],
)
def test_thoughts_are_forgotten(message: str) -> None:
    lesson = lesson_of(400, error(message), REQUEST, Quirks())
    assert lesson is not None
    assert lesson.forgets_thoughts


MISSING_THOUGHTS = "The reasoning_content in the thinking mode must be passed back to the API."


@pytest.mark.parametrize(
    "message",
    [MISSING_THOUGHTS, "thinking is enabled but reasoning_content is missing in assistant tool call message"],
)
def test_missing_thoughts_are_written_as_empty_ones(message: str) -> None:
    lesson = lesson_of(400, error(message), REQUEST, Quirks())
    assert lesson is not None
    assert lesson.quirks == {"thoughts_field": "reasoning_content", "empty_thoughts": True}


def test_thoughts_that_are_wanted_and_refused_all_the_same_are_forgotten() -> None:
    known = Quirks(thoughts_field="reasoning_content", empty_thoughts=True)
    lesson = lesson_of(400, error(MISSING_THOUGHTS), REQUEST, known)
    assert lesson is not None
    assert lesson.forgets_thoughts


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Image input is not supported by this model"),
        (404, "No endpoints found that support image input"),
    ],
)
def test_images_are_hidden(status: int, message: str) -> None:
    lesson = lesson_of(status, error(message), REQUEST, Quirks())
    assert lesson is not None
    assert lesson.hides_images


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, error("Unsupported parameter: 'store'")),
        (404, error("Unsupported parameter: 'store'")),
        (400, error("You are too late")),
        (400, error("Unsupported parameter: 'verbosity'")),
        (400, "<html>store</html>"),
        (400, ""),
    ],
)
def test_other_refusals_teach_nothing(status: int, body: str) -> None:
    assert lesson_of(status, body, REQUEST, Quirks()) is None


def test_what_is_known_is_not_learnt_again() -> None:
    known = Quirks(omit=("store",), role="system")
    assert lesson_of(400, error("Unsupported parameter: 'store'", "store"), REQUEST, known) is None
    assert lesson_of(400, error("unknown variant `developer`"), REQUEST, known) is None


def test_a_template_that_takes_one_call_is_learnt_also_from_a_status_500() -> None:
    """Local servers send this status when the template of the model raises."""
    words = "Jinja Exception: This model only supports single tool-calls at once!"
    lesson = lesson_of(500, json.dumps({"error": {"code": 500, "message": words}}), b"{}", Quirks())
    assert lesson is not None
    assert lesson.quirks == {"single_calls": True}
    assert lesson_of(500, "Unknown error of the role developer", b"{}", Quirks()) is None
