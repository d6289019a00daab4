"""The catalogue of models: what is known of each, and how a name finds its row. Pure, but for reading the bundled file.

`models.json` has the rows, in the shape of the reference's catalogue; `rules`, which find rows for names that have
none; `providers`, the quirks of servers (`quirks`); and `too_long`, the words by which providers say that a request is
too long. A user's file and the list that a login is served are decoded by the same classes.

A name finds its row in this order, without regard to case: the row of that slug; the longest slug that the name begins
with, if it goes on with a separator; the same without what gateways put before the name; the first rule that matches;
`UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from app_server_protocol.policy import ULTRA, Verbosity
from app_server_protocol.structs import Json

_BUNDLED: Final = Path(__file__).with_name("models.json")

ASSUMED_WINDOW: Final = 272_000
"""Context window in tokens of a model of which nothing is known."""

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


class ModelRule(Struct, frozen=True, rename={"of": "as"}):
    """A pattern of names that have no row, and what holds for them."""

    match: str
    of: str | None = None
    """Slug of the row that such a model behaves as; None: the rule's own keys are all that is known."""
    keys: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """Values that are laid over the row."""


class CatalogueFile(Struct, frozen=True):
    """A decoded catalogue."""

    models: tuple[ModelRow, ...]
    version: int = 1
    date: str = ""
    """Day of its facts, `YYYY-MM-DD`."""
    follows: str = ""
    """Version of the reference whose rows these are."""
    rules: tuple[ModelRule, ...] = ()
    providers: tuple[dict[str, Json], ...] = ()
    too_long: tuple[str, ...] = ()


UNKNOWN: Final = ModelRow(slug="unknown", apply_patch_tool_type="function")
"""A model of which nothing is known: a whole agent that is sent no reasoning effort unless somebody chose one."""

PLAIN: Final = ModelRow(slug="unknown", supports_parallel_tool_calls=False, thoughts="none")
"""The same for clients of the conversation API, which codex 0.58 gives no patch tool for such a model."""


@cache
def bundled() -> CatalogueFile:
    """Return the catalogue of the package."""
    return msgspec.json.decode(_BUNDLED.read_bytes(), type=CatalogueFile)


class Catalogue:
    """Finds rows by names. Rows of a user stand before the bundled ones."""

    def __init__(
        self, rows: Sequence[ModelRow] | None = None, rules: Sequence[ModelRule] | None = None
    ) -> None:
        self.rows = bundled().models if rows is None else tuple(rows)
        self._rules = bundled().rules if rules is None else tuple(rules)
        self._by_slug = {row.slug.lower(): row for row in self.rows}
        self._found: dict[str, ModelRow | None] = {}

    def find(self, name: str) -> ModelRow | None:
        """Return the row that holds for a name; None if nothing is known of it."""
        if name not in self._found:
            self._found[name] = self._search(name.lower())
        return self._found[name]

    def listed(self) -> list[ModelRow]:
        """Return the rows that lists show, in their order."""
        return sorted((row for row in self.rows if not row.hidden), key=lambda row: row.order)

    def _search(self, name: str) -> ModelRow | None:
        bare = without_gateway(name)
        candidates = (name,) if bare == name else (name, bare)
        for each in candidates:
            if (row := self._by_slug.get(each) or self._by_prefix(each)) is not None:
                return row
        for each in candidates:
            if (row := self._by_rule(each)) is not None:
                return row
        return None

    def _by_prefix(self, name: str) -> ModelRow | None:
        """Return the row of the longest slug that the name begins with, if what follows is a version of it."""
        for end in range(len(name) - 1, 0, -1):
            if name[end] in "-:@" and (row := self._by_slug.get(name[:end])) is not None:
                return row if re.fullmatch(_VARIANT, name[end:]) else None
        return None

    def _by_rule(self, name: str) -> ModelRow | None:
        for rule in self._rules:
            if re.match(rule.match, name):
                base = self._by_slug.get(rule.of or "") or ModelRow(slug=name)
                return msgspec.structs.replace(base, **_converted(rule.keys)) if rule.keys else base
        return None


_VARIANT: Final = (
    r"(?:[-:@](?:\d+|v\d+(?:[.:]\d+)*|latest|preview|exp|free|fast|thinking|beta|online|extended|nitro|floor"
    r"|it|instruct|chat|cloud|mini|nano|\d+(?:\.\d+)?[bkm]|[aq]\d\w*|fp\d+|bf16|awq|gptq|gguf|mlx|\d{4}-\d\d-\d\d))+"
)
"""What may follow a slug in the name of the same model: dates, sizes, quantisations, variants of gateways."""

_GATEWAY: Final = r"(?:(?:us|eu|apac|global)\.)?(?:openai|anthropic|google|meta|mistral|deepseek|qwen)\."


def without_gateway(name: str) -> str:
    """Return a name without what gateways put before it. Dots in a version of Claude count as hyphens."""
    bare = name.rpartition("/")[2]
    bare = re.sub(f"^(?:{_GATEWAY})", "", bare)
    return re.sub(r"(?<=\d)\.(?=\d)", "-", bare) if bare.startswith("claude") else bare


def _converted(keys: Mapping[str, Json]) -> dict[str, object]:
    row = msgspec.convert({"slug": "rule", **keys}, ModelRow)
    return {key: getattr(row, key) for key in keys}


@cache
def bundled_catalogue() -> Catalogue:
    """Return the catalogue of the package, ready to find rows."""
    return Catalogue()


def find_model(name: str, *, plain: bool = False) -> ModelRow:
    """Return what is known of a model. `plain`: an unknown one gets what the conversation API gives it."""
    return bundled_catalogue().find(name) or (PLAIN if plain else UNKNOWN)
