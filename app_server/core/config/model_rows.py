"""The row of a model: what is known of it, in the shape of the reference's catalogue.

Rows come from the bundled catalogue (`core.model.catalogue`), from a file of the user, from the list that a login is
served, and from tables of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from app_server_protocol.policy import ULTRA, ReasoningSummary, Verbosity
from app_server_protocol.structs import Json

EFFORT_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "none": "Answers without thinking first",
    "minimal": "Thinks as little as possible",
    "low": "Thinks briefly; quick, for plain tasks",
    "medium": "Thinks as much as the task seems to need",
    "high": "Thinks for long; for hard or unclear tasks",
    "xhigh": "Thinks for very long; for the hardest tasks",
    "max": "Thinks as long as the model can",
    "ultra": "The most that the model offers, whatever it takes",
}

EFFORT_ORDER: Final = tuple(EFFORT_DESCRIPTIONS)
"""Reasoning efforts from the lowest to the highest."""


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


class EffortLevel(Struct, frozen=True):
    """A reasoning effort that a model takes."""

    effort: str
    description: str = ""


class ServiceTier(Struct, frozen=True):
    """A speed or price class that a model is served at."""

    id: str
    name: str = ""
    description: str = ""


class Upgrade(Struct, frozen=True):
    """The model that takes the place of an older one."""

    model: str


class ModelRow(Struct, frozen=True, kw_only=True, dict=True, omit_defaults=True):
    """Facts about one model. `null` and an absent key mean the same."""

    slug: str
    source: str | None = None
    """Origin and date of the row's facts."""
    display_name: str | None = None
    description: str | None = None
    visibility: str | None = None
    """`list` or `hide`; None counts as `list`."""
    priority: int | None = None
    """Place in lists, the lowest first; None counts as 99."""
    context_window: int | None = None
    """Tokens; None if nobody says."""
    max_context_window: int | None = None
    """Tokens; the most that `model_context_window` may say. None if there is no such limit."""
    effective_context_window_percent: int | None = None
    max_output_tokens: int | None = None
    auto_compact_token_limit: int | None = None
    supported_reasoning_levels: tuple[str | EffortLevel, ...] | None = None
    default_reasoning_level: str | None = None
    ultra: str | None = None
    """Effort that is sent for `ultra`; None: the highest other one."""
    default_reasoning_summary: str | None = None
    support_verbosity: bool | None = None
    default_verbosity: str | None = None
    service_tiers: tuple[ServiceTier, ...] | None = None
    default_service_tier: str | None = None
    additional_speed_tiers: tuple[str, ...] | None = None
    input_modalities: tuple[str, ...] | None = None
    supports_parallel_tool_calls: bool | None = None
    apply_patch_tool_type: str | None = None
    shell_type: str | None = None
    upgrade: Upgrade | None = None
    thoughts: str | None = None
    """How thoughts go back to the provider: `encrypted`, `text`, `signed`, `none`; None: by the wire."""
    checks_head: bool | None = None
    """Whether the provider checks what stands before the model's thoughts."""
    thinking: str | None = None
    """Of the Messages API: `always`, `adaptive`, `budget`, `none`."""
    knows_apply_patch: bool | None = None
    """Whether the model was trained on the format of patches."""
    prompt: str | None = None
    """Size of prompt and tools: `auto`, `full`, `small`, `tiny`."""
    bytes_per_token: int | None = None
    extra_tools: tuple[str, ...] | None = None
    """Tools that other models get only if the user asks for them."""

    @property
    def hidden(self) -> bool:
        return self.visibility == "hide"

    @property
    def order(self) -> int:
        return 99 if self.priority is None else self.priority

    @property
    def name(self) -> str:
        return self.display_name or self.slug

    @cached_property
    def efforts(self) -> tuple[str, ...]:
        """Reasoning efforts that the model takes; empty for a model that does not reason."""
        levels = self.supported_reasoning_levels or ()
        return tuple(each if isinstance(each, str) else each.effort for each in levels)

    @property
    def usual_effort(self) -> str:
        """The effort that clients show as the model's own; `medium` for a model of which none is known."""
        efforts, own = self.efforts, self.default_reasoning_level
        if own is not None and (own in efforts or not efforts):
            return own
        return "medium" if "medium" in efforts or not efforts else efforts[0]

    def effort_description(self, effort: str) -> str:
        """Return our description of an effort, or else the row's."""
        levels = (each for each in self.supported_reasoning_levels or () if isinstance(each, EffortLevel))
        own = next((each.description for each in levels if each.effort == effort), "")
        return EFFORT_DESCRIPTIONS.get(effort) or own

    def sent_effort(self, effort: str) -> str:
        """Return the effort that a request says for a chosen one: `ultra` is a word of clients only."""
        if effort != ULTRA:
            return effort
        return self.ultra or next((each for each in reversed(self.efforts) if each != ULTRA), "high")

    def nearest_effort(self, effort: str) -> str:
        """Return the effort that is sent for a chosen one: itself, or else the nearest lower one, or the lowest."""
        sent = self.sent_effort(effort)
        if not self.efforts or sent in self.efforts or sent not in EFFORT_ORDER:
            return sent
        known = [each for each in EFFORT_ORDER if each in self.efforts]
        lower = [each for each in known if EFFORT_ORDER.index(each) < EFFORT_ORDER.index(sent)]
        return lower[-1] if lower else known[0]

    @property
    def reasons(self) -> bool:
        return bool(self.efforts)

    @property
    def sees_images(self) -> bool:
        return self.input_modalities is None or "image" in self.input_modalities

    @property
    def parallel_tool_calls(self) -> bool:
        return self.supports_parallel_tool_calls is not False

    @property
    def usual_summary(self) -> ReasoningSummary:
        """Kind of summary of its reasoning that is asked for if the user says none."""
        known = (each for each in ReasoningSummary if each.value == self.default_reasoning_summary)
        return next(known, ReasoningSummary.AUTO)

    @property
    def verbosity(self) -> Verbosity | None:
        """Verbosity that is sent if the user says none."""
        known = [each for each in Verbosity if each.value == self.default_verbosity]
        return known[0] if known and self.support_verbosity else None

    @property
    def patch_tool(self) -> PatchToolKind | None:
        """The patch tool that is offered whatever the user's settings say; None: theirs decide."""
        match self.apply_patch_tool_type:
            case "freeform":
                return PatchToolKind.FREEFORM
            case "function":
                return PatchToolKind.FUNCTION
            case _:
                return None

    @property
    def shell_tool(self) -> ShellToolKind:
        return ShellToolKind.LOCAL_SHELL if self.shell_type == "local" else ShellToolKind.FUNCTION


class _RowsFile(Struct, frozen=True):
    """A user's catalogue."""

    models: tuple[ModelRow, ...]


@lru_cache(maxsize=4)
def read_rows(content: bytes) -> tuple[ModelRow, ...]:
    """Return the rows of a user's catalogue. Raises ValueError with the place of what is wrong."""
    try:
        return msgspec.json.decode(content, type=_RowsFile).models
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(_words(error)) from error


def row_of(name: str, values: Mapping[str, Json]) -> ModelRow:
    """Return the row that a user's table of a model is. Raises ValueError with the place of what is wrong."""
    try:
        return msgspec.convert({"slug": name, **values}, ModelRow)
    except msgspec.ValidationError as error:
        raise ValueError(_words(error)) from error


_KINDS: Final[Mapping[str, str]] = {
    "int": "an integer",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "float": "a number",
}


def _words(error: Exception) -> str:
    """Return a decoder's words with the place of the value first: `models[3].context_window: expected an integer`."""
    text, _, place = str(error).partition(" - at `$")
    place = place.removesuffix("`").removeprefix(".")
    if found := re.match(r"Expected `([^`]+)`, got", text):
        kinds = [_KINDS.get(each, each) for each in found[1].split(" | ") if each != "null"]
        text = f"expected {' or '.join(kinds)}"
    text = text[:1].lower() + text[1:].replace("`", "")
    return f"{place}: {text}" if place else text
