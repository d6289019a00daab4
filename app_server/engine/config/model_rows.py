"""The row of a model: facts about it, in the form of the reference's catalogue.

Rows come from four sources: the bundled catalogue (`engine.model.catalogue`), a user's file, the list of models that a
login gets from its provider, and tables of the settings.
"""

# Annotations are no texts in this module: msgspec would compile each of them at the start of a server.
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from app_server_protocol.encoding import Json
from app_server_protocol.policy import ULTRA, ReasoningSummary, Verbosity

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
    """The `shell` function of this server."""
    LOCAL_SHELL = "local_shell"
    """The tool type of the provider's own shell."""


class PatchToolKind(StrEnum):
    FREEFORM = "freeform"
    """`apply_patch` as a tool that takes plain text."""
    FUNCTION = "function"
    """`apply_patch` as a function with one string argument."""


class EffortLevel(Struct, frozen=True):
    """A reasoning effort that a model supports."""

    effort: str
    description: str = ""


class ServiceTier(Struct, frozen=True):
    """A speed or price class that a model is served at."""

    id: str
    name: str = ""
    description: str = ""


class Upgrade(Struct, frozen=True):
    """The successor of an older model."""

    model: str


class ModelRow(Struct, frozen=True, kw_only=True, dict=True, omit_defaults=True):
    """Facts about one model. `null` and an absent key mean the same."""

    slug: str
    source: str | None = None
    """Origin and date of the row's facts."""
    display_name: str | None = None
    description: str | None = None
    visibility: str | None = None
    """Visibility in lists: `list` or `hide`; None counts as `list`."""
    priority: int | None = None
    """Position in lists, the lowest first; None counts as 99."""
    context_window: int | None = None
    """Context window in tokens; None if it is not known."""
    max_context_window: int | None = None
    """Maximum value of the setting `model_context_window`, in tokens; None if there is no such limit."""
    effective_context_window_percent: int | None = None
    max_output_tokens: int | None = None
    auto_compact_token_limit: int | None = None
    supported_reasoning_levels: tuple[str | EffortLevel, ...] | None = None
    default_reasoning_level: str | None = None
    ultra: str | None = None
    """Effort that is sent for `ultra`; None for the highest other effort."""
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
    """Form in which reasoning is sent back to the provider: `encrypted`, `text`, `signed`, `none`; None if the wire API
    decides.
    """
    checks_head: bool | None = None
    """Whether the provider checks the items before the model's reasoning."""
    thinking: str | None = None
    """Form of reasoning in the Messages API: `always`, `adaptive`, `budget`, `none`."""
    knows_apply_patch: bool | None = None
    """Whether the model was trained on the format of patches."""
    prompt: str | None = None
    """Size of prompt and tools: `auto`, `full`, `small`, `tiny`."""
    bytes_per_token: int | None = None
    extra_tools: tuple[str, ...] | None = None
    """Tools that other models get only if the user requests them."""

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
        """Reasoning efforts that the model supports; empty if it does not reason."""
        levels = self.supported_reasoning_levels or ()
        return tuple(each if isinstance(each, str) else each.effort for each in levels)

    @property
    def usual_effort(self) -> str:
        """The effort that clients show as the model's default; `medium` if no effort of the model is known."""
        efforts, own = self.efforts, self.default_reasoning_level
        if own is not None and (own in efforts or not efforts):
            return own
        return "medium" if "medium" in efforts or not efforts else efforts[0]

    def effort_description(self, effort: str) -> str:
        """Return our description of an effort; else the row's."""
        levels = (each for each in self.supported_reasoning_levels or () if isinstance(each, EffortLevel))
        own = next((each.description for each in levels if each.effort == effort), "")
        return EFFORT_DESCRIPTIONS.get(effort) or own

    def sent_effort(self, effort: str) -> str:
        """Return the effort that a request sends for a chosen one. Only clients use the value `ultra`; no provider
        knows it.
        """
        if effort != ULTRA:
            return effort
        return self.ultra or next((each for each in reversed(self.efforts) if each != ULTRA), "high")

    def nearest_effort(self, effort: str) -> str:
        """Return the effort that is sent for a chosen one: the same if the model supports it, else the nearest lower
        one, or the lowest.
        """
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
        """The kind of reasoning summary that is requested if the user sets none."""
        known = (each for each in ReasoningSummary if each.value == self.default_reasoning_summary)
        return next(known, ReasoningSummary.AUTO)

    @property
    def verbosity(self) -> Verbosity | None:
        """The verbosity that is sent if the user sets none; None if none is sent."""
        known = [each for each in Verbosity if each.value == self.default_verbosity]
        return known[0] if known and self.support_verbosity else None

    @property
    def patch_tool(self) -> PatchToolKind | None:
        """The patch tool that is offered regardless of the user's settings; None if the settings decide."""
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
    """A user's catalogue file."""

    models: tuple[ModelRow, ...]


@lru_cache(maxsize=4)
def read_rows(content: bytes) -> tuple[ModelRow, ...]:
    """Return the rows of a user's catalogue. Raises ValueError with the position of the error."""
    try:
        return msgspec.json.decode(content, type=_RowsFile).models
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(_words(error)) from error


def row_of(name: str, values: Mapping[str, Json]) -> ModelRow:
    """Return the row for a user's table about a model. Raises ValueError with the position of the error."""
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
    """Return a decoder's message with the position of the value first: `models[3].context_window: expected an
    integer`.
    """
    text, _, place = str(error).partition(" - at `$")
    place = place.removesuffix("`").removeprefix(".")
    if found := re.match(r"Expected `([^`]+)`, got", text):
        kinds = [_KINDS.get(each, each) for each in found[1].split(" | ") if each != "null"]
        text = f"expected {' or '.join(kinds)}"
    text = text[:1].lower() + text[1:].replace("`", "")
    return f"{place}: {text}" if place else text
