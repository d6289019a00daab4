"""How much of one answer is taken, whichever API it was asked through, and that others run meanwhile."""

import json
import logging

import anyio
import anyio.lowlevel
import pytest

from app_server.core.bounds import MAX_VALUES, PIECE_BYTES, PIECE_STEPS
from app_server.core.errors import ModelError
from app_server.core.http.exchange import Fault, HttpFailure
from app_server.core.http.sse import SseFrame
from app_server.core.model import payload, stream
from app_server.core.model.chat_api import ChatDecoder
from app_server.core.model.model_errors import ResponseTooLarge, ResponseUnreadable
from app_server.core.model.model_events import Completed, ModelEvent
from app_server.core.model.model_list import ModelsUnknown, list_models
from app_server.core.model.payload import parse_object
from app_server.core.model.responses_api import ResponsesDecoder
from protocol.base import Json
from tests.unit.model.scripted import (
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
    monkeypatch.setattr(payload, "MAX_ITEM_BYTES", 100_000)
    error, events = await failed(CREATED, *[message_done("x" * 1000)] * 200)
    assert isinstance(error, ResponseTooLarge)
    assert not error.retryable
    assert 80 < len(events) < 110


async def test_an_answer_of_very_many_items_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MAX_ITEMS", 50)
    error, events = await failed(CREATED, *[message_done("x")] * 60)
    assert "more than 50 items" in str(error)
    assert len(events) == 2 + 50


async def test_an_answer_that_never_ends_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_ANSWER_BYTES", 10_000)
    error, _ = await failed(CREATED, *[b": still here\n\n"] * 1000)
    assert isinstance(error, ResponseTooLarge)


def test_the_pieces_of_a_chat_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MAX_ITEM_BYTES", 10_000)
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
    calls = [{"id": f"c{n}", "function": {}} for n in range(payload.MAX_ITEMS + 1)]
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
    """Whatever the slow parser could still read, nobody could write again."""
    for depth, found in ((50, True), (250, False), (800, False), (100_000, False)):
        data = f'{{"a":"{broken}","b":{"[" * depth}{"]" * depth}}}'.encode()
        assert (parse_object(data) is not None) is found


def test_events_that_are_not_json_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    decoder = ResponsesDecoder()
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            decoder.decode(SseFrame("", b"x"), [])
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("fault", "kind"), [(Fault.TOO_LARGE, ResponseTooLarge), (Fault.ENCODED, ResponseUnreadable)]
)
async def test_what_would_come_again_is_not_asked_for_again(fault: Fault, kind: type[ModelError]) -> None:
    error, events = await failed(CREATED, HttpFailure(fault, "an answer for tests"))
    assert isinstance(error, kind)
    assert "sent an answer for tests" in str(error)
    assert not error.retryable
    assert len(events) == 2


async def test_a_list_of_models_beyond_the_limits_is_ignored() -> None:
    http = ScriptedHttp(refused(200, b'{"data":[' + b"{}," * MAX_VALUES + b"{}]}"))
    found = await list_models(provider_config(), http, env={}, identity=IDENTITY)
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
    """The least there is: one round of the event loop for each piece and each batch of events."""
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
    # The other task misses the first.
    assert rounds >= max(len(chunk) // PIECE_BYTES, frames // PIECE_STEPS) - 2
