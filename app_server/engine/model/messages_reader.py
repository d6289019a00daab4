"""Decodes the stream of the Anthropic Messages API into the events that all APIs share: the end of the answer, errors,
token counts. Pure.
"""

from __future__ import annotations

import logging
from typing import Final, TypeVar

from app_server.engine.http.sse import SseFrame
from app_server.engine.model import event_json
from app_server.engine.model.api_failures import reported_failure
from app_server.engine.model.messages_blocks import AnswerBlocks
from app_server.engine.model.model_errors import CLOSED_EARLY, incomplete_response
from app_server.engine.model.prompt import (
    Completed,
    Created,
    ModelEvent,
)
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError, StreamDisconnected
from app_server_protocol.encoding import Json
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.item_origin import ItemOrigin
from app_server_protocol.responses import (
    FunctionCall,
    MessageItem,
    ReasoningResponseItem,
)
from app_server_protocol.values import replace

log = logging.getLogger(__name__)

T = TypeVar("T", MessageItem, ReasoningResponseItem, FunctionCall)

STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP statuses that kinds of errors have outside of a stream."""


class MessagesDecoder:
    """Decodes one response."""

    def __init__(self, origin: ItemOrigin) -> None:
        """`origin`: origin of the answer; the provider's id is added to it."""
        self.completed = False
        self._events, self._blocks = event_json.EventReader(), AnswerBlocks(origin)
        self._usage: dict[str, Json] = {}
        self._stop: str | None = None
        self._details = ""

    def decode(self, frame: SseFrame, out: list[ModelEvent]) -> None:
        """Append the events of a frame. Raises ModelError if it reports a failure."""
        event = None if self.completed else self._events.read_object(frame.data)
        if event is None:
            return
        match event.get("type") or frame.event:
            case "content_block_delta":
                self._blocks.delta(_index(event), event_json.mapping(event.get("delta")), out)
            case "content_block_start":
                self._blocks.start(_index(event), event_json.mapping(event.get("content_block")), out)
            case "content_block_stop":
                self._blocks.stop(_index(event), out)
            case "message_start":
                self._begin(event_json.mapping(event.get("message")), out)
            case "message_delta":
                self._take_end(event_json.mapping(event.get("delta")), event.get("usage"))
            case "message_stop":
                self._complete(out)
            case "message":
                self._whole(event, out)
            case "error":
                raise _failure(event.get("error") or event)
            case _ if event.get("error"):
                raise _failure(event["error"])
            case _:
                pass

    def end(self, out: list[ModelEvent]) -> None:
        """Handle the end of the stream."""
        if not self.completed:
            raise StreamDisconnected(CLOSED_EARLY)

    def _whole(self, message: dict[str, Json], out: list[ModelEvent]) -> None:
        """Handle an answer that was not streamed."""
        self._begin(message, out)
        content = message.get("content")
        for n, block in enumerate(content if isinstance(content, list) else ()):
            self._blocks.start(n, event_json.mapping(block), out)
        self._take_end(message, None)
        self._complete(out)

    def _begin(self, message: dict[str, Json], out: list[ModelEvent]) -> None:
        id = event_json.text_of(message.get("id")) or ""
        origin = self._blocks.origin
        self._blocks.origin = replace(origin, answer=f"{origin.answer}{id}")
        self._count(message.get("usage"))
        out.append(Created())

    # --- the end
    def _take_end(self, delta: dict[str, Json], usage: Json) -> None:
        self._stop = event_json.text_of(delta.get("stop_reason")) or self._stop
        details = event_json.mapping(delta.get("stop_details"))
        said = (event_json.text_of(details.get(name)) for name in ("explanation", "category"))
        self._details = next((each for each in said if each), self._details)
        self._count(usage)

    def _count(self, usage: Json) -> None:
        """Add token counts; a later null changes nothing."""
        self._usage |= {key: value for key, value in event_json.mapping(usage).items() if value is not None}

    def _complete(self, out: list[ModelEvent]) -> None:
        """End the answer. A call that the provider cut off is not run."""
        stop = self._stop or "end_turn"
        is_refused = stop in ("model_context_window_exceeded", "refusal")
        is_cut = is_refused or stop == "max_tokens"
        has_cut_call = self._blocks.end(out, is_cut=is_cut, drops_call=is_refused)
        match stop:
            case "max_tokens" if has_cut_call:
                self.completed = True
                out.append(Completed(_usage(self._usage), cut_by=stop))
            case "model_context_window_exceeded":
                raise ContextWindowExceeded()
            case "max_tokens" | "refusal":
                raise incomplete_response(stop, self._details)
            case _:
                self.completed = True
                out.append(Completed(_usage(self._usage), paused=stop == "pause_turn"))


def _index(event: dict[str, Json]) -> int:
    return event_json.count(event.get("index")) or 0


def _usage(raw: dict[str, Json]) -> TokenUsage | None:
    """Return the token counts of the provider; None if it sent none."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    given, written, cached = (event_json.count(raw.get(name)) for name in names)
    answered = event_json.count(raw.get("output_tokens"))
    if given is None or answered is None:
        return None
    sent = given + (written or 0) + (cached or 0)
    details = event_json.mapping(raw.get("output_tokens_details"))
    return TokenUsage(
        input_tokens=sent,
        cached_input_tokens=cached or 0,
        output_tokens=answered,
        reasoning_output_tokens=event_json.count(details.get("thinking_tokens")) or 0,
        total_tokens=sent + answered,
    )


def _failure(error: Json) -> ModelError:
    """Return the error of a stream; its kind is that of the status which the error has outside of a stream."""
    details = event_json.mapping(error)
    status = STATUSES.get(event_json.text_of(details.get("type")) or "")
    return reported_failure({**details, "code": status} if status is not None else error)
