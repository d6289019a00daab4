from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.http.sse import SseDecoder
from app_server.engine.model import prompt
from app_server.engine.model.api_failures import FLAGGED
from app_server.engine.model.responses_reader import ResponsesDecoder
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError, StreamDisconnected
from app_server_protocol.encoding import Json
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.responses import FunctionCall, MessageItem, OtherItem, OutputText
from tests.engine.model.scripted import (
    COMPLETED,
    CREATED,
    JSON,
    event,
    item_done,
    message_done,
    sse,
    text_delta,
)
from tests.support.written_texts import content_deltas, summary_deltas, text_deltas


def read(*frames: bytes, end: bool = False) -> list[prompt.ModelEvent]:
    decoder, events = ResponsesDecoder(), list[prompt.ModelEvent]()
    for frame in SseDecoder().feed(b"".join(frames)):
        decoder.decode(frame, events)
    if end:
        decoder.end(events)
    return events


def failing(**error: Json) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read(CREATED, event("response.failed", response={"id": "r", "error": error}))
    return caught.value


def test_a_whole_answer() -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    added = {"type": "message", "role": "assistant", "id": "m", "content": []}
    events = read(
        CREATED,
        event("response.output_item.added", item=added),
        text_delta("Hel"),
        event("response.reasoning_summary_part.added", summary_index=1),
        event("response.reasoning_summary_text.delta", delta="think", summary_index=1),
        event("response.reasoning_text.delta", delta="raw", content_index=2),
        message_done("Hello"),
        event("response.completed", response={"id": "r1", "usage": usage}),
        end=True,
    )
    assert events == [
        prompt.Created(),
        prompt.OutputItemAdded(MessageItem(role="assistant", content=(), id="m")),
        *text_deltas("Hel"),
        prompt.ReasoningSummaryPartAdded(1),
        *summary_deltas("think", index=1),
        *content_deltas("raw", index=2),
        prompt.OutputItemDone(MessageItem(role="assistant", content=(OutputText(text="Hello"),))),
        prompt.Completed(
            TokenUsage(
                input_tokens=10,
                cached_input_tokens=4,
                output_tokens=5,
                reasoning_output_tokens=2,
                total_tokens=15,
            ),
        ),
    ]


def test_the_type_in_the_data_is_enough_and_so_is_the_name_of_the_event() -> None:
    assert read(sse({"type": "response.output_text.delta", "delta": "a"})) == text_deltas("a")
    assert read(b'event: response.output_text.delta\ndata: {"delta": "b"}\n\n') == text_deltas("b")


@pytest.mark.parametrize(
    "frame",
    [
        event("response.something_new", x=1),
        event("response.in_progress"),
        event("response.output_text.delta"),
        event("response.output_text.delta", delta=None),
        event("response.output_item.done"),
        event("response.output_item.done", item="text"),
        event("response.reasoning_text.delta", delta=3),
        sse({"type": ["response.created"]}),
        b"data: {broken\n\n",
        b"data: [1]\n\n",
        b"data: [DONE]\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
)
def test_frames_without_content_are_skipped(frame: bytes) -> None:
    assert read(frame, text_delta("on")) == text_deltas("on")


def test_odd_texts_come_through() -> None:
    assert read(b'data: {"type":"response.output_text.delta","delta":"a\\ud800b"}\n\n') == text_deltas(
        "a\ud800b"
    )
    assert read(b'data: {"type":"response.output_text.delta","delta":"a\xe2\x82b"}\n\n') == text_deltas(
        "a\ufffdb"
    )
    assert read(b'data: {"type":"response.output_text.delta","delta":"\\u0000\\n"}\n\n') == text_deltas(
        "\x00\n"
    )


def test_an_item_of_an_unknown_kind_is_kept_as_other() -> None:
    [done] = read(item_done(type="hologram", depth=3))
    assert isinstance(done, prompt.OutputItemDone)
    assert isinstance(done.item, OtherItem)


@pytest.mark.parametrize(
    "content",
    [
        "Sorry.",
        [{"type": "refusal", "refusal": "Sorry."}],
        [{"type": "text", "text": "Sorry."}],
        [
            {"type": "output_audio", "data": "AA=="},
            {"type": "output_text", "text": "Sorry.", "annotations": []},
        ],
    ],
    ids=["a text", "a refusal to fill a schema", "a part of Chat Completions", "beside an unknown part"],
)
def test_a_message_with_another_content_is_shown(content: Json) -> None:
    [done] = read(item_done(type="message", role="assistant", id="m", content=content))
    shown = MessageItem(role="assistant", content=(OutputText(text="Sorry."),), id="m")
    assert done == prompt.OutputItemDone(shown)


def test_a_refusal_streams_as_text() -> None:
    deltas = (event("response.refusal.delta", delta=text) for text in ("Sor", "ry."))
    assert read(*deltas) == text_deltas("Sor", "ry.")


@pytest.mark.parametrize(("fields", "call_id"), [({}, ""), ({"id": "fc"}, "fc"), ({"call_id": "c"}, "c")])
def test_a_call_without_an_id_is_still_a_call(fields: dict[str, str], call_id: str) -> None:
    [done] = read(item_done(type="function_call", name="shell", arguments="{}", **fields))
    assert isinstance(done, prompt.OutputItemDone)
    assert isinstance(done.item, FunctionCall)
    assert done.item.call_id == call_id


@pytest.mark.parametrize(
    "response",
    [
        None,
        {},
        {"usage": None},
        {"usage": "many"},
        {"usage": {"input_tokens": "x", "output_tokens": 1, "total_tokens": 1}},
        {"usage": {"input_tokens": 1}},
    ],
)
def test_completed_is_completed_whatever_it_holds(response: Json) -> None:
    assert read(event("response.completed", response=response), end=True) == [prompt.Completed(None)]


def test_events_after_response_completed_are_ignored() -> None:
    late = item_done(type="function_call", name="shell", arguments="{}", call_id="late")
    failed = event("response.failed", response={"error": {"message": "late"}})
    assert read(CREATED, COMPLETED, late, COMPLETED, failed, end=True) == [
        prompt.Created(),
        prompt.Completed(None),
    ]


def test_a_stream_that_ends_early_says_so() -> None:
    with pytest.raises(StreamDisconnected, match=r"stream closed before response\.completed") as caught:
        read(CREATED, end=True)
    assert caught.value.retryable


def test_failures_by_code() -> None:
    assert isinstance(failing(code="context_length_exceeded", message="too long"), ContextWindowExceeded)
    assert "quota is used up" in str(failing(code="insufficient_quota", message="pay"))
    assert "does not accept the request" in str(failing(code="invalid_prompt", message="no"))
    assert not failing(code="context_length_exceeded", message="x").retryable
    for policy, unexplained in FLAGGED.items():
        for message, told in (("told why", "told why"), (None, unexplained)):
            flagged = failing(code=policy.value, message=message)
            assert (str(flagged), flagged.error_class) == (told, policy)
            assert not flagged.retryable
    other = failing(code="server_error", message="the model fell over")
    assert str(other) == "stream disconnected before completion: the model fell over"
    assert other.retryable
    assert other.retry_after is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached. Please try again in 1.3s. Thanks.", 1.3),
        ("Please try again in 28ms.", 0.028),
        ("try again in 2 seconds", 2.0),
        ("Try Again In 35 seconds", 35.0),
        ("try again in 1m30s", 90.0),
        ("try again in 1m59s.", 119.0),
        ("try again in 3 moons", None),
        ("try again later", None),
        ("", None),
    ],
)
def test_a_rate_limit_tells_when_to_come_back(text: str, seconds: float | None) -> None:
    error = failing(code="rate_limit_exceeded", message=text)
    assert isinstance(error, StreamDisconnected)
    assert error.retry_after == (None if seconds is None else pytest.approx(seconds))


def test_only_a_rate_limit_is_searched_for_a_delay() -> None:
    assert failing(code="server_error", message="try again in 90s").retry_after is None


@pytest.mark.parametrize("response", [None, {}, {"error": None}, {"error": {}}, {"error": 3}])
def test_a_failure_without_an_explanation(response: Json) -> None:
    with pytest.raises(StreamDisconnected, match=r"response\.failed event received"):
        read(event("response.failed", response=response))


def test_an_incomplete_answer_is_not_tried_again() -> None:
    frame = event("response.incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}})
    with pytest.raises(ModelError, match="max_output_tokens") as caught:
        read(message_done("part"), frame)
    assert not caught.value.retryable


def test_an_error_event_fails_the_answer() -> None:
    with pytest.raises(StreamDisconnected, match="bad thing"):
        read(event("error", code="server_error", message="bad thing"))


WHOLE = b"".join(
    [
        b": ping\r\n\r\n",
        CREATED,
        text_delta("gr\u00fc\u00dfe \U0001f600"),
        message_done("x"),
        COMPLETED.replace(b"\n", b"\r\n"),
    ]
)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_any_cut_of_a_stream_gives_the_same_events(cuts: list[int]) -> None:
    frames, decoder, events, start = SseDecoder(), ResponsesDecoder(), list[prompt.ModelEvent](), 0
    for cut in [*sorted(cuts), len(WHOLE)]:
        for frame in frames.feed(WHOLE[start:cut]):
            decoder.decode(frame, events)
        start = cut
    assert events == read(WHOLE)
    assert decoder.completed


KINDS = [
    "response.created",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_part.added",
    "response.reasoning_text.delta",
    "response.completed",
    "response.failed",
    "response.incomplete",
    "error",
]
FIELDS = ["response", "item", "delta", "summary_index", "content_index", "error", "code", "message", "usage"]


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_event_raises_anything_but_model_errors(kind: str, fields: dict[str, Json]) -> None:
    with suppress(ModelError):
        read(event(kind, **fields))
