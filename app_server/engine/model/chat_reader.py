"""Decodes the stream of the Chat Completions API, in all variants that servers write, into the events that all APIs
share. Pure.

Chunks contain pieces of reasoning, of text, and of tool calls, which may interleave. The reader assembles them into
items: reasoning ends when the text begins, the text ends with the response, and the calls follow in the order in which
they began. Reasoning after the start of the text becomes a separate item after the text. Each item has the origin of
the answer, with the data that the provider expects back: the name of the field of the thoughts, signatures of calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from app_server.engine.http.sse import SseFrame
from app_server.engine.model import event_json
from app_server.engine.model.api_failures import reported_failure
from app_server.engine.model.chat_calls import CallPieces, ChatCall
from app_server.engine.model.chat_writer import DETAILS, EXTRA, FIELD
from app_server.engine.model.model_errors import CLOSED_EARLY, answer_broken, incomplete_response
from app_server.engine.model.prompt import (
    Completed,
    ModelEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningContentDelta,
)
from app_server.engine.support.engine_errors import StreamDisconnected
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_text import ItemText
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.item_origin import ItemOrigin
from app_server_protocol.responses import (
    FunctionCall,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ReasoningText,
)
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.model.text_calls import TextSieve

T = TypeVar("T", MessageItem, ReasoningResponseItem, FunctionCall)

LENGTH: Final = frozenset({"length", "max_tokens", "model_length"})
FILTERED: Final = frozenset({"content_filter", "safety", "sensitive", "refusal", "recitation"})
BROKEN: Final = frozenset(
    {"error", "network_error", "malformed_function_call", "insufficient_system_resource", "abort"}
)
"""Finish reasons of an answer that failed; a retry may end differently."""

THOUGHTS: Final = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""Names of the fields in which servers send thoughts; the first field that is not empty counts."""


class ChatDecoder:
    """Decodes one response. With `live`, emits deltas and token counts; otherwise only complete items."""

    def __init__(
        self, *, live: bool, origin: ItemOrigin | None = None, sieve: TextSieve | None = None
    ) -> None:
        """`origin`: origin of the answer; the provider's id is added to it. `sieve`: extracts thoughts and calls from
        the text, as long as some may follow; None if the text is shown as it is.
        """
        self.completed = False
        self._live, self._origin = live, origin
        self._sieve = sieve
        self._events, self._size = event_json.EventReader(), event_json.ReplySize()
        self._response_id: str | None = None
        self._field: str | None = None
        self._details: list[Json] = []
        self._reasoning = ItemText()
        self._afterthought = ItemText()
        self._thought = False
        self._text = ItemText()
        self._calls = CallPieces(self._size)
        self._usage: TokenUsage | None = None
        self._finish: str | None = None

    def decode(self, frame: SseFrame, out: list[ModelEvent]) -> None:
        """Append the events of a chunk. Raises ModelError if it reports a failure."""
        if self.completed:
            return
        if frame.data.strip() == b"[DONE]":
            self._complete(out)
            return
        chunk = self._events.read_object(frame.data)
        if chunk is None:
            return
        error = chunk.get("error")
        if error or frame.event == "error":
            raise reported_failure(error or chunk)
        self._response_id = self._response_id or event_json.text_of(chunk.get("id"))
        choices = chunk.get("choices")
        choice = event_json.mapping(choices[0]) if isinstance(choices, list) and choices else {}
        self._usage = _usage(chunk, choice) or self._usage
        if choice.get("error"):
            raise reported_failure(choice["error"])
        self._piece(event_json.mapping(choice.get("delta")) or event_json.mapping(choice.get("message")), out)
        self._finish = event_json.text_of(choice.get("finish_reason")) or self._finish

    def end(self, out: list[ModelEvent]) -> None:
        """Handle the end of the stream. `[DONE]` may be missing if the response has a finish reason or token counts."""
        if self.completed:
            return
        if self._finish is None and (self._usage is None or not (self._text.pieces or self._calls.calls)):
            raise StreamDisconnected(CLOSED_EARLY)
        self._complete(out)

    # --- pieces
    def _piece(self, delta: dict[str, Json], out: list[ModelEvent]) -> None:
        for name in THOUGHTS:
            if (value := delta.get(name)) is not None and (thought := _thought(value)):
                self._field = self._field or name
                self._add_thought(thought, out)
                break
        details = delta.get(DETAILS)
        if isinstance(details, list):
            self._add_details(details, out)
        content = delta.get("content")
        if isinstance(content, str):
            if content:
                self._take_text(content, out)
        elif content:
            self._take_parts(content, out)
        if (refusal := delta.get("refusal")) and isinstance(refusal, str):
            self._take_text(refusal, out)  # in place of a text, where the answer has to fill a schema
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            self._calls.take(event_json.mapping(piece))
        if isinstance(old := delta.get("function_call"), dict):
            self._calls.take({"index": 0, "function": old})

    def _add_details(self, details: list[Json], out: list[ModelEvent]) -> None:
        """Store the list of details that a gateway expects back; neighbouring pieces of text are joined."""
        for each in map(event_json.mapping, details):
            last = self._details[-1] if self._details else {}
            text = each.get("text")
            same = (
                isinstance(text, str)
                and last.get("type") == each.get("type")
                and isinstance(last.get("text"), str)
            )
            if same and last.get("index") == each.get("index"):
                merged = {**last, **{key: value for key, value in each.items() if value is not None}}
                self._details[-1] = {**merged, "text": last["text"] + text}
            else:
                self._size.item(event_json.PIECE_OVERHEAD)
                self._details.append(each)
            if isinstance(text, str):
                self._size.piece(text)
                if self._field is None and text:
                    self._add_thought(text, out)

    def _add_thought(self, thought: str, out: list[ModelEvent]) -> None:
        self._size.piece(thought)
        self._thought = True
        if self._text.pieces:
            self._afterthought.add(thought)
            return
        if not self._reasoning.pieces:
            out.append(OutputItemAdded(ReasoningResponseItem()))
        end = self._reasoning.add(thought)
        if self._live:
            out.append(ReasoningContentDelta(self._reasoning, end, 0))

    def _take_parts(self, content: Json, out: list[ModelEvent]) -> None:
        for is_thought, text in _parts(content):
            if is_thought:
                self._add_thought(text, out)
            else:
                self._take_text(text, out)

    def _take_text(self, text: str, out: list[ModelEvent]) -> None:
        if self._sieve is None:
            self._add_text(text, out)
            return
        self._size.piece(text)
        for is_thought, piece in self._sieve.take(text):
            if is_thought:
                self._add_thought(piece, out)
            else:
                self._add_text(piece, out)
        if self._sieve.is_done:
            self._sieve = None  # nearly all chunks of a long answer follow

    def _add_text(self, text: str, out: list[ModelEvent]) -> None:
        self._size.piece(text)
        if not self._text.pieces:
            self._end_reasoning(out)
            out.append(OutputItemAdded(MessageItem(role="assistant", content=())))
        end = self._text.add(text)
        if self._live:
            out.append(OutputTextDelta(self._text, end))

    # --- the end
    def _complete(self, out: list[ModelEvent]) -> None:
        finish = (self._finish or "stop").lower()
        if finish in BROKEN:
            raise answer_broken(self._finish or "")
        named = self._end_text(out)
        self._end_reasoning(out)
        if self._text.pieces:
            out.append(OutputItemDone(self._from(_message(self._text.text()))))
        calls = [*self._calls.in_order(), *named]
        is_cut = finish in LENGTH and bool(calls)
        if finish in LENGTH | FILTERED and not is_cut:
            raise incomplete_response(finish)
        if self._afterthought.pieces:
            out.append(OutputItemDone(self._from(_reasoning(self._afterthought.text()))))
        for n, call in enumerate(calls):
            # The limit may have cut the last call even if its arguments can be parsed.
            cut = is_cut and (call is calls[-1] or not call.has_whole_arguments())
            out.append(OutputItemDone(self._function_call(call, n), is_cut=cut))
        self.completed = True
        out.append(Completed(self._usage if self._live else None, cut_by=finish if is_cut else None))

    def _end_text(self, out: list[ModelEvent]) -> list[ChatCall]:
        """Emit the rest that the sieve holds, as calls or as text."""
        if self._sieve is None:
            return []
        pieces, calls = self._sieve.end(structured=bool(self._calls.calls))
        for is_thought, piece in pieces:
            if is_thought:
                self._add_thought(piece, out)
            else:
                self._add_text(piece, out)
        return [ChatCall("", call.name, [call.arguments]) for call in calls]

    def _function_call(self, call: ChatCall, n: int) -> FunctionCall:
        call_id = call.id or f"call_{self._response_id or 'chat'}_{n}"
        kept = {} if call.extra is None else {EXTRA: call.extra}
        item = FunctionCall(name=call.name, arguments="".join(call.arguments), call_id=call_id)
        made = self._from(item, kept, details=n == 0 and not self._thought)
        assert isinstance(made, FunctionCall)
        return made

    def _end_reasoning(self, out: list[ModelEvent]) -> None:
        if self._reasoning.pieces:
            kept = {FIELD: self._field} if self._field is not None else {}
            item = self._from(_reasoning(self._reasoning.text()), kept, details=True)
            out.append(OutputItemDone(item))
            self._reasoning = ItemText()

    def _from(self, item: T, kept: Json = None, *, details: bool = False) -> T:
        """Return the item with the origin of this answer."""
        if self._origin is None:
            return item
        values = {**(kept or {}), **({DETAILS: self._details} if details and self._details else {})}
        answer = f"{self._origin.answer}{self._response_id or ''}"
        return item.model_copy(update={"origin": replace(self._origin, answer=answer, kept=values)})


def _parts(value: Json) -> Iterator[tuple[bool, str]]:
    """Yield the pieces of a content that is a list of parts; the flag says whether the piece is a thought."""
    for part in value if isinstance(value, list) else ():
        if isinstance(part, str):
            yield False, part
            continue
        fields = event_json.mapping(part)
        kind = fields.get("type")
        is_thought = kind in ("thinking", "reasoning")
        text = _flat(fields.get(str(kind)) if is_thought else fields.get("text"))
        if text or (is_thought and (text := _flat(fields.get("text")))):
            yield is_thought, text


def _flat(value: Json) -> str:
    """Return the text of a value: a text, or a list of texts and parts."""
    if isinstance(value, list):
        return "".join(
            _flat(event_json.mapping(each).get("text") if isinstance(each, dict) else each) for each in value
        )
    return value if isinstance(value, str) else ""


def _usage(chunk: dict[str, Json], choice: dict[str, Json]) -> TokenUsage | None:
    """Return the token counts of a chunk, from whichever field the server writes them to."""
    places = (chunk.get("usage"), choice.get("usage"), event_json.mapping(chunk.get("x_groq")).get("usage"))
    for raw in places:
        if not isinstance(raw, dict):
            continue  # nearly every chunk of a stream has no counts
        usage = event_json.token_usage(raw, "prompt", "completion")
        if usage is not None:
            if not usage.cached_input_tokens:
                cached = event_json.count(raw.get("prompt_cache_hit_tokens")) or event_json.count(
                    raw.get("cached_tokens")
                )
                usage = replace(usage, cached_input_tokens=cached or 0)
            return usage
    return None


def _message(text: str) -> MessageItem:
    return MessageItem(role="assistant", content=(OutputText(text=text),))


def _reasoning(text: str) -> ReasoningResponseItem:
    return ReasoningResponseItem(content=(ReasoningText(text=text),))


def _thought(value: Json) -> str | None:
    """Return a piece of reasoning: text, or an object around it."""
    if isinstance(value, dict):
        return event_json.text_of(value.get("text")) or event_json.text_of(value.get("content"))
    return event_json.text_of(value)
