"""Decodes the stream of the Responses API: at most one event or an error of a frame. Pure.

The decoder skips unreadable frames and unknown events; a response over the size limits is an error. Frames after
`response.completed` are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from app_server.engine.http.sse import SseFrame
from app_server.engine.model.api_failures import reported_failure
from app_server.engine.model.event_json import EventReader, ReplySize, count, mapping, text_of, token_usage
from app_server.engine.model.model_errors import CLOSED_EARLY, incomplete_response
from app_server.engine.model.prompt import (
    Completed,
    Created,
    ModelEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningContentDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryTextDelta,
)
from app_server.engine.support.engine_errors import StreamDisconnected
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_text import ItemText, Part
from app_server_protocol.responses import (
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ResponseItem,
    parse_response_item,
)

log = logging.getLogger(__name__)

Payload = dict[str, Json]


ENDS: Final = frozenset({"response.completed", "response.done", "response.incomplete"})
"""Types of the events that end an answer and have all of its items."""


class ResponsesDecoder:
    """Decodes one answer. Some servers leave out events. So an item counts as complete by its own event, by the end of
    its text, or by the end of the answer, which names all items.
    """

    def __init__(self) -> None:
        self.completed = False
        self._events, self._size = EventReader(), ReplySize()
        self._done: set[str] = set()
        """Ids of complete items."""
        self._count = 0
        """Number of complete items."""
        self._open: ResponseItem | None = None
        """The message that has begun and is not complete; None if there is none."""
        self._text = ItemText()
        """Text of the open message, as far as it came in deltas."""
        self._thoughts: dict[Part, ItemText] = {}
        """Texts of the open thought, as far as they came in deltas."""

    def decode(self, frame: SseFrame, out: list[ModelEvent]) -> None:
        """Append the events of a frame. Raises ModelError if it reports a failure."""
        if self.completed or frame.data == b"[DONE]":
            return
        payload = self._events.read_object(frame.data)
        if payload is None:
            return
        kind = payload.get("type") or frame.event
        if kind == "response.output_text.delta" or kind == "response.refusal.delta":
            self._delta(payload.get("delta"), out)
            return
        if kind == "response.reasoning_text.delta" or kind == "response.reasoning_summary_text.delta":
            self._thought(payload, out, in_summary=kind == "response.reasoning_summary_text.delta")
            return
        if payload.get("object") == "response" and "output" in payload:
            kind, payload = "response.completed", {"response": payload}
        elif not kind and payload.get("error"):
            kind = "error"
        if isinstance(kind, str) and kind in ENDS:
            self._end(payload, frame, out)
            return
        read = _READERS.get(kind) if isinstance(kind, str) else None
        event = None if read is None else read(payload)
        if event is not None:
            self._take(event, len(frame.data), out)

    def end(self, out: list[ModelEvent]) -> None:
        """Handle the end of the stream. Raises if the response is incomplete."""
        if not self.completed:
            raise StreamDisconnected(CLOSED_EARLY)

    def _delta(self, delta: Json, out: list[ModelEvent]) -> None:
        if isinstance(delta, str):
            out.append(OutputTextDelta(self._text, self._text.add(delta)))

    def _thought(self, payload: Payload, out: list[ModelEvent], *, in_summary: bool) -> None:
        delta = payload.get("delta")
        if not isinstance(delta, str):
            return
        index = count(payload.get("summary_index" if in_summary else "content_index")) or 0
        text = self._thoughts.setdefault((in_summary, index), ItemText())
        kind = ReasoningSummaryTextDelta if in_summary else ReasoningContentDelta
        out.append(kind(text, text.add(delta), index))

    def _take(self, event: ModelEvent, size: int, out: list[ModelEvent]) -> None:
        match event:
            case OutputItemDone():
                self._size.item(size)
                self._note(event.item)
            case OutputItemAdded():
                self._finish_text(out)
                self._open = event.item
                if isinstance(event.item, ReasoningResponseItem):
                    self._thoughts = {}
            case _:
                pass
        out.append(event)

    def _note(self, item: ResponseItem) -> None:
        self._count += 1
        self._done.add(_identity(item))
        if isinstance(item, MessageItem):
            self._open, self._text = None, ItemText()
        elif isinstance(item, ReasoningResponseItem):
            self._thoughts = {}

    def _finish_text(self, out: list[ModelEvent]) -> None:
        """Complete a message whose text came only in deltas."""
        if self._text.pieces and (text := self._text.text()):
            id = self._open.id if isinstance(self._open, MessageItem) else None
            item = MessageItem(role="assistant", content=(OutputText(text=text),), id=id)
            self._note(item)
            out.append(OutputItemDone(item))

    def _end(self, payload: Payload, frame: SseFrame, out: list[ModelEvent]) -> None:
        """Complete the items that only the event at the end of the answer has, and the answer."""
        response = mapping(payload.get("response"))
        output = response.get("output")
        named = [
            item for raw in (output if isinstance(output, list) else ()) if (item := _item({"item": raw}))
        ]
        for n, item in enumerate(named):
            known = _identity(item) in self._done if _identity(item) else n < self._count
            if not known:
                self._take(OutputItemDone(item), len(frame.data), out)
        self._finish_text(out)
        reason = text_of(mapping(response.get("incomplete_details")).get("reason"))
        is_incomplete = payload.get("type") == "response.incomplete" or response.get("status") == "incomplete"
        if is_incomplete:
            raise incomplete_response(reason or "unknown")
        self.completed = True
        out.append(_completed(payload))


def _identity(item: ResponseItem) -> str:
    """Return the provider's id of an item; empty if it has none."""
    return getattr(item, "id", None) or getattr(item, "call_id", None) or ""


def _of_item(kind: type[OutputItemAdded | OutputItemDone], payload: Payload) -> ModelEvent | None:
    item = _item(payload)
    return None if item is None else kind(item)


def _item(payload: Payload) -> ResponseItem | None:
    raw = payload.get("item")
    if not isinstance(raw, dict):
        return None
    if raw.get("type") in ("function_call", "custom_tool_call") and not isinstance(raw.get("call_id"), str):
        # A call without an id is still a call: the turn gives it an id.
        raw = {**raw, "call_id": text_of(raw.get("id")) or ""}
    if raw.get("type") == "web_search_call" and not isinstance(raw.get("action"), dict):
        raw = {**raw, "action": {"type": "other"}}  # the action comes only when the search is done, if at all
    if raw.get("type") == "message":
        raw = {**raw, "content": _parts(raw.get("content"))}
    return parse_response_item(raw)


def _parts(content: Json) -> list[Json]:
    """Return the content of a message as parts that can be stored and sent back. A model that refuses to fill a schema
    answers with a `refusal` in place of a text; some servers write one text, or the part type of Chat Completions.
    """
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    parts = list[Json]()
    for part in content if isinstance(content, list) else ():
        fields = mapping(part)
        if fields.get("type") in ("output_text", "input_text", "input_image"):
            parts.append(fields)
        elif (text := text_of(fields.get("refusal")) or text_of(fields.get("text"))) is not None:
            parts.append({"type": "output_text", "text": text})
    return parts


def _summary_part(payload: Payload) -> ModelEvent:
    return ReasoningSummaryPartAdded(count(payload.get("summary_index")) or 0)


def _completed(payload: Payload) -> ModelEvent:
    response = mapping(payload.get("response"))
    usage = token_usage(response.get("usage"), "input", "output")
    if usage is None and response.get("usage") is not None:
        log.warning("the provider's token counts make no sense and are not used")
    return Completed(usage)


def _failed(payload: Payload) -> ModelEvent:
    raise reported_failure(mapping(payload.get("response")).get("error"))


def _error(payload: Payload) -> ModelEvent:
    raise reported_failure(payload.get("error") or {key: payload.get(key) for key in ("code", "message")})


_READERS: Final[Mapping[str, Callable[[Payload], ModelEvent | None]]] = {
    "response.created": lambda payload: Created(),
    "response.output_item.added": partial(_of_item, OutputItemAdded),
    "response.output_item.done": partial(_of_item, OutputItemDone),
    "response.reasoning_summary_part.added": _summary_part,
    "response.failed": _failed,
    "error": _error,
}
