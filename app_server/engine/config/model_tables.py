"""Settings of models, and of the quirks of their providers: their keys, and the classes that get their values.

The keys are those of a row of the catalogue (`model_rows`) and of `engine.model.quirks`. A test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import Struct

from app_server.engine.config.setting_types import (
    ANYTHING,
    FLAG,
    TEXT,
    TEXTS,
    Kind,
    Setting,
    WrongValue,
    integer,
    one_of,
)
from app_server_protocol.encoding import Json
from app_server_protocol.policy import Verbosity


class ModelSettings(Struct, frozen=True, kw_only=True):
    """Settings of requests to the model that do not change with the turns. The turn loop reads them."""

    review_model: str | None = None
    """Model of reviews; None for the model of the conversation."""
    context_window: int | None = None
    max_output_tokens: int | None = None
    prompt: str | None = None
    """Size of the prompt and the tools: `full`, `small`, `tiny`. With `auto` or None, it depends on the context
    window.
    """
    output_tokens: int | None = None
    """Maximum size of one output of a tool, in tokens; None if it depends on the context window."""
    auto_compact_token_limit: int | None = None
    verbosity: Verbosity | None = None
    supports_reasoning_summaries: bool | None = None
    show_raw_reasoning: bool = False
    plan_effort: str | None = None
    """Reasoning effort of turns in plan mode; None for that of other turns."""


class ModelTables(Struct, frozen=True, kw_only=True):
    """Settings about models, which override the catalogue and the providers."""

    tables: Mapping[str, Mapping[str, Json]] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """Tables of `[models]`, by names, which may end in `*`."""
    catalogue: bytes | None = None
    """Content of a valid file whose rows replace those of the package; None if there is no such file."""


MODEL_KEYS: Mapping[str, Setting] = {
    "display_name": Setting(TEXT, "the name in lists", None),
    "description": Setting(TEXT, "the text in lists", None),
    "visibility": Setting(one_of(("list", "hide")), "whether lists show it", None),
    "context_window": Setting(integer(1), "tokens", None),
    "max_context_window": Setting(
        integer(1), "tokens; the most that `model_context_window` may say of it", None
    ),
    "max_output_tokens": Setting(integer(1), "the most tokens of one answer", None),
    "auto_compact_token_limit": Setting(integer(1), "tokens at which its history is compacted", None),
    "supported_reasoning_levels": Setting(
        TEXTS, "the efforts that it takes; empty: it does not reason", None
    ),
    "default_reasoning_level": Setting(TEXT, "its effort where nobody chose one", None),
    "ultra": Setting(TEXT, "the effort that is sent for `ultra`", None),
    "default_reasoning_summary": Setting(TEXT, "how much of its reasoning it sums up", None),
    "support_verbosity": Setting(FLAG, "whether it takes `model_verbosity`", None),
    "default_verbosity": Setting(TEXT, "its verbosity where nobody chose one", None),
    "service_tiers": Setting(ANYTHING, "list of tables with `id`, `name`, `description`", None),
    "input_modalities": Setting(TEXTS, "`text`, and `image` if it sees pictures", None),
    "supports_parallel_tool_calls": Setting(FLAG, "whether it makes several calls at once", None),
    "apply_patch_tool_type": Setting(
        one_of(("freeform", "function", "none")), "how it is offered `apply_patch`", None
    ),
    "shell_type": Setting(TEXT, "`default`, or `local` for the provider's own shell tool", None),
    "thoughts": Setting(
        one_of(("encrypted", "text", "signed", "none")), "how its thoughts go back to the provider", None
    ),
    "checks_head": Setting(FLAG, "whether the provider checks what stands before its thoughts", None),
    "thinking": Setting(one_of(("always", "adaptive", "budget", "none")), "of the Messages API", None),
    "knows_apply_patch": Setting(FLAG, "whether it knows the format of patches from training", None),
    "prompt": Setting(one_of(("auto", "full", "small", "tiny")), "the size of prompt and tools", None),
    "bytes_per_token": Setting(integer(1), "for estimates", None),
}
"""Keys of a row of the catalogue that users may set."""


def _flag_or_pattern(value: Json) -> Json:
    if not isinstance(value, bool | str):
        raise WrongValue("must be true, false or a pattern of model names")
    return value


FLAG_OR_PATTERN = Kind(
    "boolean, or a pattern of model names", {"type": ["boolean", "string"]}, _flag_or_pattern
)


def _quirks(kind: Kind, names: str) -> dict[str, Setting]:
    return {name: Setting(kind, QUIRK_DOCS.get(name, ""), None) for name in names.split()}


QUIRK_DOCS: Mapping[str, str] = {
    "optional": "fields of a request that may be left out if the provider refuses them",
    "omit": "fields of a request that are never sent",
    "wire": "the API; `wire` of the provider counts first",
    "list": "how the provider is asked for its models: `any` `openai` `anthropic` `ollama` `lmstudio` `openrouter`",
    "local": "the server runs on the user's machine",
    "role": "role of developer messages over the Responses API: `developer` or `system`",
    "after_tool": "`assistant`: a message stands between a tool's output and the user's next words",
    "tool_ids": "form of call ids: `plain`, `nine` letters and digits, `forty` characters at most",
    "null_content": "a message with calls may have `content: null`",
    "tool_pictures": "where images of tools go: a message of the `user`, or a `part` of the output",
    "single_calls": "calls of one answer are written one by one over Chat Completions",
    "text_parts": "a message may have parts",
    "thoughts_field": "the name under which thoughts go back over Chat Completions",
    "thoughts_back": "when thoughts go back: `always` `turn` `never`",
    "empty_thoughts": "an assistant message without thoughts gets empty ones",
    "content_thoughts": "thoughts without encrypted content go back as text over the Responses API",
    "effort": "how a reasoning effort is said: `reasoning_effort` `openrouter` `deepseek` `zai` `qwen` `together`"
    " `template` `none`",
    "schema": "form of tools' JSON Schemas: `full` `plain` `gemini`",
    "arguments": "`object`: arguments of calls that go back are always a JSON object",
    "max_tokens": "the name of the limit of an answer over Chat Completions",
    "cache_control": "marks of Claude's prompt cache are sent over Chat Completions",
    "cache_key": "`prompt_cache_key` and `store` are sent over Chat Completions",
    "session_header": "the header that carries the conversation's id",
    "text_calls": "calls that are printed as text are read as calls",
    "think_tags": "thoughts stand in `<think>` tags: `none` `closed` `open`",
    "custom_tools": "the Responses API takes tools of free text",
    "web_search": "the provider searches the web by itself",
    "store_items": "the provider keeps the items of a conversation and wants their ids back",
    "responses_only": "models call tools over the Responses API only",
    "blank_overflow": "a status 400 without a body says that the conversation is too long",
    "reasoning_context": "the value of `reasoning.context` that the provider demands",
}

QUIRKS: Mapping[str, Setting] = {
    **_quirks(TEXTS, "optional omit"),
    **_quirks(
        FLAG_OR_PATTERN,
        "local null_content single_calls text_parts empty_thoughts content_thoughts cache_control cache_key"
        " text_calls custom_tools web_search store_items responses_only blank_overflow",
    ),
    **_quirks(
        TEXT,
        "wire list role after_tool tool_ids tool_pictures thoughts_field thoughts_back effort schema arguments"
        " max_tokens session_header think_tags reasoning_context",
    ),
}
"""Settings for the fields of `engine.model.quirks.Quirks`."""


SIZES: Mapping[str, Setting] = {
    "model_prompt": Setting(
        one_of(["auto", "full", "small", "tiny"]),
        "size of the prompt and the tools; `auto`: `full` in a window of 24,000 tokens, `small` from 8,000, `tiny`"
        " below",
        "prompt",
    ),
    "tool_output_token_limit": Setting(
        integer(1),
        "tokens of one output of a tool that the model gets; unset: 10 KiB and 256 lines, an eighth of the window"
        " in one below 24,000",
        "output_tokens",
    ),
}
"""Settings for the size of requests, whose defaults depend on the model's context window."""
