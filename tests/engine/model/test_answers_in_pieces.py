"""Answers over Chat Completions and the Responses API, cut at every byte as the network may cut them."""

from collections.abc import AsyncIterator, Callable

import pytest

from app_server.engine.model.chat_reader import ChatDecoder
from app_server.engine.model.prompt import ModelEvent, OutputItemDone
from app_server.engine.model.responses_reader import ResponsesDecoder
from app_server.engine.model.stream import EventStream, WireDecoder
from app_server.engine.support.engine_errors import ModelError
from app_server_protocol.encoding import Json
from tests.engine.model.scripted import sse

END = b"data: [DONE]\n\n"


def chat(*deltas: Json, finish: str | None = "stop", **more: Json) -> bytes:
    """Return the chunks of an answer."""
    chunks = [{"id": "1", "choices": [{"index": 0, "delta": each}]} for each in deltas]
    last = {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **more}
    return b"".join(map(sse, (*chunks, last)))


def call(index: int | None, id: str | None, name: str | None, arguments: Json) -> Json:
    fields = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [{key: value for key, value in fields.items() if value is not None}]}


def message(text: str, id: str = "m") -> Json:
    return {
        "type": "message",
        "id": id,
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }


def responses(*events: Json) -> bytes:
    return b"".join(sse(each) for each in events)


CREATED: Json = {"type": "response.created", "response": {"id": "r"}}
CALL: Json = {"type": "function_call", "id": "f", "call_id": "c", "name": "shell", "arguments": '{"a":"ü"}'}
COMPLETED: Json = {"type": "response.completed", "response": {"id": "r", "output": [message("é 😀"), CALL]}}

CHAT = {
    "words": chat({"content": "é "}, {"content": "😀\r\n"}) + END,
    "lines that end in CR LF": chat({"content": "a"}).replace(b"\n", b"\r\n") + b"data: [DONE]\r\n\r\n",
    "comments and blank data": b": OPENROUTER PROCESSING\n\n" + chat({"content": "a"}) + b"data:\n\n" + END,
    "one index for two calls": chat(
        call(0, "a", "x", "{}"), call(0, "b", "y", '{"z":1}'), finish="tool_calls"
    )
    + END,
    "no index": chat(call(None, "a", "x", '{"p":'), call(None, None, None, "1}"), call(None, None, "y", "{}"))
    + END,
    "arguments as an object": chat(call(0, "a", "x", {"p": "ü"})) + END,
    "thoughts and words": chat({"reasoning_content": "Hm…"}, {"content": "a"}, {"reasoning": "b"}) + END,
    "a limit that cuts a call": chat(call(0, "a", "x", '{"p":"'), finish="length") + END,
    "a filter": chat({"content": "a"}, finish="content_filter") + END,
    "an unknown reason": chat({"content": "a"}, finish="eos_token") + END,
    "a broken answer": chat({"content": "a"}, finish="network_error") + END,
    "an error in the stream": chat({"content": "a"}, finish=None)
    + sse({"error": {"message": "ö", "code": 502}}),
    "an event that is an error": chat({"content": "a"}, finish=None)
    + b'event: error\ndata: {"message": "no"}\n\n',
    "no end": chat({"content": "a"}, finish=None),
    "no closing mark": chat({"content": "a"}),
    "usage in the choice": chat({"content": "a"}, usage={"prompt_tokens": 3, "completion_tokens": 2}) + END,
    "content in parts": chat({"content": [{"type": "text", "text": "é"}]}) + END,
}

RESPONSES = {
    "items at the end": responses(CREATED, COMPLETED),
    "items one by one": responses(
        CREATED,
        {"type": "response.output_item.added", "item": message("")},
        {"type": "response.output_text.delta", "delta": "é "},
        {"type": "response.output_text.delta", "delta": "😀"},
        {"type": "response.output_item.done", "item": message("é 😀")},
        {"type": "response.output_item.done", "item": CALL},
        COMPLETED,
    ),
    "words without an item": responses(
        CREATED,
        {"type": "response.output_text.delta", "delta": "é"},
        {"type": "response.output_text.done", "text": "é"},
        {"type": "response.done", "response": {"id": "r"}},
    ),
    "incomplete": responses(
        CREATED,
        {"type": "response.output_item.done", "item": message("ü")},
        {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
    ),
    "failed": responses(
        CREATED, {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "ö"}}}
    ),
    "an error": responses(CREATED, {"type": "error", "message": "ö", "code": "x"}),
    "no end": responses(CREATED, {"type": "response.output_item.done", "item": message("é")}),
    "lines that end in CR LF": responses(CREATED, COMPLETED).replace(b"\n", b"\r\n"),
}


async def read(decoder: WireDecoder, *pieces: bytes) -> tuple[list[ModelEvent], str]:
    """Return all events of an answer that comes in these pieces, and its error."""

    async def chunks() -> AsyncIterator[bytes]:
        for each in pieces:
            if each:
                yield each

    events: list[ModelEvent] = []
    try:
        async for batch in EventStream(chunks(), decoder, []):
            events += batch
    except ModelError as error:
        return events, f"{type(error).__name__} {error.error_class} {error.retryable} {error}"
    return events, ""


async def is_read_alike(stream: bytes, decoder: Callable[[], WireDecoder]) -> tuple[list[ModelEvent], str]:
    whole = await read(decoder(), stream)
    for n in range(1, len(stream)):
        assert await read(decoder(), stream[:n], stream[n:]) == whole, (n, stream[:n][-40:])
    assert await read(decoder(), *(stream[n : n + 1] for n in range(len(stream)))) == whole
    return whole


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("name", CHAT)
async def test_an_answer_over_chat_completions(name: str, *, live: bool) -> None:
    events, error = await is_read_alike(CHAT[name], lambda: ChatDecoder(live=live))
    assert error or any(isinstance(each, OutputItemDone) for each in events)


@pytest.mark.parametrize("name", RESPONSES)
async def test_an_answer_over_the_responses_api(name: str) -> None:
    events, error = await is_read_alike(RESPONSES[name], ResponsesDecoder)
    assert error or any(isinstance(each, OutputItemDone) for each in events)
