"""Decodes the stream of the Responses API: one frame becomes at most one event, or an error. Does no I/O.

It skips unreadable frames and unknown events; a response over the size limits is an error. Frames after
`response.completed` are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from app_server.core.errors import StreamDisconnected
from app_server.core.http.sse import SseFrame
from app_server.core.model import prompt
from app_server.core.model.api_failures import reported_failure
from app_server.core.model.model_errors import CLOSED_EARLY, incomplete_response
from app_server.core.model.payload import EventReader, ReplySize, count, mapping, text_of, token_usage
from protocol.responses import ResponseItem, parse_response_item
from protocol.structs import Json

log = logging.getLogger(__name__)

Payload = dict[str, Json]


class ResponsesDecoder:
    """One answer's frames."""

    def __init__(self) -> None:
        self.completed = False
        self._events, self._size = EventReader(), ReplySize()

    def decode(self, frame: SseFrame, out: list[prompt.ModelEvent]) -> None:
        """Appends the event of a frame. Raises ModelError if it reports a failure."""
        if self.completed or frame.data == b"[DONE]":
            return
        payload = self._events.read_object(frame.data)
        if payload is None:
            return
        kind = payload.get("type") or frame.event
        if kind == "response.output_text.delta":
            delta = payload.get("delta")
            if isinstance(delta, str):
                out.append(prompt.OutputTextDelta(delta))
            return
        read = _READERS.get(kind) if isinstance(kind, str) else None
        if read is None:
            return
        event = read(payload)
        if event is not None:
            if isinstance(event, prompt.OutputItemDone):
                self._size.item(len(frame.data))
            self.completed = isinstance(event, prompt.Completed)
            out.append(event)

    def end(self, out: list[prompt.ModelEvent]) -> None:
        """Handles the end of the stream. Raises if the response is incomplete."""
        if not self.completed:
            raise StreamDisconnected(CLOSED_EARLY)


def _of_item(
    kind: type[prompt.OutputItemAdded | prompt.OutputItemDone], payload: Payload
) -> prompt.ModelEvent | None:
    item = _item(payload)
    return None if item is None else kind(item)


def _item(payload: Payload) -> ResponseItem | None:
    raw = payload.get("item")
    if not isinstance(raw, dict):
        return None
    if raw.get("type") in ("function_call", "custom_tool_call") and not isinstance(raw.get("call_id"), str):
        # A call that nobody can answer is still a call: let the turn give it an id.
        raw = {**raw, "call_id": text_of(raw.get("id")) or ""}
    if raw.get("type") == "web_search_call" and not isinstance(raw.get("action"), dict):
        raw = {**raw, "action": {"type": "other"}}  # said when the search is done, if at all
    return parse_response_item(raw)


def _delta(
    kind: type[prompt.ReasoningSummaryTextDelta | prompt.ReasoningContentDelta], index: str, payload: Payload
) -> prompt.ModelEvent | None:
    delta = payload.get("delta")
    return kind(delta, count(payload.get(index)) or 0) if isinstance(delta, str) else None


def _summary_part(payload: Payload) -> prompt.ModelEvent:
    return prompt.ReasoningSummaryPartAdded(count(payload.get("summary_index")) or 0)


def _completed(payload: Payload) -> prompt.ModelEvent:
    response = mapping(payload.get("response"))
    usage = token_usage(response.get("usage"), "input", "output")
    if usage is None and response.get("usage") is not None:
        log.warning("the provider's token counts make no sense and are not used")
    return prompt.Completed(usage)


def _failed(payload: Payload) -> prompt.ModelEvent:
    raise reported_failure(mapping(payload.get("response")).get("error"))


def _error(payload: Payload) -> prompt.ModelEvent:
    raise reported_failure(payload.get("error") or {key: payload.get(key) for key in ("code", "message")})


def _incomplete(payload: Payload) -> prompt.ModelEvent:
    details = mapping(mapping(payload.get("response")).get("incomplete_details"))
    raise incomplete_response(text_of(details.get("reason")) or "unknown")


_READERS: Final[Mapping[str, Callable[[Payload], prompt.ModelEvent | None]]] = {
    "response.created": lambda payload: prompt.Created(),
    "response.output_item.added": partial(_of_item, prompt.OutputItemAdded),
    "response.output_item.done": partial(_of_item, prompt.OutputItemDone),
    "response.reasoning_summary_text.delta": partial(
        _delta, prompt.ReasoningSummaryTextDelta, "summary_index"
    ),
    "response.reasoning_summary_part.added": _summary_part,
    "response.reasoning_text.delta": partial(_delta, prompt.ReasoningContentDelta, "content_index"),
    "response.completed": _completed,
    "response.failed": _failed,
    "response.incomplete": _incomplete,
    "error": _error,
}
