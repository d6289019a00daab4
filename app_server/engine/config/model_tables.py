"""Settings of models: their keys, and the classes that get their values.

The keys are those of a row of the catalogue (`model_rows`). A test compares them.
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
    Setting,
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
