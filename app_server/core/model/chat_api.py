"""Decodes the Chat Completions stream into the same events as the Responses API. Does no I/O.

Chunks contain pieces of reasoning, of text, and of tool calls, which may interleave. The decoder assembles them into
items: reasoning ends when the text begins, the text ends with the response, and the calls follow in the order of their
index. Reasoning after the start of the text becomes a separate item after the text.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from app_server.core.errors import StreamDisconnected
from app_server.core.http.sse import SseFrame
from app_server.core.model import payload, prompt
from app_server.core.model.api_failures import reported_failure
from app_server.core.model.model_errors import CLOSED_EARLY, incomplete_response
from protocol.events.turn import TokenUsage
from protocol.responses import FunctionCall, MessageItem, OutputText, ReasoningResponseItem, ReasoningText
from protocol.structs import Json

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

    def decode(self, frame: SseFrame, out: list[prompt.ModelEvent]) -> None:
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

    def end(self, out: list[prompt.ModelEvent]) -> None:
        """Handles the end of the stream. A response with a finish reason needs no `[DONE]` marker."""
        if self.completed:
            return
        if self._finish is None:
            raise StreamDisconnected(CLOSED_EARLY)
        self._complete(out)

    def _piece(self, delta: dict[str, Json], out: list[prompt.ModelEvent]) -> None:
        thought = _thought(delta.get("reasoning")) or _thought(delta.get("reasoning_content"))
        if thought:
            self._add_thought(thought, out)
        text = payload.text_of(delta.get("content"))
        if text:
            self._add_text(text, out)
        calls = delta.get("tool_calls")
        for position, piece in enumerate(calls if isinstance(calls, list) else ()):
            self._call(payload.mapping(piece), position)

    def _add_thought(self, thought: str, out: list[prompt.ModelEvent]) -> None:
        self._size.piece(thought)
        if self._text:
            self._afterthought.append(thought)
            return
        if not self._reasoning:
            out.append(prompt.OutputItemAdded(ReasoningResponseItem()))
        self._reasoning.append(thought)
        if self._live:
            out.append(prompt.ReasoningContentDelta(thought, 0))

    def _add_text(self, text: str, out: list[prompt.ModelEvent]) -> None:
        self._size.piece(text)
        if not self._text:
            self._end_reasoning(out)
            out.append(prompt.OutputItemAdded(MessageItem(role="assistant", content=())))
        self._text.append(text)
        if self._live:
            out.append(prompt.OutputTextDelta(text))

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

    def _complete(self, out: list[prompt.ModelEvent]) -> None:
        if self._finish in CUT_SHORT and not self._text and not self._calls:
            raise incomplete_response(self._finish)
        self._end_reasoning(out)
        if self._text:
            out.append(prompt.OutputItemDone(_message("".join(self._text))))
        if self._afterthought:
            out.append(prompt.OutputItemDone(_reasoning("".join(self._afterthought))))
        for index, call in sorted(self._calls.items()):
            call_id = call.id or f"call_{self._response_id or 'chat'}_{index}"
            item = FunctionCall(name=call.name, arguments="".join(call.arguments), call_id=call_id)
            out.append(prompt.OutputItemDone(item))
        self.completed = True
        out.append(prompt.Completed(self._usage if self._live else None))

    def _end_reasoning(self, out: list[prompt.ModelEvent]) -> None:
        if self._reasoning:
            out.append(prompt.OutputItemDone(_reasoning("".join(self._reasoning))))
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
