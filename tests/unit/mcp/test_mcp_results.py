"""What the model and the client are given of a result."""

import json

import pytest

from app_server.core.mcp.faults import MAX_RESULT_BLOCKS, MAX_RESULT_CHARS
from app_server.core.mcp.results import McpCallOutcome, parse_result, payload_of, text_result
from protocol.base import Json
from protocol.mcp import CallToolResult
from protocol.responses import FunctionCallOutputPayload
from tests.unit.mcp.fake_server import PNG


def parsed(raw: Json) -> CallToolResult:
    result = parse_result(raw)
    assert result is not None
    return result


def shown(raw: Json) -> FunctionCallOutputPayload:
    return payload_of(parsed(raw))


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_structured_content_comes_first() -> None:
    payload = shown({"content": [text("ignored")], "structuredContent": {"ok": True, "value": 42}})
    assert payload == FunctionCallOutputPayload(content='{"ok":true,"value":42}', success=True)


def test_without_it_the_blocks_are_given_as_json() -> None:
    payload = shown({"content": [text("hello"), text("world")], "structuredContent": None})
    assert payload.content == '[{"text":"hello","type":"text"},{"text":"world","type":"text"}]'
    assert payload.success is True


@pytest.mark.parametrize(("flag", "success"), [(True, False), (False, True), (None, True), ("yes", True)])
def test_success_is_the_absence_of_the_error_flag(flag: Json, success: bool) -> None:
    assert shown({"content": [], "structuredContent": {"message": "bad"}, "isError": flag}).success is success


def test_an_image_reaches_the_model_as_one() -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    payload = shown({"content": [text("look"), image]})
    assert payload.to_wire() == list(payload.content_items or ())
    assert [item.model_dump() for item in payload.content_items or ()] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
    ]


def test_an_image_that_is_already_a_data_url_is_not_wrapped_twice() -> None:
    image = {"type": "image", "data": f"data:image/png;base64,{PNG}", "mimeType": ""}
    (item,) = shown({"content": [image]}).content_items or ()
    assert item.model_dump()["image_url"] == f"data:image/png;base64,{PNG}"


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image", "data": "no base64!", "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "image", "data": PNG, "mimeType": "image/svg+xml"},
        {"type": "image", "data": PNG[:-16], "mimeType": "image/png"},
        {"type": "image", "data": "A" * 20_000_000, "mimeType": "image/png"},
    ],
)
def test_an_image_that_an_api_would_refuse_becomes_a_sentence(image: Json) -> None:
    payload = shown({"content": [image]})
    assert payload.content_items is None
    assert "an image was left out" in payload.content
    assert len(payload.content) < 200


@pytest.mark.parametrize("raw", [None, [], "x", {}, {"content": "not a list"}, {"content": None}])
def test_an_invalid_result_is_rejected(raw: Json) -> None:
    assert parse_result(raw) is None


def test_a_block_that_is_none_is_shown_as_it_came() -> None:
    payload = shown({"content": [{"type": "text"}, 5, {"type": "zzz", "foo": 1}]})
    assert [block.get("text") for block in json.loads(payload.content)] == ['{"type":"text"}', "5", None]


def test_text_is_cut_over_all_blocks_together() -> None:
    result = parsed({"content": [text("a" * MAX_RESULT_CHARS), text("b" * 10)]})
    assert len(result.to_json()) < MAX_RESULT_CHARS + 1000
    assert "[cut here: the text had 10 characters]" in payload_of(result).content


def test_structured_content_that_is_too_long_is_cut_as_text() -> None:
    result = parsed({"content": [], "structuredContent": {"a": "b" * (2 * MAX_RESULT_CHARS)}})
    assert result.structured_content is None
    assert len(result.to_json()) < MAX_RESULT_CHARS + 1000


def test_the_number_of_blocks_is_bounded() -> None:
    result = parsed({"content": [text("x")] * (MAX_RESULT_BLOCKS + 5)})
    assert len(result.content) == MAX_RESULT_BLOCKS + 1
    assert "5 more blocks" in payload_of(result).content


def test_notes_for_the_protocol_itself_are_not_passed_on() -> None:
    result = parsed({"content": [{**text("x"), "_meta": {"k": 1}}], "_meta": {"z": 1}})
    assert result.to_value() == {"content": [{"type": "text", "text": "x"}]}


def test_an_outcome_is_reported_to_client_and_model() -> None:
    worked = McpCallOutcome(text_result("x", is_error=False), None, 1.5)
    assert worked.event_result().to_value() == {
        "Ok": {"content": [{"text": "x", "type": "text"}], "isError": False}
    }
    assert worked.duration.to_value() == {"secs": 1, "nanos": 500_000_000}
    failed = McpCallOutcome(None, "no", 0)
    assert failed.is_error
    assert failed.event_result().to_value() == {"Err": "no"}
    assert failed.payload() == FunctionCallOutputPayload(content="no", success=False)
