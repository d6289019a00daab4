"""Groups the history of a conversation into exchanges: the user's input, and whole answers of the model. Pure.

History keeps each call followed by its output. Chat Completions and the Messages API know whole answers: thoughts, text
and calls of one answer are one message, and its outputs follow in the order of the calls. Items of one answer share an
origin; items without an origin are grouped by neighbourhood: thoughts, text and calls up to the first output.

Call ids are made unique from the start of the history on, in the form that the provider takes, so that a later request
begins with the same bytes as the one before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from typing_extensions import TypeIs

from app_server.engine.config.quirk_settings import ToolIds
from app_server.engine.model.call_ids import LONGEST_ID, CallIds
from app_server.engine.model.event_json import mapping
from app_server.engine.model.item_cache import LastInput
from app_server_protocol import responses
from app_server_protocol.encoding import Json
from app_server_protocol.item_origin import ItemOrigin, origin_of
from app_server_protocol.responses import (
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    MessageItem,
    ReasoningResponseItem,
    ResponseItem,
    call_key,
    output_key,
)

BEGINS: Final = "(The conversation begins with an answer.)"
"""Text of the user message that is sent before a history that begins with an answer."""


class AnsweredCall(Struct):
    """A call of an answer with its output."""

    id: str
    """Call id, unique in the history, in the provider's form."""
    item: responses.CallItem
    output: responses.OutputItem | None = None


class ModelAnswer(Struct):
    """One answer of the model, with the outputs of its calls."""

    items: list[ResponseItem] = msgspec.field(default_factory=list)
    """Thoughts, texts and calls in the model's order."""
    calls: list[AnsweredCall] = msgspec.field(default_factory=list)
    written: object = None
    """Form in which a writer caches the answer; None if the answer has changed since, or was never written."""

    @property
    def origin(self) -> ItemOrigin | None:
        return next((found for item in self.items if (found := origin_of(item)) is not None), None)

    @property
    def text(self) -> str:
        """Text of the assistant. White space alone counts as empty."""
        messages = (item for item in self.items if isinstance(item, MessageItem))
        joined = "".join(part.text for each in messages for part in each.content if not is_image(part))
        return joined if joined.strip() else ""

    @property
    def thoughts(self) -> list[ReasoningResponseItem]:
        return [item for item in self.items if isinstance(item, ReasoningResponseItem)]


class UserInput(Struct):
    """Neighbouring messages of the user and the developer."""

    messages: list[MessageItem] = msgspec.field(default_factory=list)
    written: object = None
    """Form in which a writer caches the input; None if the input has changed since, or was never written."""


Exchange = ModelAnswer | UserInput


def is_image(part: object) -> TypeIs[responses.InputImage]:
    return isinstance(part, responses.InputImage)


def split_leading(exchanges: Sequence[Exchange]) -> tuple[list[str], Sequence[Exchange]]:
    """Return the developer messages before the conversation, and the exchanges without them."""
    first = exchanges[0] if exchanges else None
    if not isinstance(first, UserInput):
        return [], exchanges
    count = next((n for n, each in enumerate(first.messages) if each.role == "user"), len(first.messages))
    texts = [plain_text(each.content) for each in first.messages[:count]]
    left = first.messages[count:]
    return texts, [UserInput(left), *exchanges[1:]] if left else exchanges[1:]


def without_blanks(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return the exchanges without those that have neither text nor a call. The user messages around such an answer
    become one exchange.
    """
    out: list[Exchange] = []
    for each in exchanges:
        if not (isinstance(each, ModelAnswer) and each.calls) and not _says_something(each):
            continue
        last = out[-1] if out else None
        if isinstance(each, UserInput) and isinstance(last, UserInput):
            out[-1] = UserInput([*last.messages, *each.messages])
        else:
            out.append(each)
    return out


def _says_something(exchange: Exchange) -> bool:
    items = exchange.messages if isinstance(exchange, UserInput) else exchange.items
    parts = (part for item in items if isinstance(item, MessageItem) for part in item.content)
    is_input = isinstance(exchange, UserInput)
    return any(is_input if is_image(part) else part.text and not part.text.isspace() for part in parts)


def plain_text(parts: Sequence[responses.ContentItem]) -> str:
    """Return the text of a message's parts."""
    return "".join(part.text for part in parts if not is_image(part))


class Exchanges:
    """A cache of the exchanges of the last request. The next request repeats nearly all of them, so only its new items
    are grouped.
    """

    def __init__(self) -> None:
        self._last, self._grouping = LastInput(), Grouping("plain")

    def of(self, items: Sequence[ResponseItem], id_form: ToolIds, form: object) -> list[Exchange]:
        """Return the exchanges of these items. `form` holds all values that the writer's bytes depend on."""
        known = self._last.known(items, form)
        if not known:
            self._grouping = Grouping(id_form)
        self._grouping.take(items[known:])
        return self._grouping.exchanges


class Grouping:
    """Groups items into exchanges, one item at a time."""

    def __init__(self, id_form: ToolIds) -> None:
        self.exchanges: list[Exchange] = []
        self._ids = CallIds(id_form)
        self._has_output = False
        """Whether the last answer has an output."""
        self._waiting: dict[tuple[bool, str], list[tuple[ModelAnswer, AnsweredCall]]] = {}
        """Calls without output, by the key of their outputs."""

    def take(self, items: Iterable[ResponseItem]) -> None:
        """Add items that follow those added before."""
        for item in items:
            match item:
                case MessageItem() if item.role != "assistant":
                    self._input().messages.append(item)
                case MessageItem() | ReasoningResponseItem():
                    self._answer(item).items.append(item)
                case FunctionCall() | CustomToolCall() | LocalShellCall():
                    self._call(item)
                case responses.FunctionCallOutput() | responses.CustomToolCallOutput():
                    self._output(item)
                case _:
                    pass

    def _input(self) -> UserInput:
        last = self.exchanges[-1] if self.exchanges else None
        if not isinstance(last, UserInput):
            last = UserInput()
            self.exchanges.append(last)
        last.written = None
        return last

    def _answer(self, item: ResponseItem) -> ModelAnswer:
        """Return the answer that an item of the model belongs to."""
        last = self.exchanges[-1] if self.exchanges else None
        if isinstance(last, UserInput) and (before := self._interrupted(item)) is not None:
            before.written = None
            return before
        if not isinstance(last, ModelAnswer) or not self._belongs(item, last):
            last = ModelAnswer()
            self._has_output = False
            self.exchanges.append(last)
        last.written = None
        return last

    def _interrupted(self, item: ResponseItem) -> ModelAnswer | None:
        """Return the answer before the user's last input if the item belongs to it, or None. An item that a tool adds
        to its output, such as an image, is stored between the calls of one answer.
        """
        before, origin = self.exchanges[-2] if len(self.exchanges) > 1 else None, origin_of(item)
        if origin is None or not isinstance(before, ModelAnswer) or before.origin is None:
            return None
        # An id with this ending has no part of the provider's: a server that was restarted may use it again.
        is_same = before.origin.answer == origin.answer and not origin.answer.endswith("-")
        return before if is_same and before.calls else None

    def _belongs(self, item: ResponseItem, answer: ModelAnswer) -> bool:
        mine, its = answer.origin, origin_of(item)
        if mine is None or its is None:
            return mine is its and not self._has_output
        return mine.answer == its.answer

    def _call(self, item: responses.CallItem) -> None:
        answer, key = self._answer(item), call_key(item)
        call = AnsweredCall(self._ids.of(key[1]), item)
        answer.items.append(item)
        answer.calls.append(call)
        # The call of an older answer with the same id gets no output any more.
        same = [each for each in self._waiting.get(key, ()) if each[0] is answer]
        self._waiting[key] = [*same, (answer, call)]

    def _output(self, item: responses.OutputItem) -> None:
        self._has_output = True
        key = output_key(item)
        if waiting := self._waiting.get(key):
            answer, call = waiting.pop(0)
            answer.written, call.output = None, item


def call_name(call: responses.CallItem) -> str:
    """Return the name of the called tool, in letters that every API accepts."""
    name = "local_shell" if isinstance(call, LocalShellCall) else call.name
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:LONGEST_ID] or "unnamed"


def call_arguments(call: responses.CallItem) -> dict[str, Json]:
    """Return the arguments of a call as an object. The object is empty if the arguments cannot be read."""
    match call:
        case CustomToolCall():
            return {"input": call.input}
        case LocalShellCall():
            return mapping(call.action.to_value())
        case FunctionCall():
            return lenient_arguments(call.arguments) or {}


def is_json_object(text: str) -> bool:
    """Return whether a text is a JSON object as it stands. Providers parse the arguments of calls in the history."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def lenient_arguments(text: str) -> dict[str, Json] | None:
    """Parse the arguments that a model wrote; return None if the text is no JSON object in any of the forms that occur.

    An empty text and `null` are an empty object. A JSON text inside of a JSON text is unwrapped. Raw control characters
    in strings are accepted. An object that is repeated, or followed by a brace or a closing tag, counts once.
    """
    for _ in range(3):
        stripped = text.strip()
        if stripped in ("", "null"):
            return {}
        try:
            value, end = _DECODER.raw_decode(stripped)
        except (ValueError, RecursionError):
            return None
        rest = stripped[end:].strip()
        if isinstance(value, dict):
            return value if not rest or _repeats(rest, stripped[:end]) else None
        if not isinstance(value, str) or rest:
            return None
        text = value
    return None


_DECODER: Final = json.JSONDecoder(strict=False)


def _repeats(rest: str, object_text: str) -> bool:
    """Return whether the text after an object adds nothing: the same object again, braces, or closing tags."""
    closing = r"\}+|(?:</[A-Za-z_|]+>|<\|[a-z_]+\|>)+"
    return not rest.replace(object_text, "").strip() or re.fullmatch(closing, rest) is not None


def output_text(output: responses.OutputItem) -> str:
    """Return the text of an output."""
    if isinstance(output, responses.CustomToolCallOutput):
        return output.output
    return output.output.content


def output_images(output: responses.OutputItem) -> list[responses.InputImage]:
    """Return the images of an output."""
    if isinstance(output, responses.CustomToolCallOutput):
        return []
    return [part for part in output.output.content_items or () if isinstance(part, responses.InputImage)]
