"""Requests over the Messages API as the client of a conversation sends them."""

import pytest

from app_server.engine.config.config_values import WireApi
from app_server.engine.model.api_failures import request_failure
from app_server.engine.model.catalogue import find_model
from app_server.engine.model.prompt import FunctionTool, Prompt
from app_server_protocol.item_origin import ItemOrigin
from app_server_protocol.responses import InputText, MessageItem, OutputText, ReasoningResponseItem
from app_server_protocol.values import replace
from tests.engine.model.scripted import SETTINGS, ScriptedHttp, answer, ask, client_for
from tests.support.claude import events, stream, text


async def test_a_configured_extension_of_the_messages_api_is_joined_with_that_of_the_request() -> None:
    model = "claude-sonnet-4-5"
    thinking = replace(SETTINGS, model=model, row=find_model(model), effort="high")
    http = ScriptedHttp(answer(stream(events(text("hi")))), answer(stream(events(text("hi")))))
    client = client_for(http, wire_api=WireApi.MESSAGES, http_headers={"anthropic-beta": "own-1"})
    await ask(client, thinking)
    await ask(client, replace(thinking, effort=None))
    betas = [request.headers["anthropic-beta"] for request in http.requests]
    assert betas == ["own-1,interleaved-thinking-2025-05-14", "own-1"]


async def test_thoughts_are_forgotten_where_the_head_of_the_conversation_changes() -> None:
    """Claude refuses thoughts that it has signed for other tools."""
    model = "claude-opus-5-5"
    settings = replace(SETTINGS, model=model, row=find_model(model))
    replies = [answer(stream(events(text("hi")))) for _ in range(3)]
    http = ScriptedHttp(*replies)
    client = client_for(http, wire_api=WireApi.MESSAGES)
    origin = ItemOrigin(answer="1-m", provider="mock", model=model, wire="messages", kept={"signature": "s"})
    history = (
        MessageItem(role="user", content=(InputText(text="hi"),)),
        ReasoningResponseItem(origin=origin),
        MessageItem(role="assistant", content=(OutputText(text="hi"),), origin=origin),
        MessageItem(role="user", content=(InputText(text="more"),)),
    )
    one, other = FunctionTool("one", "", {}), FunctionTool("other", "", {})
    for tools in ((one,), (one,), (one, other)):
        asked = Prompt(instructions="Be useful.", input=history, tools=tools)
        async with client.stream(asked, settings) as batches:
            async for _ in batches:
                pass
    sent = [[block["type"] for block in http.body(n)["messages"][1]["content"]] for n in range(3)]
    assert sent == [["thinking", "text"], ["thinking", "text"], ["text"]]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-28T10:00:30Z",
                "date": "Sat, 28 Nov 2026 10:00:00 GMT",
            },
            30,
        ),
        ({"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "soon"}, None),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "5",
                "anthropic-ratelimit-tokens-reset": "2026-11-28T10:00:30Z",
                "date": "Sat, 28 Nov 2026 10:00:00 GMT",
            },
            None,
        ),
    ],
)
def test_a_limit_that_is_used_up_is_waited_for(headers: dict[str, str], seconds: float | None) -> None:
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"Number of requests exceeded"}}'
    failed = request_failure(429, headers, body)
    assert (failed.again, failed.delay) == (True, seconds)
