"""Bounds of one answer, and the errors of answers that failed."""

import json
import logging

import anyio
import anyio.lowlevel
import pytest

from app_server.engine.http.interface import Fault, HttpFailure
from app_server.engine.http.sse import SseFrame
from app_server.engine.model import event_json, stream
from app_server.engine.model.api_failures import RequestFailure, rate_limits, request_failure, retry_after
from app_server.engine.model.chat_reader import ChatDecoder
from app_server.engine.model.discovery import Discovery
from app_server.engine.model.event_json import parse_object
from app_server.engine.model.model_errors import (
    LONGEST_DELAY,
    ResponseTooLarge,
    UsageLimitReached,
    backoff,
)
from app_server.engine.model.prompt import Completed, ModelEvent
from app_server.engine.model.responses_reader import ResponsesDecoder
from app_server.engine.model.served_models import ModelsUnknown
from app_server.engine.support.engine_errors import ModelError
from app_server.engine.support.worker_threads import PIECE_BYTES, PIECE_STEPS
from app_server_protocol.encoding import Json
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.engine.token_usage import RateLimitSnapshot, RateLimitWindow
from app_server_protocol.json_limits import MAX_VALUES
from tests.engine.model.scripted import (
    COMPLETED,
    CREATED,
    IDENTITY,
    ScriptedHttp,
    answer,
    ask,
    client_for,
    message_done,
    provider_config,
    refused,
    text_delta,
)


async def failed(*parts: bytes | HttpFailure) -> tuple[ModelError, list[ModelEvent]]:
    events: list[ModelEvent] = []
    with pytest.raises(ModelError) as caught:
        await ask(client_for(ScriptedHttp(answer(*parts))), into=events)
    return caught.value, events


def chat(*frames: Json) -> None:
    decoder = ChatDecoder(live=True)
    for frame in frames:
        delta = {"choices": [{"delta": frame}]}
        decoder.decode(SseFrame("", json.dumps(delta).encode()), [])


async def test_an_endless_answer_of_complete_items_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_json, "MAX_ITEM_BYTES", 100_000)
    error, events = await failed(CREATED, *[message_done("x" * 1000)] * 200)
    assert isinstance(error, ResponseTooLarge)
    assert not error.retryable
    assert 80 < len(events) < 110


async def test_an_answer_of_very_many_items_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_json, "MAX_ITEMS", 50)
    error, events = await failed(CREATED, *[message_done("x")] * 60)
    assert "more than 50 items" in str(error)
    assert len(events) == 2 + 50


async def test_an_answer_that_never_ends_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_ANSWER_BYTES", 10_000)
    error, _ = await failed(CREATED, *[b": still here\n\n"] * 1000)
    assert isinstance(error, ResponseTooLarge)


def test_the_pieces_of_a_chat_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_json, "MAX_ITEM_BYTES", 10_000)
    for piece in (
        {"content": "x" * 100},
        {"reasoning": "x" * 100},
        {"tool_calls": [{"index": 0, "function": {"arguments": "x" * 100}}]},
    ):
        chat(*[piece] * 50)
        with pytest.raises(ResponseTooLarge):
            chat(*[piece] * 70)
    with pytest.raises(ResponseTooLarge):
        chat({"tool_calls": [{"index": 0, "function": {"name": "x" * 20_000}}]})


def test_the_calls_of_a_chat_are_bounded() -> None:
    calls = [{"id": f"c{n}", "function": {}} for n in range(event_json.MAX_ITEMS + 1)]
    chat({"tool_calls": calls[:-1]})
    with pytest.raises(ResponseTooLarge):
        chat({"tool_calls": calls})


@pytest.mark.parametrize(
    "frame", [b"[]," * MAX_VALUES, b'{"a":' * (MAX_VALUES + 1), b"1," * (MAX_VALUES + 1)]
)
def test_more_structure_than_is_parsed(frame: bytes) -> None:
    data = b'{"type":"response.created","x":[' + frame + b"1]}"
    assert parse_object(data) is None
    for decoder in (ResponsesDecoder(), ChatDecoder(live=False)):
        with pytest.raises(ResponseTooLarge):
            decoder.decode(SseFrame("", data), [])


def test_what_is_no_object_is_skipped_whatever_is_in_it() -> None:
    for data in (b"[" * 5_000_000, b" [" + b"[]," * MAX_VALUES, b"," * (MAX_VALUES + 1)):
        out: list[ModelEvent] = []
        ResponsesDecoder().decode(SseFrame("", data), out)
        assert out == []


def test_long_text_is_no_structure() -> None:
    text = "word, " * (MAX_VALUES - 10)
    assert parse_object(json.dumps({"a": text}).encode()) == {"a": text}


@pytest.mark.parametrize("broken", ["", "\\ud800"])
def test_what_is_nested_deeply_is_skipped(broken: str) -> None:
    """The slow parser might still read it, but nothing could write it again."""
    for depth, found in ((50, True), (250, False), (800, False), (100_000, False)):
        data = f'{{"a":"{broken}","b":{"[" * depth}{"]" * depth}}}'.encode()
        assert (parse_object(data) is not None) is found


def test_events_that_are_not_json_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    decoder = ResponsesDecoder()
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            decoder.decode(SseFrame("", b"{secret"), [])
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text


@pytest.mark.parametrize("fault", [Fault.TOO_LARGE, Fault.ENCODED])
async def test_what_would_come_again_is_not_asked_for_again(fault: Fault) -> None:
    error, events = await failed(CREATED, HttpFailure(fault, "an answer for tests"))
    assert "sent an answer for tests" in str(error)
    assert not error.retryable
    assert len(events) == 2


async def test_a_list_of_models_beyond_the_limits_is_ignored() -> None:
    http = ScriptedHttp(refused(200, b'{"data":[' + b"{}," * MAX_VALUES + b"{}]}"))
    found = await Discovery(provider_config(), http, env={}, identity=IDENTITY).ask()
    assert isinstance(found, ModelsUnknown)


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(b": x\n\n" * 400_000, id="comments"),
        pytest.param(b"\n" * 2_000_000, id="line ends"),
        pytest.param(text_delta("x") * 20_000, id="deltas"),
        pytest.param(b"data: x\n\n" * 50_000, id="garbage"),
    ],
)
async def test_others_run_while_a_large_chunk_is_read(chunk: bytes) -> None:
    """The minimum is one round of the event loop for each piece and each batch of events."""
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            await anyio.lowlevel.checkpoint()
            rounds += 1

    async with anyio.create_task_group() as group:
        group.start_soon(others)
        events = await ask(client_for(ScriptedHttp(answer(chunk, COMPLETED))))
        group.cancel_scope.cancel()
    assert isinstance(events[-1], Completed)
    frames = chunk.count(b"data:")
    # The other task misses the first round.
    assert rounds >= max(len(chunk) // PIECE_BYTES, frames // PIECE_STEPS) - 2


def told(status: int, error: Json = None, **headers: str) -> RequestFailure:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request_failure(status, named, json.dumps({"error": error}).encode())


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (
            400,
            b'{"error": {"message": "bad input"}}',
            'unexpected status 400 Bad Request: {"error": {"message": "bad input"}}',
        ),
        (404, b"not here", "unexpected status 404 Not Found: not here"),
        (403, b"", "unexpected status 403 Forbidden: "),
        (302, b"", "unexpected status 302 Found: "),
        (401, b"no key", "exceeded retry limit, last status: 401 Unauthorized"),
        (599 - 100, b"?", "unexpected status 499 <unknown status code>: ?"),
    ],
)
def test_refusals_that_no_retry_would_change(status: int, body: bytes, text: str) -> None:
    refused = request_failure(status, {}, body)
    assert str(refused.error) == text
    assert not refused.again
    assert not refused.error.retryable


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_overload_is_tried_again(status: int) -> None:
    refused = request_failure(status, {}, b"")
    assert refused.again
    assert refused.delay is None
    assert refused.error.retryable


def test_the_text_of_a_rate_limit() -> None:
    assert str(told(429).error) == "exceeded retry limit, last status: 429 Too Many Requests"
    named = told(503, x_request_id="req_1").error
    assert str(named) == "exceeded retry limit, last status: 503 Service Unavailable, request id: req_1"


def test_a_provider_that_says_it_is_overloaded() -> None:
    told_so = told(503, {"code": "server_is_overloaded", "message": "busy"})
    assert told_so.again
    assert told_so.error.error_class is ErrorClass.SERVER_OVERLOADED
    assert told(503, {"message": "busy"}).error.error_class is ErrorClass.HTTP_CONNECTION_FAILED


def test_a_page_of_html_is_cut() -> None:
    error = request_failure(404, {}, b"<html>" + b"x" * 100_000).error
    assert len(str(error)) < 1000


def test_limits_of_the_account() -> None:
    error = told(429, {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": 1704069000}).error
    assert isinstance(error, UsageLimitReached)
    assert "plus" in str(error)
    assert "2024-01-01 at 00:30 UTC" in str(error)
    assert error.rate_limits == RateLimitSnapshot()
    assert "does not include" in str(told(429, {"type": "usage_not_included"}).error)
    assert "quota is used up" in str(told(429, {"code": "insufficient_quota"}).error)
    for ended in (told(429, {"type": "usage_limit_reached"}), told(429, {"code": "insufficient_quota"})):
        assert not ended.again
        assert not ended.error.retryable


@pytest.mark.parametrize("resets_at", [None, "soon", -1, 10**30, True, 1.5])
def test_an_odd_reset_time_is_left_out(resets_at: Json) -> None:
    error = told(429, {"type": "usage_limit_reached", "resets_at": resets_at}).error
    assert "later" in str(error)


def test_a_usage_limit_error_has_the_rate_limits() -> None:
    error = told(429, {"type": "usage_limit_reached"}, x_codex_primary_used_percent="100").error
    assert isinstance(error, UsageLimitReached)
    assert error.rate_limits == RateLimitSnapshot(primary=RateLimitWindow(used_percent=100))


def test_a_gateway_that_blocks_is_named() -> None:
    refused = request_failure(403, {}, b"<html>Cloudflare: sorry, you have been blocked</html>")
    assert "Cloudflare" in str(refused.error)
    assert "html" not in str(refused.error)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\xff", b"null", b'{"error": "text"}', b'{"error": {"type": 3}}']
)
def test_an_error_response_may_have_any_body(body: bytes) -> None:
    for status in (400, 401, 429, 500):
        assert isinstance(request_failure(status, {}, body).error, ModelError)


def test_a_long_retry_after_ends_the_retries() -> None:
    assert told(429, retry_after="3").delay == 3
    refused = told(429, retry_after="3600")
    assert "asks to wait" in str(refused.error)
    assert not refused.again
    assert "3600 seconds" in str(refused.error)
    assert "exceeded retry limit" in str(told(429, retry_after="0").error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:10 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:10 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", "date": "Wed, 21 Oct 2015 07:29:00 GMT"}, 0.0),
    ],
)
def test_when_the_provider_says_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@pytest.mark.parametrize("used", ["", "much", "nan", "inf", "0"])
def test_rate_limit_headers_that_say_nothing(used: str) -> None:
    assert rate_limits({"x-codex-primary-used-percent": used}) == RateLimitSnapshot()
    assert rate_limits({}) == RateLimitSnapshot(primary=None, secondary=None)


def test_backoff_doubles_within_its_jitter() -> None:
    assert [backoff(n, lambda: 0.5) for n in (0, 1, 2, 3, 4)] == pytest.approx([0.2, 0.2, 0.4, 0.8, 1.6])
    assert backoff(1, lambda: 0.0) == pytest.approx(0.18)
    assert backoff(1, lambda: 1.0) == pytest.approx(0.22)
    assert backoff(10_000, lambda: 0.5) == pytest.approx(LONGEST_DELAY)
