"""The APIs of models, and the properties of each: its path, its headers, how a request is written and its answer read.

A wire belongs to one conversation, since it caches what it has written. The module of an API is loaded at its first
use, except that of the Responses API, which nearly every conversation uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from app_server.engine.config.config_values import WireApi
from app_server.engine.model import (
    chat_reader,
    chat_writer,
    messages_options,
    messages_reader,
    messages_writer,
    text_calls,
)
from app_server.engine.model.api_failures import rate_limits
from app_server.engine.model.prompt import ModelEvent, Prompt, RateLimits, RequestSettings
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.responses_reader import ResponsesDecoder
from app_server.engine.model.responses_writer import ResponsesWriter
from app_server.engine.model.stream import WireDecoder
from app_server_protocol.item_origin import ItemOrigin


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request: its content, its receiver, and the form that the provider wants."""

    prompt: Prompt
    settings: RequestSettings
    quirks: Quirks
    provider: str
    """Id of the provider."""
    answer: str
    """Id of the answer in the conversation."""
    cache_ttl: str | None = None
    """Lifetime of the provider's cache; None if the provider decides."""


class Wire(Protocol):
    """One API, for one conversation."""

    path: str
    """Path of requests below the provider's address."""

    def headers(self, asked: ModelRequest) -> Mapping[str, str]:
        """Return the headers of a request besides those that every API has."""
        ...

    def body(self, asked: ModelRequest) -> bytes:
        """Return the body of a request."""
        ...

    def decoder(self, asked: ModelRequest) -> WireDecoder:
        """Return the decoder of the answer."""
        ...

    def first_events(self, headers: Mapping[str, str]) -> list[ModelEvent]:
        """Return the events that are derived from the headers of an answer."""
        ...


class ResponsesWire:
    """The Responses API."""

    path = "responses"

    def __init__(self) -> None:
        self._writer = ResponsesWriter()

    def headers(self, asked: ModelRequest) -> Mapping[str, str]:
        id = asked.settings.conversation_id
        return {"conversation_id": id, "session_id": id}

    def body(self, asked: ModelRequest) -> bytes:
        return self._writer.body(asked.prompt, asked.settings, asked.quirks)

    def decoder(self, asked: ModelRequest) -> WireDecoder:
        return ResponsesDecoder()

    def first_events(self, headers: Mapping[str, str]) -> list[ModelEvent]:
        return [RateLimits(rate_limits(headers))]


class ChatWire:
    """The Chat Completions API."""

    path = "chat/completions"

    def __init__(self) -> None:
        self._writer = chat_writer.ChatWriter()

    def headers(self, asked: ModelRequest) -> Mapping[str, str]:
        name = asked.quirks.session_header
        return {} if name is None else {name: asked.settings.conversation_id}

    def body(self, asked: ModelRequest) -> bytes:
        body: bytes = self._writer.body(
            asked.prompt, asked.settings, asked.quirks, asked.provider, asked.cache_ttl
        )
        return body

    def decoder(self, asked: ModelRequest) -> WireDecoder:
        origin, quirks = _origin(asked, WireApi.CHAT), asked.quirks
        sieve = None
        if quirks.text_calls or quirks.think_tags != "none":
            offered = text_calls.offered_in(asked.prompt.tools) if quirks.text_calls else None
            sieve = text_calls.TextSieve(
                think_tags=quirks.think_tags,
                offered=offered,
                is_quoted=lambda block: text_calls.is_quoted(block, asked.prompt.input),
            )
        decoder: WireDecoder = chat_reader.ChatDecoder(
            live=asked.settings.live_chat, origin=origin, sieve=sieve
        )
        return decoder

    def first_events(self, headers: Mapping[str, str]) -> list[ModelEvent]:
        return []


class MessagesWire:
    """The Anthropic Messages API."""

    path = "messages"

    def __init__(self) -> None:
        self._writer = messages_writer.MessagesWriter()

    def headers(self, asked: ModelRequest) -> Mapping[str, str]:
        headers: Mapping[str, str] = messages_options.headers_of(asked.settings)
        return headers

    def body(self, asked: ModelRequest) -> bytes:
        body: bytes = self._writer.body(
            asked.prompt, asked.settings, asked.quirks, asked.provider, asked.cache_ttl
        )
        return body

    def decoder(self, asked: ModelRequest) -> WireDecoder:
        decoder: WireDecoder = messages_reader.MessagesDecoder(_origin(asked, WireApi.MESSAGES))
        return decoder

    def first_events(self, headers: Mapping[str, str]) -> list[ModelEvent]:
        return []


def _origin(asked: ModelRequest, wire: WireApi) -> ItemOrigin:
    """Return the origin of the items of an answer."""
    return ItemOrigin(
        answer=asked.answer, provider=asked.provider, model=asked.settings.model, wire=wire.value
    )


def make_wire(api: WireApi) -> Wire:
    """Return an API for a conversation."""
    match api:
        case WireApi.CHAT:
            return ChatWire()
        case WireApi.MESSAGES:
            return MessagesWire()
        case WireApi.RESPONSES:
            return ResponsesWire()
