"""Readers of the lists of models that providers answer with, one for each kind of server. Pure.

A reader takes the parsed answer of a server and returns rows that hold only the server's own statements. A context
window counts only if it is that of the running model: the length that a model was trained on does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from app_server.engine.config.model_rows import ModelRow
from app_server.engine.config.quirk_settings import ModelList
from app_server.engine.model.event_json import mapping, text_of
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace

LONGEST_NAME: Final = 300
"""Maximum length of a model's name that is accepted from a list, in characters."""

MOST_MODELS: Final = 2_000
"""Maximum number of models that are accepted from one list."""


ServerKind = Literal[ModelList, "chatgpt"]
"""The kind of server that a list of models is of. A ChatGPT login is served a list of its own."""


class ServedModel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model as its provider lists it."""

    row: ModelRow
    """The provider's facts about the model; a field that the provider does not state is None."""
    loaded: bool = False
    """Whether a local server has the model in memory."""
    tools: bool | None = None
    """Whether the model calls tools; None if the provider does not say."""

    @property
    def name(self) -> str:
        return self.row.slug


class ServedModels(Struct, frozen=True, kw_only=True):
    """The models of a provider."""

    kind: ServerKind = "any"
    """Kind of server, which is the name of its reader."""
    models: tuple[ServedModel, ...] = ()
    asked: float = 0.0
    """Time of the answer, in seconds since 1970."""
    etag: str = ""
    """Version of the list, which later answers of the provider repeat; empty if it has none."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.models)

    def named(self, name: str) -> ServedModel | None:
        """Return the model that is listed under a name. Ollama lists `name:latest` for `name`."""
        wanted = (name.lower(), f"{name.lower()}:latest")
        return next((each for each in self.models if each.name.lower() in wanted), None)

    def find(self, name: str) -> ServedModel | None:
        """Return the model that a name selects. If a list has one model, any name selects it: servers that are started
        for one model accept any name.
        """
        if (found := self.named(name)) is not None:
            return found
        return self.models[0] if len(self.models) == 1 and self.kind in ONE_MODEL_KINDS else None

    def is_loaded(self, name: str) -> bool:
        """Return whether a local server runs the model and states its context window."""
        found = self.find(name)
        return found is not None and found.loaded and found.row.context_window is not None


class ModelsUnknown(Struct, frozen=True):
    """The provider could not be asked, or did not answer."""

    reason: str
    status: int | None = None
    """HTTP status of the provider's response; None if there was none."""
    unreachable: bool = False
    """Whether there was no response."""


ONE_MODEL_KINDS: Final[frozenset[ServerKind]] = frozenset({"any", "llamacpp", "vllm"})
"""Kinds of servers that may be started for one model, and then accept any name."""

Entries = Sequence[Mapping[str, Json]]


def entries_of(answer: Mapping[str, Json]) -> Entries | None:
    """Return the entries of an answer; None if it has no list."""
    listed = answer.get("data") if isinstance(answer.get("data"), list) else answer.get("models")
    return [mapping(each) for each in listed[:MOST_MODELS]] if isinstance(listed, list) else None


def kind_of(entries: Entries, headers: Mapping[str, str], kind: ModelList) -> ModelList:
    """Return the kind of server, derived from its list and headers if its row does not name it."""
    if "x-litellm-version" in headers:
        return "litellm"
    owners = {each.get("owned_by") for each in entries}
    if "library" in owners:
        return "ollama"
    if "llamacpp" in owners:
        return "llamacpp"
    if owners & {"vllm", "sglang"}:
        return "vllm"
    return kind


def read_plain(entries: Entries) -> tuple[ServedModel, ...]:
    """Read a list in OpenAI's form, with any of the fields that servers add to it."""
    return _unique(map(_plain, entries))


def _plain(entry: Mapping[str, Json]) -> ServedModel | None:
    name = text_of(entry.get("id")) or text_of(entry.get("slug")) or text_of(entry.get("name"))
    window = _first(
        entry.get("context_length"),
        entry.get("context_window"),
        entry.get("max_model_len"),
        mapping(entry.get("meta")).get("n_ctx"),
        entry.get("max_context_length"),
    )
    return _served(name, ModelRow(slug="", context_window=window))


def read_openrouter(entries: Entries) -> tuple[ServedModel, ...]:
    """Read OpenRouter's list. A model that does not support tools is hidden."""

    def read(entry: Mapping[str, Json]) -> ServedModel | None:
        parameters = entry.get("supported_parameters")
        tools = "tools" in parameters if isinstance(parameters, list) else None
        row = ModelRow(
            slug="",
            display_name=text_of(entry.get("name")),
            visibility="hide" if tools is False else None,
            context_window=_size(entry.get("context_length")),
            max_output_tokens=_size(mapping(entry.get("top_provider")).get("max_completion_tokens")),
            input_modalities=_modalities(mapping(entry.get("architecture")).get("input_modalities")),
        )
        return _served(text_of(entry.get("id")), row, tools=tools)

    return _unique(map(read, entries))


def read_anthropic(entries: Entries) -> tuple[ServedModel, ...]:
    """Read Anthropic's list."""

    def read(entry: Mapping[str, Json]) -> ServedModel | None:
        row = ModelRow(
            slug="",
            display_name=text_of(entry.get("display_name")),
            context_window=_size(entry.get("max_input_tokens")),
            max_output_tokens=_size(entry.get("max_tokens")),
            supported_reasoning_levels=_efforts(mapping(entry.get("capabilities")).get("effort")),
        )
        return _served(text_of(entry.get("id")), row)

    return _unique(map(read, entries))


def _efforts(effort: Json) -> tuple[str, ...] | None:
    """Return the efforts of a capability, which is an object of efforts with `supported` flags, or a list of
    efforts.
    """
    if isinstance(effort, list):
        return tuple(each for each in effort if isinstance(each, str)) or None
    words = [
        word for word, value in mapping(effort).items() if mapping(value).get("supported", value) is True
    ]
    return tuple(word for word in words if word != "supported") or None


def read_litellm(entries: Entries) -> tuple[ServedModel, ...]:
    """Read `/model/info` of a LiteLLM proxy."""

    def read(entry: Mapping[str, Json]) -> ServedModel | None:
        info = mapping(entry.get("model_info"))
        sees = info.get("supports_vision")
        tools = info.get("supports_function_calling")
        row = ModelRow(
            slug="",
            context_window=_size(info.get("max_input_tokens")),
            max_output_tokens=_size(info.get("max_output_tokens")),
            input_modalities=_seen(sees if isinstance(sees, bool) else None),
        )
        name = text_of(entry.get("model_name"))
        return _served(name, row, tools=tools if isinstance(tools, bool) else None)

    return _unique(map(read, entries))


def read_lmstudio(entries: Entries) -> tuple[ServedModel, ...]:
    """Read LM Studio's list, of its API v1 or v0. The context window is that of a loaded model."""
    return _unique(map(_lmstudio, entries))


def _lmstudio(entry: Mapping[str, Json]) -> ServedModel | None:
    if entry.get("type") in ("embedding", "embeddings"):
        return None
    instances = entry.get("loaded_instances")
    loaded = [mapping(each) for each in instances] if isinstance(instances, list) else []
    lengths = [mapping(each.get("config")).get("context_length") for each in loaded]
    capabilities = entry.get("capabilities")
    sees: Json
    tools: Json
    if isinstance(capabilities, list):  # the form of API v0
        sees, tools = entry.get("type") == "vlm", "tool_use" in capabilities
    else:
        sees = mapping(capabilities).get("vision") if capabilities else None
        tools = mapping(capabilities).get("trained_for_tool_use") if capabilities else None
    row = ModelRow(
        slug="",
        display_name=text_of(entry.get("display_name")),
        context_window=_first(*lengths, entry.get("loaded_context_length")),
        max_context_window=_size(entry.get("max_context_length")),
        input_modalities=_seen(sees if isinstance(sees, bool) else None),
    )
    name = text_of(entry.get("key")) or text_of(entry.get("id"))
    return _served(
        name,
        row,
        loaded=bool(loaded) or entry.get("state") == "loaded",
        tools=tools if isinstance(tools, bool) else None,
    )


def read_ollama(tags: Entries, running: Entries) -> tuple[ServedModel, ...]:
    """Read Ollama's pulled models, the newest first. The context window is that of a loaded model."""
    lengths = {_ollama_name(each): _size(each.get("context_length")) for each in running}
    newest = sorted(tags, key=lambda each: str(each.get("modified_at") or ""), reverse=True)

    def read(entry: Mapping[str, Json]) -> ServedModel | None:
        name = _ollama_name(entry)
        row = with_capabilities(
            ModelRow(slug="", context_window=lengths.get(name)), entry.get("capabilities")
        )
        return _served(name, row, loaded=name in lengths, tools=_calls_tools(entry.get("capabilities")))

    return _unique(map(read, newest))


def _ollama_name(entry: Mapping[str, Json]) -> str | None:
    return text_of(entry.get("name")) or text_of(entry.get("model"))


def with_shown(model: ServedModel, shown: Mapping[str, Json]) -> ServedModel:
    """Return an Ollama model with the facts of `/api/show`. The length of its architecture is not its context
    window.
    """
    capabilities = shown.get("capabilities")
    row = with_capabilities(model.row, capabilities)
    tools = _calls_tools(capabilities)
    if row.context_window is None:
        row = replace(row, context_window=_parameter(shown.get("parameters"), "num_ctx"))
    return replace(model, row=row, tools=model.tools if tools is None else tools)


def _parameter(parameters: Json, name: str) -> int | None:
    """Return a whole number from a model's parameters, which Ollama writes one per line."""
    for line in (text_of(parameters) or "").splitlines():
        match line.split():
            case [key, value] if key == name and value.isascii() and value.isdigit():
                return _size(int(value[:12]))
    return None


def with_capabilities(row: ModelRow, capabilities: Json) -> ModelRow:
    """Return a row with the modalities that Ollama's capabilities name."""
    if not isinstance(capabilities, list):
        return row
    return replace(row, input_modalities=_seen("vision" in capabilities))


def _calls_tools(capabilities: Json) -> bool | None:
    return "tools" in capabilities if isinstance(capabilities, list) else None


def with_props(model: ServedModel, props: Mapping[str, Json]) -> ServedModel:
    """Return a model with the facts of llama.cpp's `/props`. A context window of 0 is a router's placeholder."""
    settings = mapping(props.get("default_generation_settings"))
    modalities = mapping(props.get("modalities"))
    vision = modalities.get("vision")
    row = replace(
        model.row,
        context_window=model.row.context_window or _size(settings.get("n_ctx")),
        input_modalities=_seen(vision) if isinstance(vision, bool) else model.row.input_modalities,
    )
    return replace(model, row=row)


def read_catalogue(entries: Entries) -> tuple[ServedModel, ...]:
    """Read rows in the shape of the catalogue, which a ChatGPT login is served. A row that cannot be read is
    skipped.
    """

    def read(entry: Mapping[str, Json]) -> ServedModel | None:
        try:
            row = msgspec.convert(entry, ModelRow)
        except msgspec.ValidationError:
            return None
        return _served(row.slug, row)

    return _unique(map(read, entries))


READERS: Final[Mapping[ServerKind, Callable[[Entries], tuple[ServedModel, ...]]]] = {
    "any": read_plain,
    "openai": read_plain,
    "vllm": read_plain,
    "llamacpp": read_plain,
    "ollama": read_plain,
    "openrouter": read_openrouter,
    "anthropic": read_anthropic,
    "litellm": read_litellm,
    "lmstudio": read_lmstudio,
    "chatgpt": read_catalogue,
}
"""Readers of the list at `models` below a provider's address, by the kind of server."""


def _served(
    name: str | None, row: ModelRow, *, loaded: bool = False, tools: bool | None = None
) -> ServedModel | None:
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        return None
    return ServedModel(row=replace(row, slug=name), loaded=loaded, tools=tools)


def _unique(models: Iterable[ServedModel | None]) -> tuple[ServedModel, ...]:
    found: dict[str, ServedModel] = {}
    for each in models:
        if each is not None:
            found.setdefault(each.name, each)
    return tuple(found.values())


def _size(value: Json) -> int | None:
    """Return a number of tokens; None if the value is not one."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return whole if isinstance(whole, int) and not isinstance(whole, bool) and 0 < whole < 2**40 else None


def _first(*values: Json) -> int | None:
    return next((size for size in map(_size, values) if size is not None), None)


def _seen(pictures: bool | None) -> tuple[str, ...] | None:
    if pictures is None:
        return None
    return ("text", "image") if pictures else ("text",)


def _modalities(value: Json) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(each for each in ("text", "image") if each in value) or None
