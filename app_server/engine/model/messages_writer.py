"""Writes the body of a request to the Anthropic Messages API. Pure.

The instructions, with all developer messages that stand before the conversation, are the system text. Messages of the
user and of the assistant alternate: an answer is one message with its blocks in the model's order, and its outputs
begin the user's next message, in the order of the calls. Later developer messages become texts of the user in
`<instructions>` tags. Thoughts are sent back unchanged, to the provider that made them.

The marks of the prompt cache are on the system text, on the last block of the request, and on the last block of the
request before: a long answer may have more blocks than the provider looks back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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
    plain_text,
    split_leading,
)
from app_server.engine.model.messages_join import Block, JoinedMessages, Message
from app_server.engine.model.messages_options import max_tokens, options_of, tool_of
from app_server.engine.model.prompt import FreeformTool, FunctionTool, Prompt, RequestSettings
from app_server.engine.model.quirks import Quirks
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.item_origin import FAILED, ItemOrigin, origin_of
from app_server_protocol.responses import FunctionCall, InputImage, MessageItem, ReasoningResponseItem

WIRE: Final = "messages"

SIGNATURE: Final = "signature"
"""Key of an origin's `kept` for the signature of a thought."""
REDACTED: Final = "redacted"
"""Key of an origin's `kept` for a thought that only the provider can decrypt."""

UNSEEN: Final = "(a picture, which this model cannot see)"
NOT_TAKEN: Final = "(a picture in a form that this API does not take)"
NO_OUTPUT: Final = "(no output)"

IMAGE_KINDS: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
IMAGE_SIZE: Final = 6000
"""Size that an image counts in estimates instead of the size of its data, in bytes."""


class MessagesWriter:
    """Writes the requests of one conversation. The part that a request shares with the last one is not
    written again.
    """

    def __init__(self) -> None:
        self._exchanges, self._messages = Exchanges(), JoinedMessages()
        self._first: tuple[object, int, tuple[list[str], Sequence[Exchange]]] | None = None
        """First exchange of the last request, the number of its messages, and the parts that it was split into."""
        self._tools: list[Json] = []
        """Tools of the last request that offered any."""

    def body(
        self,
        prompt: Prompt,
        settings: RequestSettings,
        quirks: Quirks,
        provider: str,
        cache_ttl: str | None = None,
    ) -> bytes:
        """Return the body. `provider`: id of the provider, which gets back only thoughts of its own."""
        row = settings.row
        form = (quirks, provider, row.sees_images, row.thoughts == "none")
        exchanges = self._exchanges.of(prompt.input, quirks.tool_ids, form)
        leading, rest = self._split(exchanges)
        writing = MessageWriting(provider, row.sees_images, row.thoughts != "none")
        self._messages.take(rest, writing.messages)
        mark = quirks.cache_mark(cache_ttl)
        system = "\n\n".join(text for text in (prompt.instructions, *leading) if text.strip())
        head: dict[str, Json] = {"model": settings.model}
        if system:
            block = {"type": "text", "text": system}
            head["system"] = [block if mark is None else {**block, "cache_control": mark}]
        if tools := self._offered(prompt, quirks, rest):
            head["tools"] = tools
        head_json = json_bytes(head)
        limit = max_tokens(settings, len(head_json) + self._messages.size)
        options = options_of(prompt, settings, quirks, limit, may_think=_may_think(self._messages.last))
        return b'%b,"messages":[%b],%b' % (
            head_json[:-1],
            self._messages.json(mark),
            json_bytes(options)[1:],
        )

    def _split(self, exchanges: Sequence[Exchange]) -> tuple[list[str], Sequence[Exchange]]:
        """Return the developer messages before the conversation, and the exchanges without them. The first exchange is
        the same object in all requests that begin like the last one.
        """
        first = exchanges[0] if exchanges else None
        count = len(first.messages) if isinstance(first, UserInput) else 0
        if self._first is None or self._first[0] is not first or self._first[1] != count:
            leading, rest = split_leading(exchanges)
            self._first = first, count, (leading, rest[: len(rest) - len(exchanges) + 1])
        leading, begin = self._first[2]
        return leading, [*begin, *exchanges[1:]]

    def _offered(self, prompt: Prompt, quirks: Quirks, exchanges: Sequence[Exchange]) -> list[Json]:
        """Return the tools. A request that offers none sends those of the last request: the provider's cache begins
        with them, and the provider refuses a history with calls but without tools.
        """
        tools = [
            tool_of(each, quirks) for each in prompt.tools if isinstance(each, FunctionTool | FreeformTool)
        ]
        if tools:
            self._tools = tools
            return tools
        answers = [each for each in exchanges if isinstance(each, ModelAnswer)]
        names = dict.fromkeys(call_name(call.item) for each in answers for call in each.calls)
        if names and not self._tools:
            return [{"name": name, "input_schema": {"type": "object"}} for name in names]
        return self._tools if names else []


class MessageWriting(Struct, frozen=True):
    """Writes exchanges as messages for one provider."""

    provider: str
    sees_images: bool
    with_thoughts: bool

    def messages(self, exchanges: Sequence[Exchange], begins: bool = True) -> list[Message]:
        """Return the messages; their roles alternate. `begins`: the conversation begins with the first one, so it is
        the user's.
        """
        out: list[Message] = []
        for n, each in enumerate(exchanges):
            if isinstance(each, UserInput):
                if not isinstance(each.written, list):
                    each.written = list(self._input(each.messages))
                _add(out, "user", each.written, n)
                continue
            if not isinstance(each.written, tuple):
                each.written = self._answer(each)
            said, results = each.written
            _add(out, "assistant", said, n)
            _add(out, "user", results, n)
        if begins and (not out or out[0].role != "user"):
            out.insert(0, Message("user", [_text(BEGINS)]))
        return out

    def _input(self, messages: Iterable[MessageItem]) -> Iterator[Block]:
        for message in messages:
            for part in message.content:
                if is_image(part):
                    yield self._image(part)
                elif part.text.strip():
                    is_user = message.role == "user"
                    yield _text(part.text if is_user else f"<instructions>\n{part.text}\n</instructions>")

    def _answer(self, answer: ModelAnswer) -> tuple[list[Block], list[Block]]:
        """Return the blocks of an answer and the blocks of its outputs; both are empty without text and calls."""
        blocks: list[Block] = []
        calls = iter(answer.calls)
        for item in answer.items:
            match item:
                case ReasoningResponseItem():
                    blocks += self._thought(item)
                case MessageItem():
                    text = plain_text(item.content)
                    if text.strip():
                        blocks.append(_text(text))
                case _:
                    blocks.append(_call(next(calls)))
        while blocks and blocks[-1].is_thought:
            # The provider refuses a message that ends with a thought, as that of an interrupted answer does.
            del blocks[-1]
        return blocks, [self._result(call) for call in answer.calls]

    def _thought(self, item: ReasoningResponseItem) -> list[Block]:
        origin = item.origin
        if not self.with_thoughts or not _is_of(origin, self.provider):
            return []
        assert origin is not None
        redacted = origin.kept.get(REDACTED)
        if isinstance(redacted, str):
            return [_block({"type": "redacted_thinking", "data": redacted}, is_thought=True)]
        signature = origin.kept.get(SIGNATURE)
        thought: Json = {
            "type": "thinking",
            "thinking": "".join(part.text for part in item.summary),
            "signature": signature if isinstance(signature, str) else "",
        }
        return [_block(thought, is_thought=True)]

    def _result(self, call: AnsweredCall) -> Block:
        """Return the output of a call, including its images."""
        output = call.output
        text = "aborted" if output is None else output_text(output)
        images = [] if output is None else output_images(output)
        result: dict[str, Json] = {"type": "tool_result", "tool_use_id": call.id}
        origin = origin_of(output)
        if origin is not None and origin.kept.get(FAILED) is True:
            result["is_error"] = True
            text = text if text.strip() or images else NO_OUTPUT
        if not images:
            return _block({**result, "content": text})
        parts = [*([_text(text)] if text.strip() else []), *map(self._image, images)]
        content = b",".join(part.json for part in parts)
        return Block(
            b'%b,"content":[%b]}' % (json_bytes(result)[:-1], content),
            len(text) + sum(part.size for part in parts),
        )

    def _image(self, image: InputImage) -> Block:
        if not self.sees_images:
            return _text(UNSEEN)
        source = _image_source(image.image_url)
        if source is None:
            return _text(NOT_TAKEN)
        return Block(json_bytes({"type": "image", "source": source}), IMAGE_SIZE)


def _is_of(origin: ItemOrigin | None, provider: str) -> bool:
    return origin is not None and origin.provider == provider and origin.wire == WIRE


def _add(messages: list[Message], role: str, blocks: list[Block], exchange: int) -> None:
    if not blocks:
        return
    if messages and messages[-1].role == role:
        messages[-1].blocks += blocks
    else:
        messages.append(Message(role, list(blocks), exchange))


def _block(value: Json, *, is_thought: bool = False) -> Block:
    written = json_bytes(value)
    return Block(written, len(written), is_thought)


def _text(text: str) -> Block:
    return _block({"type": "text", "text": text})


def _call(call: AnsweredCall) -> Block:
    item = call.item
    arguments = json_bytes(call_arguments(item))
    if isinstance(item, FunctionCall) and is_json_object(item.arguments):
        arguments = item.arguments.encode("utf-8")
    written = b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
        json_bytes(call.id),
        json_bytes(call_name(item)),
        arguments,
    )
    return Block(written, len(written))


def _image_source(url: str) -> Json | None:
    """Return the source of an image; None if the API does not accept it."""
    if url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    head, comma, data = url.partition(",")
    kind, *parameters = head.removeprefix("data:").lower().split(";")
    kind = "image/jpeg" if kind == "image/jpg" else kind
    if not comma or not head.startswith("data:") or "base64" not in parameters or kind not in IMAGE_KINDS:
        return None
    return {"type": "base64", "media_type": kind, "data": data}


def _may_think(messages: Sequence[Message]) -> bool:
    """Return whether a model with a budget of thoughts may think. The answer that it continues, whose outputs were not
    sent yet, must have begun with a thought.
    """
    last = messages[-1]
    if (
        last.role != "user"
        or len(messages) < 2
        or not last.blocks[0].json.startswith(b'{"type":"tool_result"')
    ):
        return True
    return messages[-2].blocks[0].is_thought
