"""Builds the body of a request to the Chat Completions API. Pure.

The API supports messages, function calls and their outputs. Other calls of the history become function calls, so that a
conversation can switch providers. Reasoning is attached to the message or call that follows it, within a turn only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from app_server.core.model.item_bytes import ItemBytes, command_calls, json_bytes, wants_plain_outputs
from app_server.core.model.prompt import FunctionTool, Prompt, RequestSettings
from app_server.core.model.responses_request import SCHEMA_NAME, plainly, sendable
from protocol import responses
from protocol.structs import Json

Part = responses.InputText | responses.InputImage | responses.OutputText


def chat_body(prompt: Prompt, settings: RequestSettings, cache: ItemBytes, *, asks_usage: bool) -> bytes:
    """`asks_usage`: the provider is asked to count tokens."""
    head, tail = cache.envelope(
        (settings, asks_usage, prompt.instructions, prompt.output_schema, *prompt.tools),
        lambda: _envelope(prompt, settings, asks_usage=asks_usage),
    )
    return b"%b%b],%b" % (head, b"".join(b",%b" % message for message in _messages(prompt, cache)), tail)


def _envelope(prompt: Prompt, settings: RequestSettings, *, asks_usage: bool) -> tuple[bytes, bytes]:
    """Return the JSON up to the instructions, which are the first message, and from the end of the messages."""
    system = {"role": "system", "content": prompt.instructions}
    head = b'{"model":%b,"messages":[%b' % (json_bytes(settings.model), json_bytes(system))
    tail: dict[str, Json] = {
        "stream": True,
        "tools": [_tool(tool) for tool in prompt.tools if isinstance(tool, FunctionTool)],
    }
    if prompt.output_schema is not None:
        schema = {"name": SCHEMA_NAME, "strict": True, "schema": prompt.output_schema}
        tail["response_format"] = {"type": "json_schema", "json_schema": schema}
    if asks_usage:
        tail["stream_options"] = {"include_usage": True}
    return head, json_bytes(tail)[1:]


def _messages(prompt: Prompt, cache: ItemBytes) -> list[bytes]:
    items = sendable(prompt.input)
    plain = wants_plain_outputs(prompt)
    commands = command_calls(items) if plain else frozenset()

    def write(item: responses.ResponseItem) -> bytes:
        message = _message(plainly(item, commands))
        return b"" if message is None else json_bytes(message)

    written = cache.of(items, ("chat", plain), write)
    for place, thought in _thoughts(items).items():
        written[place] = b'%b,"reasoning":%b}' % (written[place][:-1], json_bytes(thought))
    return [message for message in written if message]


def _tool(tool: FunctionTool) -> Json:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", "function": function}


def _message(item: responses.ResponseItem) -> Json | None:
    match item:
        case responses.MessageItem():
            return {"role": item.role, "content": _content(item.content)}
        case responses.FunctionCall():
            return _call(item.call_id, item.name, item.arguments)
        case responses.CustomToolCall():
            return _call(item.call_id, item.name, json.dumps({"input": item.input}))
        case responses.LocalShellCall():
            return _call(item.call_id or item.id or "", "local_shell", item.action.to_json().decode())
        case responses.FunctionCallOutput():
            return {"role": "tool", "tool_call_id": item.call_id, "content": _output(item.output)}
        case responses.CustomToolCallOutput():
            return {"role": "tool", "tool_call_id": item.call_id, "content": item.output}
        case _:
            return None


def _call(call_id: str, name: str, arguments: str) -> Json:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _output(output: responses.FunctionCallOutputPayload) -> Json:
    return output.content if output.content_items is None else [_part(part) for part in output.content_items]


def _content(parts: Sequence[Part]) -> Json:
    """Return plain text where there is nothing else: not every server understands parts."""
    texts = [part.text for part in parts if not isinstance(part, responses.InputImage)]
    return "".join(texts) if len(texts) == len(parts) else [_part(part) for part in parts]


def _part(part: Part) -> Json:
    if isinstance(part, responses.InputImage):
        return {"type": "image_url", "image_url": {"url": part.image_url}}
    return {"type": "text", "text": part.text}


def _thoughts(items: Sequence[responses.ResponseItem]) -> dict[int, str]:
    """Return the reasoning since the last user message, by the index of the message or call that follows it."""
    start = max(
        (
            n
            for n, item in enumerate(items)
            if isinstance(item, responses.MessageItem) and item.role == "user"
        ),
        default=-1,
    )
    thoughts: dict[int, str] = {}
    for n in range(start + 1, len(items)):
        item = items[n]
        text = (
            "".join(part.text for part in item.content or ())
            if isinstance(item, responses.ReasoningResponseItem)
            else ""
        )
        place = next(
            (
                at
                for at in (n + 1, n - 1)
                if at > start and at < len(items) and _can_carry_reasoning(items[at])
            ),
            None,
        )
        if text and place is not None:
            thoughts[place] = thoughts.get(place, "") + text
    return thoughts


def _can_carry_reasoning(item: responses.ResponseItem) -> bool:
    if isinstance(item, responses.MessageItem):
        return item.role == "assistant"
    return isinstance(item, responses.FunctionCall | responses.CustomToolCall | responses.LocalShellCall)
