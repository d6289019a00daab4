"""The Responses API: a decoder of its stream, which makes at most one event or an error of a frame, and a writer of
request bodies. Pure.

The decoder skips unreadable frames and unknown events; a response over the size limits is an error. Frames after
`response.completed` are ignored. The cost of a body is linear in the new items.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from app_server.engine.http.sse import SseFrame
from app_server.engine.model.answers import call_arguments, call_name, is_json_object, lenient_arguments
from app_server.engine.model.api_failures import reported_failure
from app_server.engine.model.call_ids import ForeignIds
from app_server.engine.model.event_json import EventReader, ReplySize, count, mapping, text_of, token_usage
from app_server.engine.model.item_cache import SCHEMA_NAME, InputBytes, ItemBytes
from app_server.engine.model.model_errors import CLOSED_EARLY, incomplete_response
from app_server.engine.model.prompt import (
    TEXT_ARGUMENT,
    Completed,
    Created,
    FreeformTool,
    FunctionTool,
    LocalShellTool,
    ModelEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    Prompt,
    ReasoningContentDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryTextDelta,
    RequestSettings,
    ToolSpec,
    WebSearchTool,
)
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.schema_forms import in_form
from app_server.engine.support.engine_errors import StreamDisconnected
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.item_origin import without_origin
from app_server_protocol.policy import ReasoningSummary
from app_server_protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    InputImage,
    LocalShellCall,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ResponseItem,
    parse_response_item,
)
from app_server_protocol.values import replace

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
        self._text: list[str] = []
        """Deltas of the open message's text."""

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
            self._text.append(delta)
            out.append(OutputTextDelta(delta))

    def _take(self, event: ModelEvent, size: int, out: list[ModelEvent]) -> None:
        match event:
            case OutputItemDone():
                self._size.item(size)
                self._note(event.item)
            case OutputItemAdded():
                self._finish_text(out)
                self._open = event.item
            case _:
                pass
        out.append(event)

    def _note(self, item: ResponseItem) -> None:
        self._count += 1
        self._done.add(_identity(item))
        if isinstance(item, MessageItem):
            self._open, self._text = None, []

    def _finish_text(self, out: list[ModelEvent]) -> None:
        """Complete a message whose text came only in deltas."""
        text = "".join(self._text)
        if text:
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


def _delta(
    kind: type[ReasoningSummaryTextDelta | ReasoningContentDelta], index: str, payload: Payload
) -> ModelEvent | None:
    delta = payload.get("delta")
    return kind(delta, count(payload.get(index)) or 0) if isinstance(delta, str) else None


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
    "response.reasoning_summary_text.delta": partial(_delta, ReasoningSummaryTextDelta, "summary_index"),
    "response.reasoning_summary_part.added": _summary_part,
    "response.reasoning_text.delta": partial(_delta, ReasoningContentDelta, "content_index"),
    "response.failed": _failed,
    "error": _error,
}


class ResponsesWriter:
    """Writes the requests of one conversation. The part that a request shares with the last one is not
    written again.
    """

    def __init__(self) -> None:
        self._around, self._input = ItemBytes(), InputBytes()
        self._ids = ForeignIds()

    def body(self, prompt: Prompt, settings: RequestSettings, quirks: Quirks) -> bytes:
        """Return the body of a request."""
        choices = (settings, quirks, prompt.parallel_tool_calls, prompt.output_schema)
        head, tail = self._around.envelope(
            (*choices, prompt.instructions, *prompt.tools), lambda: _envelope(prompt, settings, quirks)
        )
        items = self._input.of(
            replace(prompt, input=self._ids.of(prompt.input)),
            quirks,
            lambda item: not _is_unsent(item, quirks),
            lambda item: _item_json(item, quirks),
        )
        return b'%b,"input":[%b],%b' % (head, b",".join(items), tail)


def _is_unsent(item: ResponseItem, quirks: Quirks) -> bool:
    """Return whether an item is left out: a blank one, or a thought of another provider."""
    match item:
        case MessageItem():
            is_model = item.role == "assistant"
            return not any(
                not is_model if isinstance(part, InputImage) else part.text.strip() for part in item.content
            )
        case ReasoningResponseItem():
            if item.origin is not None:
                return True
            return item.encrypted_content is None and not (quirks.store_items or quirks.content_thoughts)
        case _:
            return False


def _item_json(item: ResponseItem, quirks: Quirks) -> bytes:
    sent = without_origin(item)
    if isinstance(sent, MessageItem) and sent.role == "developer" and quirks.role != "developer":
        sent = sent.model_copy(update={"role": quirks.role})
    elif (
        isinstance(sent, FunctionCall) and quirks.arguments == "object" and not is_json_object(sent.arguments)
    ):
        arguments = json_bytes(lenient_arguments(sent.arguments) or {}).decode()
        sent = sent.model_copy(update={"arguments": arguments})
    elif not quirks.custom_tools and isinstance(sent, CustomToolCall):
        arguments = json_bytes({"input": sent.input}).decode()
        sent = FunctionCall(name=sent.name, arguments=arguments, call_id=sent.call_id, id=sent.id)
    elif not quirks.custom_tools and isinstance(sent, LocalShellCall):
        arguments = json_bytes(call_arguments(sent)).decode()
        call_id = sent.call_id or sent.id or ""
        sent = FunctionCall(name=call_name(sent), arguments=arguments, call_id=call_id, id=sent.id)
    elif not quirks.custom_tools and isinstance(sent, CustomToolCallOutput):
        payload = FunctionCallOutputPayload(content=sent.output)
        sent = FunctionCallOutput(call_id=sent.call_id, output=payload)
    body = sent.to_json()
    item_id = getattr(item, "id", None) if quirks.store_items else None  # outputs have none
    return b'%b,"id":%b}' % (body[:-1], json_bytes(item_id)) if item_id else body


def _envelope(prompt: Prompt, settings: RequestSettings, quirks: Quirks) -> tuple[bytes, bytes]:
    reasoning = reasoning_options(settings)
    if reasoning is not None and quirks.reasoning_context is not None:
        reasoning |= {"context": quirks.reasoning_context}
    encrypted = reasoning is not None or settings.row.thoughts is None
    head = {"model": settings.model, "instructions": prompt.instructions}
    tail: dict[str, Json] = {
        "tools": [
            tool_json(tool, quirks)
            for tool in prompt.tools
            if quirks.web_search or not isinstance(tool, WebSearchTool)
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": prompt.parallel_tool_calls,
        "reasoning": reasoning,
        "store": quirks.store_items,
        "stream": True,
        "include": ["reasoning.encrypted_content"] if encrypted else [],
        "prompt_cache_key": settings.conversation_id,
    }
    if settings.max_output_tokens is not None:
        tail["max_output_tokens"] = settings.max_output_tokens
    if text := text_options(prompt, settings):
        tail["text"] = text
    if settings.service_tier is not None:
        tail["service_tier"] = settings.service_tier
    sent = {name: value for name, value in tail.items() if name not in quirks.omit}
    return json_bytes(head)[:-1], json_bytes(sent)[1:]


def reasoning_options(settings: RequestSettings) -> dict[str, Json] | None:
    """Return the reasoning effort and the kind of summary; None for models without reasoning."""
    supported, row = settings.supports_reasoning_summaries, settings.row
    if not (row.reasons if supported is None else supported):
        if settings.sends_chosen_effort and settings.effort is not None:
            chosen = settings.summary not in (ReasoningSummary.AUTO, ReasoningSummary.NONE)
            return {
                "effort": row.sent_effort(settings.effort),
                **({"summary": settings.summary.value} if chosen else {}),
            }
        return None
    effort = settings.effort or row.default_reasoning_level
    # The API has no value for "no summary".
    summary = None if settings.summary is ReasoningSummary.NONE else settings.summary.value
    return {
        **({"effort": row.sent_effort(effort)} if effort else {}),
        **({"summary": summary} if summary else {}),
    }


def text_options(prompt: Prompt, settings: RequestSettings) -> dict[str, Json]:
    options: dict[str, Json] = {}
    verbosity = settings.verbosity or settings.row.verbosity
    if settings.row.support_verbosity and verbosity is not None:
        options["verbosity"] = verbosity.value
    if prompt.output_schema is not None:
        options["format"] = {
            "type": "json_schema",
            "strict": True,
            "schema": prompt.output_schema,
            "name": SCHEMA_NAME,
        }
    return options


def tool_json(tool: ToolSpec, quirks: Quirks) -> dict[str, Json]:
    """Return a tool in the form of a request."""
    if isinstance(tool, FreeformTool) and not quirks.custom_tools:
        tool = FunctionTool(tool.name, tool.description, TEXT_ARGUMENT)
    match tool:
        case FunctionTool():
            strict = {} if "strict" in quirks.omit else {"strict": tool.strict}
            schema = tool.parameters if quirks.schema != "gemini" else in_form(tool.parameters, "gemini")
            return {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                **strict,
                "parameters": schema,
            }
        case FreeformTool():
            return {
                "type": "custom",
                "name": tool.name,
                "description": tool.description,
                "format": tool.format,
            }
        case WebSearchTool():
            return {"type": "web_search"}
        case LocalShellTool():
            return {"type": "local_shell"}
