"""Quirks of providers: the features that a server accepts, and where it differs from OpenAI's. Pure.

They come from three places, each of which overrides the one before:

1. rows of `models.json`, found by the provider's id, name, host or port, or by the model;
2. lessons from refusals (`Lessons`);
3. the user's table `[model_providers.X.quirks]`.

No code outside of this module and that file names a provider.
"""

# Annotations are no texts in this module: msgspec would compile each of them at the start of a server.
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from app_server.engine.config.config_values import ProviderConfig, WireApi
from app_server.engine.config.quirk_settings import (
    AfterTool,
    Arguments,
    Effort,
    ModelList,
    Role,
    SchemaForm,
    ThinkTags,
    ThoughtsBack,
    ToolIds,
    ToolPictures,
)
from app_server.engine.model.catalogue import bundled
from app_server_protocol.encoding import Json

OptionalField = Literal[
    "stream_options",
    "parallel_tool_calls",
    "store",
    "strict",
    "reasoning_effort",
    "reasoning",
    "verbosity",
    "prompt_cache_key",
    "service_tier",
    "include",
    "tool_choice",
    "cache_control",
    "max_completion_tokens",
    "response_format",
    "thinking",
    "output_config",
]
"""A field of a request that is left out if a provider refuses it."""

OPTIONAL: Final[tuple[OptionalField, ...]] = get_args(OptionalField)

LOOPBACK_HOSTS: Final = frozenset(
    {"localhost", "127.0.0.1", "::1", "0.0.0.0", "[::1]", "host.docker.internal"}
)


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The forms of requests to a provider and of its answers. The words of a form are the type of its field, so that
    the type checker refuses a comparison with another word.
    """

    optional: tuple[str, ...] = OPTIONAL
    omit: tuple[str, ...] = ()
    """Fields that are never sent."""
    wire: WireApi | None = None
    """API of requests to the provider unless the user chooses another one; None if the row names none."""
    list: ModelList = "any"
    """The kind of the provider's list of models."""
    local: bool = False
    """Whether the server runs on the user's machine, with models that the user loads."""
    role: Role = "developer"
    """Role of developer messages over the Responses API."""
    after_tool: AfterTool = "user"
    """Role of the message that may follow outputs of tools: `user`, or `assistant` if a message of the assistant must
    stand between.
    """
    tool_ids: ToolIds = "plain"
    """Form of call ids: `nine` letters and digits, `forty` characters at most."""
    null_content: bool = True
    """Whether a message with calls may have `content: null`."""
    tool_pictures: ToolPictures = "user"
    """Place of images of tools: in a `user` message, or as a `part` of the tool's output."""
    single_calls: bool = False
    """Whether a message may have only one call over Chat Completions: the calls of one answer are written one by one.
    """
    text_parts: bool = True
    """Whether a message may have parts."""
    thoughts_field: str | None = None
    """Name of the field in which thoughts are sent back over Chat Completions; None if it is the field they came in."""
    thoughts_back: ThoughtsBack = "always"
    """Time for which thoughts are sent back: `always`, `turn` (since the user's last message), `never`."""
    empty_thoughts: bool = False
    """Whether an assistant message without thoughts gets an empty field for them."""
    content_thoughts: bool = False
    """Whether thoughts without encrypted content are sent back as text over the Responses API."""
    effort: Effort = "reasoning_effort"
    """Form in which a reasoning effort is sent over Chat Completions."""
    schema: SchemaForm = "plain"
    """Form of JSON Schemas of tools."""
    arguments: Arguments = "text"
    """Form of call arguments that are sent back: `text` as they came, or `object` for always a JSON object."""
    max_tokens: str = "max_completion_tokens"
    """Name of the field that limits an answer over Chat Completions."""
    cache_control: bool = False
    """Whether marks of Claude's prompt cache are sent over Chat Completions."""
    cache_key: bool = False
    """Whether `prompt_cache_key` and `store` are sent over Chat Completions."""
    session_header: str | None = None
    """Header that carries the conversation's id; None if there is none."""
    text_calls: bool = False
    """Whether calls that are printed as text are read as calls."""
    think_tags: ThinkTags = "none"
    """Whether thoughts stand in `<think>` tags; `open` if an answer begins inside of them."""
    custom_tools: bool = True
    """Whether the Responses API of the provider accepts tools of free text."""
    web_search: bool = True
    """Whether the provider searches the web by itself, if the user has enabled that."""
    store_items: bool = False
    """Whether the provider stores the items of a conversation and wants their ids back."""
    responses_only: bool = False
    """Whether the model calls tools, with a reasoning effort, over the Responses API only."""
    blank_overflow: bool = False
    """Whether a status 400 without a body means that the conversation is too long."""
    reasoning_context: str | None = None
    """Value of `reasoning.context` that the provider demands; None if it demands none."""

    def omits(self, field: OptionalField) -> bool:
        """Return whether a field is never sent."""
        return field in self.omit

    def cache_mark(self, ttl: str | None) -> Json:
        """Return the mark of Claude's prompt cache; None if the provider refuses it. `ttl`: lifetime of the cache."""
        if self.omits("cache_control"):
            return None
        return {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}


class ProviderRow(Struct, frozen=True, kw_only=True):
    """A row of `providers` in models.json: the servers and models that it applies to, and the quirks."""

    id: str = ""
    names: tuple[str, ...] = ()
    """Other ids and names of the same provider, in lower case."""
    hosts: tuple[str, ...] = ()
    """Suffixes of host names."""
    host_parts: tuple[str, ...] = ()
    """Texts that occur somewhere in a host name."""
    ports: tuple[int, ...] = ()
    """Ports on the loopback."""
    models: tuple[str, ...] | None = None
    """Beginnings of model names, or of their parts between slashes, in lower case; None if the row applies to every
    model.
    """
    quirks: Mapping[str, Json] = {}
    """Values of quirks. A text in place of a flag is a pattern of the models for which the flag is set."""


_FLAGS: Final = frozenset(
    name
    for name, default in zip(Quirks.__struct_fields__, Quirks.__struct_defaults__, strict=True)
    if isinstance(default, bool)
)


@cache
def provider_rows() -> tuple[ProviderRow, ...]:
    """Return the rows of the bundled file."""
    return msgspec.convert(bundled().providers, tuple[ProviderRow, ...])


@cache
def _named_row(id: str, name: str, host: str, port: int | None) -> ProviderRow | None:
    rows = [row for row in provider_rows() if row.models is None]
    names = {id.lower(), name.lower()}
    for row in rows:
        if row.id in names or names.intersection(row.names):
            return row
    for row in rows:
        if any(host == end or host.endswith(f".{end}") for end in row.hosts):
            return row
        if any(part in host for part in row.host_parts):
            return row
    if host not in LOOPBACK_HOSTS:
        return None
    at_port = next((row for row in rows if port in row.ports), None)
    return at_port or next(row for row in rows if row.id == "loopback")


def provider_row(provider: ProviderConfig) -> ProviderRow | None:
    """Return the row of a provider; None if the provider is unknown."""
    try:
        parts = urlsplit(provider.base_url or "")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    return _named_row(provider.id, provider.name, host, port)


def quirks_of(provider: ProviderConfig, model: str, learnt: Mapping[str, Json] | None = None) -> Quirks:
    """Return the quirks of a model at a provider. `learnt` overrides the rows, and the user's table overrides both."""
    values: dict[str, Json] = {}
    row = provider_row(provider)
    for each in (row, *(each for each in provider_rows() if each.models is not None)):
        if each is not None and (each.models is None or _is_one_of(each.models, model)):
            values |= _for_model(each.quirks, model)
    if learnt:
        values |= learnt
    values |= _for_model(provider.quirks, model)
    return msgspec.convert(values, Quirks)


def _is_one_of(beginnings: tuple[str, ...], model: str) -> bool:
    return any(part.startswith(beginnings) for part in model.lower().split("/"))


def _for_model(quirks: Mapping[str, Json], model: str) -> dict[str, Json]:
    return {
        name: bool(re.search(value, model)) if name in _FLAGS and isinstance(value, str) else value
        for name, value in quirks.items()
    }


class Lessons:
    """Quirks and context windows that were learnt from refusals of providers, for the life of the server and for all
    its conversations.
    """

    def __init__(self) -> None:
        self.revision = 0
        """Number of the changes so far. Whatever was derived from the lessons is derived again after a change."""
        self._learnt: dict[tuple[str, str, str], dict[str, Json]] = {}
        self._responses: set[tuple[str, str, str]] = set()
        """Providers that serve the Responses API, but not Chat Completions."""
        self._windows: dict[tuple[str, str, str], int] = {}
        self._guesses: set[tuple[str, str, str]] = set()
        """Models whose context window is a guess, because no refusal named it."""

    def of(self, provider: ProviderConfig, model: str) -> Mapping[str, Json]:
        """Return the quirks that were learnt for a model at a provider."""
        return self._learnt.get(_key(provider, model), {})

    def learn(self, provider: ProviderConfig, model: str, quirks: Mapping[str, Json]) -> None:
        """Add quirks. Fields to omit are added to those that are already omitted."""
        self.revision += 1
        known = self._learnt.setdefault(_key(provider, model), {})
        omit = (*_texts(known.get("omit")), *_texts(quirks.get("omit")))
        known.update(quirks)
        if omit:
            known["omit"] = tuple(dict.fromkeys(omit))

    def speaks_responses(self, provider: ProviderConfig) -> bool:
        """Return whether a provider whose API the user did not choose has turned out to serve only the
        Responses API.
        """
        return _key(provider, "") in self._responses

    def learn_responses(self, provider: ProviderConfig) -> None:
        self._responses.add(_key(provider, ""))

    def window(self, provider: ProviderConfig, model: str) -> int | None:
        """Return the context window that was learnt, in tokens; None if none was."""
        return self._windows.get(_key(provider, model))

    def learn_window(
        self, provider: ProviderConfig, model: str, tokens: int, *, is_guess: bool = False
    ) -> None:
        """Store the context window that a refusal named, or that is guessed because a request got no answer."""
        self.revision += 1
        key = _key(provider, model)
        self._windows[key] = tokens
        if is_guess:
            self._guesses.add(key)
        else:
            self._guesses.discard(key)

    def window_is_guess(self, provider: ProviderConfig, model: str) -> bool:
        return _key(provider, model) in self._guesses

    def forget_guess(self, provider: ProviderConfig, model: str) -> None:
        """Forget the window of a model if it is a guess."""
        key = _key(provider, model)
        if key in self._guesses:
            self.revision += 1
            self._guesses.remove(key)
            del self._windows[key]

    def forget_windows(self, provider: ProviderConfig, is_said: Callable[[str], bool]) -> None:
        """Forget the context windows of the models whose window the provider's list names by now."""
        self.revision += 1
        id, address, _ = _key(provider, "")
        self._windows = {
            key: window
            for key, window in self._windows.items()
            if key[:2] != (id, address) or not is_said(key[2])
        }
        self._guesses &= self._windows.keys()

    def all(self) -> Mapping[tuple[str, str, str], Mapping[str, Json]]:
        """Return everything that was learnt, by provider, address and model."""
        return self._learnt


def _key(provider: ProviderConfig, model: str) -> tuple[str, str, str]:
    return provider.id, provider.base_url or "", model


def _texts(value: Json) -> Sequence[str]:
    return value if isinstance(value, list | tuple) else ()
