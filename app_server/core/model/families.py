"""The models: those that clients offer, and the properties of all of them as tables.

`KNOWN_MODELS` is offered to the user in its order, the first one is the default; other names work too. `FAMILIES` has
one row per family, matched by the prefix of a model's name: the first matching row counts, so longer prefixes precede
shorter ones. A model without a row gets `UNKNOWN`, which assumes only what a plain chat model supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache

from msgspec import Struct

from app_server_protocol.policy import ReasoningEffort, Verbosity
from app_server_protocol.structs import replace


class ShellToolKind(StrEnum):
    FUNCTION = "function"
    """Our `shell` function."""
    LOCAL_SHELL = "local_shell"
    """The provider's own tool type."""


class PatchToolKind(StrEnum):
    FREEFORM = "freeform"
    """`apply_patch` as a tool that takes plain text."""
    FUNCTION = "function"
    """`apply_patch` as a function with one string argument."""


class ModelFamily(Struct, frozen=True, kw_only=True):
    name: str
    context_window: int | None = None
    supports_reasoning_summaries: bool = False
    """Also: that the model reasons at all, and takes an effort."""
    default_effort: ReasoningEffort | None = None
    supports_parallel_tool_calls: bool = False
    supports_verbosity: bool = False
    default_verbosity: Verbosity | None = None
    shell_tool: ShellToolKind = ShellToolKind.FUNCTION
    patch_tool: PatchToolKind | None = None
    """The patch tool that is offered even if the user's settings do not ask for one."""
    knows_apply_patch: bool = True
    """Without it the base instructions have to teach the patch format."""
    extra_tools: frozenset[str] = frozenset()
    """Tools that others get only where the user asks for them."""


GPT_5_WINDOW = 272_000
O_WINDOW = 200_000

FILE_TOOLS = frozenset({"grep_files", "read_file", "list_dir"})

UNKNOWN = ModelFamily(name="unknown", knows_apply_patch=False)

_GPT_5 = ModelFamily(
    name="gpt-5",
    context_window=GPT_5_WINDOW,
    supports_reasoning_summaries=True,
    supports_verbosity=True,
    knows_apply_patch=False,
)
_CODEX = replace(
    _GPT_5,
    name="gpt-5-codex",
    supports_verbosity=False,
    knows_apply_patch=True,
    patch_tool=PatchToolKind.FREEFORM,
)
_CODEX_EXP = replace(
    _CODEX,
    name="codex-exp",
    supports_parallel_tool_calls=True,
    extra_tools=FILE_TOOLS,
    supports_verbosity=True,
)
_TEST = replace(_CODEX_EXP, name="test-gpt-5-codex", context_window=None, patch_tool=None)
_GPT_5_1 = replace(
    _CODEX,
    name="gpt-5.1",
    default_effort=ReasoningEffort.MEDIUM,
    supports_verbosity=True,
    default_verbosity=Verbosity.LOW,
)
_O_SERIES = replace(_GPT_5, name="o-series", context_window=O_WINDOW, supports_verbosity=False)
_CODEX_MINI = replace(_O_SERIES, name="codex-mini-latest", shell_tool=ShellToolKind.LOCAL_SHELL)
_GPT_4_1 = ModelFamily(name="gpt-4.1", context_window=1_047_576, knows_apply_patch=False)
_GPT_4O = replace(_GPT_4_1, name="gpt-4o", context_window=128_000)
_GPT_3_5 = replace(_GPT_4_1, name="gpt-3.5", context_window=16_385)
_GPT_OSS = ModelFamily(name="gpt-oss", context_window=96_000, patch_tool=PatchToolKind.FUNCTION)

FAMILIES: tuple[tuple[str, ModelFamily], ...] = (
    ("test-gpt-5-codex", _TEST),
    ("codex-mini-latest", _CODEX_MINI),
    ("gpt-5.1-codex", _CODEX),
    ("gpt-5-codex", _CODEX),
    ("codex-exp-", _CODEX_EXP),
    ("codex-", _CODEX),
    ("gpt-5.1", _GPT_5_1),
    ("gpt-5", _GPT_5),
    ("o3", _O_SERIES),
    ("o4-mini", _O_SERIES),
    ("gpt-4.1", _GPT_4_1),
    ("gpt-4o", _GPT_4O),
    ("gpt-3.5", _GPT_3_5),
    ("gpt-oss", _GPT_OSS),
    ("openai/gpt-oss", _GPT_OSS),
)


@cache
def find_family(slug: str) -> ModelFamily:
    """Return the family that the model of this name belongs to."""
    return next((family for start, family in FAMILIES if slug.startswith(start)), UNKNOWN)


class KnownModel(Struct, frozen=True):
    name: str
    description: str
    efforts: tuple[ReasoningEffort, ...]
    default_effort: ReasoningEffort = ReasoningEffort.MEDIUM


_MEDIUM_UP = (ReasoningEffort.MEDIUM, ReasoningEffort.HIGH)
_LOW_UP = (ReasoningEffort.LOW, *_MEDIUM_UP)

KNOWN_MODELS: tuple[KnownModel, ...] = (
    KnownModel("gpt-5.1-codex", "Made for work on code: changes, reviews, long tasks.", _LOW_UP),
    KnownModel("gpt-5.1-codex-mini", "Made for work on code; smaller, quicker and cheaper.", _MEDIUM_UP),
    KnownModel("gpt-5.1", "For all kinds of questions, with wide general knowledge.", _LOW_UP),
)

EFFORT_WORDS: Mapping[ReasoningEffort, str] = {
    ReasoningEffort.NONE: "Answers without thinking first",
    ReasoningEffort.MINIMAL: "Thinks as little as possible",
    ReasoningEffort.LOW: "Thinks briefly; quick, for plain tasks",
    ReasoningEffort.MEDIUM: "Thinks as much as the task seems to need",
    ReasoningEffort.HIGH: "Thinks for long; for hard or unclear tasks",
}
