"""The Chat Completions API: its stream as the events that the Responses API has, and the body of a request. Pure.

Chunks contain pieces of reasoning, of text, and of tool calls, which may interleave. The decoder assembles them into
items: reasoning ends when the text begins, the text ends with the response, and the calls follow in the order of their
index. Reasoning after the start of the text becomes a separate item after the text.

A request supports messages, function calls and their outputs. Other calls of the history become function calls, so that
a conversation can switch providers. Reasoning is attached to the message or call that follows it, within a turn only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from app_server.core.errors import StreamDisconnected
from app_server.core.http.sse import SseFrame
from app_server.core.model import payload
from app_server.core.model.api_failures import reported_failure
from app_server.core.model.item_bytes import SCHEMA_NAME, ItemBytes, sendable, write_items
from app_server.core.model.model_errors import CLOSED_EARLY, incomplete_response
from app_server.core.model.prompt import (
    Completed,
    FunctionTool,
    ModelEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    Prompt,
    ReasoningContentDelta,
    RequestSettings,
)
from app_server_protocol import responses
from app_server_protocol.events.turn import TokenUsage
from app_server_protocol.responses import (
    FunctionCall,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ReasoningText,
)
from app_server_protocol.structs import Json, json_bytes

CUT_SHORT = ("length", "content_filter")


class _Call(Struct):
    id: str = ""
    name: str = ""
    arguments: list[str] = msgspec.field(default_factory=list)


class ChatDecoder:
    """Decodes one response. With `live`, emits deltas and token counts; otherwise only complete items."""

    def __init__(self, *, live: bool) -> None:
        self.completed = False
        self._live = live
        self._events, self._size = payload.EventReader(), payload.ReplySize()
        self._response_id: str | None = None
        self._reasoning: list[str] = []
        self._afterthought: list[str] = []
        self._text: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._by_id: dict[str, int] = {}
        """The index of the call that first had this id."""
        self._highest: int | None = None
        self._usage: TokenUsage | None = None
        self._finish: str | None = None

    def decode(self, frame: SseFrame, out: list[ModelEvent]) -> None:
        """Appends the events of a chunk. Raises ModelError if it reports a failure."""
        if self.completed:
            return
        if frame.data.strip() == b"[DONE]":
            self._complete(out)
            return
        chunk = self._events.read_object(frame.data)
        if chunk is None:
            return
        if chunk.get("error"):
            raise reported_failure(chunk["error"])
        self._response_id = self._response_id or payload.text_of(chunk.get("id"))
        self._usage = payload.token_usage(chunk.get("usage"), "prompt", "completion") or self._usage
        choices = chunk.get("choices")
        choice = payload.mapping(choices[0]) if isinstance(choices, list) and choices else {}
        self._piece(payload.mapping(choice.get("delta")) or payload.mapping(choice.get("message")), out)
        self._finish = payload.text_of(choice.get("finish_reason")) or self._finish

    def end(self, out: list[ModelEvent]) -> None:
        """Handles the end of the stream. A response with a finish reason needs no `[DONE]` marker."""
        if self.completed:
            return
        if self._finish is None:
            raise StreamDisconnected(CLOSED_EARLY)
        self._complete(out)

    def _piece(self, delta: dict[str, Json], out: list[ModelEvent]) -> None:
        thought = _thought(delta.get("reasoning")) or _thought(delta.get("reasoning_content"))
        if thought:
            self._add_thought(thought, out)
        text = payload.text_of(delta.get("content"))
        if text:
            self._add_text(text, out)
        calls = delta.get("tool_calls")
        for position, piece in enumerate(calls if isinstance(calls, list) else ()):
            self._call(payload.mapping(piece), position)

    def _add_thought(self, thought: str, out: list[ModelEvent]) -> None:
        self._size.piece(thought)
        if self._text:
            self._afterthought.append(thought)
            return
        if not self._reasoning:
            out.append(OutputItemAdded(ReasoningResponseItem()))
        self._reasoning.append(thought)
        if self._live:
            out.append(ReasoningContentDelta(thought, 0))

    def _add_text(self, text: str, out: list[ModelEvent]) -> None:
        self._size.piece(text)
        if not self._text:
            self._end_reasoning(out)
            out.append(OutputItemAdded(MessageItem(role="assistant", content=())))
        self._text.append(text)
        if self._live:
            out.append(OutputTextDelta(text))

    def _call(self, piece: dict[str, Json], position: int) -> None:
        index = payload.count(piece.get("index"))
        call_id = payload.text_of(piece.get("id"))
        if index is None:
            index = self._place(call_id, position)
        call = self._calls.get(index) or self._new_call(index)
        function = payload.mapping(piece.get("function"))
        if call_id is not None and not call.id:
            call.id = call_id
            self._by_id.setdefault(call_id, index)
        # Some servers repeat the name in every piece, none cuts it.
        name = payload.text_of(function.get("name"))
        if name is not None and not call.name:
            self._size.piece(name)
            call.name = name
        arguments = payload.text_of(function.get("arguments"))
        if arguments:
            self._size.piece(arguments)
            call.arguments.append(arguments)

    def _new_call(self, index: int) -> _Call:
        self._size.item(payload.PIECE_OVERHEAD)
        self._highest = index if self._highest is None else max(index, self._highest)
        call = self._calls[index] = _Call()
        return call

    def _place(self, call_id: str | None, position: int) -> int:
        """Return the index of a piece without one: that of the call with its id, or a new one."""
        if call_id is None:
            return position if self._highest is None else self._highest
        following = 0 if self._highest is None else self._highest + 1
        return self._by_id.get(call_id, following)

    def _complete(self, out: list[ModelEvent]) -> None:
        if self._finish in CUT_SHORT and not self._text and not self._calls:
            raise incomplete_response(self._finish)
        self._end_reasoning(out)
        if self._text:
            out.append(OutputItemDone(_message("".join(self._text))))
        if self._afterthought:
            out.append(OutputItemDone(_reasoning("".join(self._afterthought))))
        for index, call in sorted(self._calls.items()):
            call_id = call.id or f"call_{self._response_id or 'chat'}_{index}"
            item = FunctionCall(name=call.name, arguments="".join(call.arguments), call_id=call_id)
            out.append(OutputItemDone(item))
        self.completed = True
        out.append(Completed(self._usage if self._live else None))

    def _end_reasoning(self, out: list[ModelEvent]) -> None:
        if self._reasoning:
            out.append(OutputItemDone(_reasoning("".join(self._reasoning))))
            self._reasoning.clear()


def _message(text: str) -> MessageItem:
    return MessageItem(role="assistant", content=(OutputText(text=text),))


def _reasoning(text: str) -> ReasoningResponseItem:
    return ReasoningResponseItem(content=(ReasoningText(text=text),))


def _thought(value: Json) -> str | None:
    """Return a piece of reasoning: text, or an object around it."""
    if isinstance(value, dict):
        return payload.text_of(value.get("text")) or payload.text_of(value.get("content"))
    return payload.text_of(value)


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
    def write(item: responses.ResponseItem) -> bytes:
        message = _message_json(item)
        return b"" if message is None else json_bytes(message)

    written = write_items(prompt, cache, "chat", write)
    for place, thought in _thoughts(sendable(prompt.input)).items():
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


def _message_json(item: responses.ResponseItem) -> Json | None:
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
