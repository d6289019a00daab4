"""Writes the body of a request to the Chat Completions API. Pure.

One `system` message comes first: the instructions, with all developer messages that stand before the conversation.
Later developer messages become text of the user's message that follows, in `<instructions>` tags, since most templates
of local models drop or refuse the role. Neighbouring messages of the user are one; an answer is one message with all
its calls, and its outputs follow in their order. No message is blank.

Gateways to Claude cache what they are asked to: the system text, the last tool and the last text of the last message
get the marks of its prompt cache. They are put on the written messages, because they move with each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.model.answers import (
    BEGINS,
    AnsweredCall,
    Exchange,
    Exchanges,
    ModelAnswer,
    UserInput,
    call_arguments,
    call_name,
    is_image,
    is_json_object,
    output_images,
    output_text,
    split_leading,
    without_blanks,
)
from app_server.engine.model.item_cache import SCHEMA_NAME
from app_server.engine.model.prompt import (
    TEXT_ARGUMENT,
    FreeformTool,
    FunctionTool,
    Prompt,
    RequestSettings,
    ToolSpec,
)
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.schema_forms import in_form
from app_server_protocol import responses
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.responses import FunctionCall, InputImage, MessageItem

WIRE: Final = "chat"

UNSEEN: Final = "(a picture, which this model cannot see)"
FOLLOWS: Final = "(the picture follows)"
GOES_ON: Final = "I go on with the user's new message."
"""Text of the assistant message between outputs of tools and the user's message, for templates that demand one."""

FIELD: Final = "field"
"""Key of an origin's `kept` for the name of the field that the thoughts came in."""
DETAILS: Final = "reasoning_details"
EXTRA: Final = "extra_content"

NO_SIGNATURE: Final = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Placeholder that Gemini accepts instead of the signature of a call that it did not make."""


class ChatWriter:
    """Writes the requests of one conversation. The part that a request shares with the last one is not
    written again.
    """

    def __init__(self) -> None:
        self._exchanges = Exchanges()

    def body(
        self,
        prompt: Prompt,
        settings: RequestSettings,
        quirks: Quirks,
        provider: str,
        cache_ttl: str | None = None,
    ) -> bytes:
        """Return the body. `provider`: id of the provider, which gets back only thoughts of its own. `cache_ttl`:
        lifetime of the provider's cache.
        """
        sees_images = settings.row.sees_images
        form = (quirks, provider, settings.model, sees_images)
        exchanges = self._exchanges.of(prompt.input, quirks.tool_ids, form)
        writing = _Writing(quirks, provider, sees_images)
        leading, rest = split_leading(exchanges)
        system = "\n\n".join(text for text in (prompt.instructions, *leading) if text.strip())
        messages: list[bytes] = []
        if system:
            messages.append(json_bytes({"role": "system", "content": system}))
        messages += writing.messages(without_blanks(rest))
        mark = quirks.cache_mark(cache_ttl) if quirks.cache_control else None
        if mark is not None and quirks.text_parts and messages:
            if system:
                messages[0] = _marked(messages[0], mark)
            messages[-1] = _marked(messages[-1], mark)
        head = b'{"model":%b,"messages":[%b],' % (json_bytes(settings.model), b",".join(messages))
        return head + json_bytes(_options(prompt, settings, quirks, mark))[1:]


class _Writing(Struct, frozen=True):
    quirks: Quirks
    provider: str
    sees_images: bool

    def messages(self, exchanges: Sequence[Exchange]) -> Iterator[bytes]:
        last_input = max((n for n, each in enumerate(exchanges) if isinstance(each, UserInput)), default=-1)
        pictures: list[Json] = []
        after_tool = False
        said = ""
        """Text of answers that are directly followed by another answer: one message of the assistant has the text of
        all.
        """
        if exchanges and isinstance(exchanges[0], ModelAnswer):
            yield from self._user([{"type": "text", "text": BEGINS}], after_tool=False)
        for n, each in enumerate(exchanges):
            if isinstance(each, UserInput):
                yield from self._said(each, pictures, after_tool=after_tool)
                pictures, after_tool = [], False
                continue
            yield from self._user(pictures, after_tool=after_tool)
            if _is_followed_by_answer(exchanges, n):
                said, pictures, after_tool = _joined(said, each.text), [], False
                continue
            written, pictures = self._kept(each, said, in_turn=n > last_input)
            yield from written
            said = ""
            after_tool = bool(each.calls)
        yield from self._user(pictures, after_tool=after_tool)

    def _said(self, input: UserInput, pictures: Sequence[Json], *, after_tool: bool) -> Sequence[bytes]:
        """Return the user's message. It is cached unless images of tools go before it."""
        match input.written:
            case (bool() as same, list() as written) if same == after_tool and not pictures:
                return written
        parts = [*pictures, *self._input_parts(input.messages)]
        new = list(self._user(parts, after_tool=after_tool))
        input.written = None if pictures else (after_tool, new)
        return new

    def _user(self, parts: Sequence[Json], *, after_tool: bool) -> Iterator[bytes]:
        """Yield the user's message with these parts; nothing if there are no parts."""
        if not parts:
            return
        if after_tool and self.quirks.after_tool == "assistant":
            yield json_bytes({"role": "assistant", "content": GOES_ON})
        if all(part["type"] == "text" for part in parts):
            content: Json = "\n\n".join(part["text"] for part in parts)
        elif self.quirks.text_parts:
            content = list(parts)
        else:
            content = "\n\n".join(part.get("text", UNSEEN) for part in parts)
        yield json_bytes({"role": "user", "content": content})

    def _input_parts(self, messages: Iterable[MessageItem]) -> list[Json]:
        parts: list[Json] = []
        for message in messages:
            for part in message.content:
                if is_image(part):
                    parts.append(self._image(part))
                elif part.text.strip():
                    text = part.text
                    if message.role != "user":
                        text = f"<instructions>\n{text}\n</instructions>"
                    parts.append({"type": "text", "text": text})
        return parts

    def _image(self, image: InputImage) -> Json:
        if not self.sees_images:
            return {"type": "text", "text": UNSEEN}
        return {"type": "image_url", "image_url": {"url": image.image_url}}

    def _pictures(self, answer: ModelAnswer) -> list[Json]:
        """Return the images of an answer's outputs that are sent in a message of the user."""
        if self.quirks.tool_pictures == "part" or not self.sees_images:
            return []
        outputs = (call.output for call in answer.calls if call.output is not None)
        return [self._image(image) for output in outputs for image in output_images(output)]

    def _kept(self, answer: ModelAnswer, said: str, *, in_turn: bool) -> tuple[list[bytes], list[Json]]:
        """Return the messages of an answer, and the images of its outputs for the user's next message. Both are cached.
        `said`: text of the answers before it.
        """
        back = self.quirks.thoughts_back
        with_thoughts = back == "always" or (back == "turn" and in_turn)
        match answer.written:
            case (bool() as same, str() as before, list() as written, list() as pictures) if (
                same,
                before,
            ) == (
                with_thoughts,
                said,
            ):
                return written, pictures
        written = list(self._answer(answer, said, with_thoughts=with_thoughts))
        pictures = self._pictures(answer)
        answer.written = (with_thoughts, said, written, pictures)
        return written, pictures

    def _answer(self, answer: ModelAnswer, said: str, *, with_thoughts: bool) -> Iterator[bytes]:
        text = _joined(said, answer.text)
        if not text and not answer.calls:
            return
        thoughts = self._thoughts(answer) if with_thoughts else {}
        one_by_one = self.quirks.single_calls and len(answer.calls) > 1
        for calls in [[call] for call in answer.calls] if one_by_one else [answer.calls]:
            message: dict[str, Json] = {
                "role": "assistant",
                "content": text or (None if self.quirks.null_content and calls else ""),
            }
            if calls:
                message["tool_calls"] = [self._call(call) for call in calls]
            yield json_bytes({**message, **thoughts})
            for call in calls:
                yield json_bytes({"role": "tool", "tool_call_id": call.id, "content": self._output(call)})
            text, thoughts = "", self._no_thoughts()

    def _call(self, call: AnsweredCall) -> Json:
        item = call.item
        written = json_bytes(call_arguments(item)).decode()
        if isinstance(item, FunctionCall) and is_json_object(item.arguments):
            written = item.arguments
        made: dict[str, Json] = {
            "id": call.id,
            "type": "function",
            "function": {"name": call_name(item), "arguments": written},
        }
        kept = item.origin.kept.get(EXTRA) if item.origin is not None and self._is_own(item) else None
        if kept is not None:
            made[EXTRA] = kept
        elif self.quirks.thoughts_field == EXTRA and not self._is_own(item):
            made[EXTRA] = NO_SIGNATURE
        return made

    def _is_own(self, item: responses.CallItem) -> bool:
        """Return whether the provider made the item itself."""
        origin = item.origin
        return origin is not None and origin.provider == self.provider and origin.wire == WIRE

    def _output(self, call: AnsweredCall) -> Json:
        if call.output is None:
            return "aborted"
        images = output_images(call.output)
        text = output_text(call.output)
        if not images:
            return text
        if self.quirks.tool_pictures == "part" and self.sees_images:
            texts = [{"type": "text", "text": text}] if text else []
            return [*texts, *(self._image(image) for image in images)]
        note = FOLLOWS if self.sees_images else UNSEEN
        return f"{text}\n{note}" if text else note

    def _thoughts(self, answer: ModelAnswer) -> dict[str, Json]:
        """Return the fields in which an answer's thoughts are sent back to the provider that made them."""
        origin = answer.origin
        if origin is not None and (origin.provider != self.provider or origin.wire != WIRE):
            return self._no_thoughts()
        text = "".join(part.text for item in answer.thoughts for part in item.content or ())
        details = [
            detail
            for item in answer.items
            if (found := getattr(item, "origin", None)) is not None
            for detail in found.kept.get(DETAILS) or ()
        ]
        fields: dict[str, Json] = {DETAILS: details} if details else {}
        if not text:
            return fields or self._no_thoughts()
        name = self.quirks.thoughts_field
        if name is None or name == EXTRA:
            kept = "reasoning" if origin is None else origin.kept.get(FIELD)
            if not isinstance(kept, str):
                return fields  # these thoughts came inside of the text, and have no field to be sent back in
            name = kept
        return {name: text, **fields}

    def _no_thoughts(self) -> dict[str, Json]:
        name = self.quirks.thoughts_field
        return {name: ""} if self.quirks.empty_thoughts and name is not None else {}


def _is_followed_by_answer(exchanges: Sequence[Exchange], n: int) -> bool:
    """Return whether the exchange is an answer without calls, such as an interrupted one, that another answer
    follows.
    """
    following = exchanges[n + 1] if n + 1 < len(exchanges) else None
    answer = exchanges[n]
    return isinstance(following, ModelAnswer) and isinstance(answer, ModelAnswer) and not answer.calls


def _joined(before: str, text: str) -> str:
    return "\n\n".join(each for each in (before, text) if each)


def _marked(message: bytes, mark: Json) -> bytes:
    """Return a written message whose last text has a mark of the prompt cache; unchanged if it has no text."""
    fields = msgspec.json.decode(message)
    content = fields["content"] or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in reversed(parts):
        if part["type"] == "text" and part["text"].strip():
            part["cache_control"] = mark
            return json_bytes({**fields, "content": parts})
    return message


def _options(prompt: Prompt, settings: RequestSettings, quirks: Quirks, mark: Json) -> dict[str, Json]:
    """Return the fields of a request besides the model and the messages. `mark`: mark of the prompt cache, which the
    last tool gets; None if there is none.
    """
    options: dict[str, Json] = {"stream": True}
    tools = [_tool(tool, quirks) for tool in prompt.tools if isinstance(tool, FunctionTool | FreeformTool)]
    if tools:
        options["tools"] = tools if mark is None else [*tools[:-1], {**tools[-1], "cache_control": mark}]
    if prompt.output_schema is not None:
        schema = {"name": SCHEMA_NAME, "strict": True, "schema": prompt.output_schema}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    if settings.live_chat:
        options["stream_options"] = {"include_usage": True}
    if settings.max_output_tokens is not None:
        options[quirks.max_tokens] = settings.max_output_tokens
    if settings.service_tier is not None:
        options["service_tier"] = settings.service_tier
    options |= _effort(settings, quirks)
    if quirks.cache_key:
        options |= {"prompt_cache_key": settings.conversation_id, "store": False}
    return {name: value for name, value in options.items() if name not in quirks.omit}


def _tool(tool: ToolSpec, quirks: Quirks) -> dict[str, Json]:
    if isinstance(tool, FreeformTool):
        return {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": TEXT_ARGUMENT},
        }
    assert isinstance(tool, FunctionTool)
    function: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": in_form(tool.parameters, quirks.schema),
    }
    if tool.strict and not quirks.omits("strict"):
        function["strict"] = True
    return {"type": "function", "function": function}


def _effort(settings: RequestSettings, quirks: Quirks) -> dict[str, Json]:
    """Return the fields of the reasoning effort; empty if neither the user nor the model's row sets an effort."""
    chosen = settings.effort or settings.row.default_reasoning_level
    if chosen is None:
        return {}
    word = settings.row.nearest_effort(chosen)
    thinks = word != "none"
    match quirks.effort:
        case "openrouter":
            return {"reasoning": {"effort": word}}
        case "together":
            return {"reasoning": {"enabled": thinks}}
        case "deepseek":
            return {"thinking": {"type": "enabled" if thinks else "disabled"}, "reasoning_effort": word}
        case "zai":
            thinking = {"type": "enabled" if thinks else "disabled", "clear_thinking": False}
            return {"thinking": thinking, "reasoning_effort": word}
        case "qwen":
            return {"enable_thinking": thinks}
        case "template":
            return {"chat_template_kwargs": {"enable_thinking": thinks}}
        case "none":
            return {}
        case "reasoning_effort":
            return {"reasoning_effort": word}
