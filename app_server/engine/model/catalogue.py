"""The catalogue of models: the facts about each model, and how a name finds its row. Pure, but for reading the bundled
file.

`models.json` holds four things: the rows, in the shape of the reference's catalogue; `rules`, which find rows for names
that have none; `providers`, the quirks of servers (`quirks`); and `too_long`, the messages by which providers say that
a request is too long. A user's file and the list that a login is served are decoded by the same classes.

A name finds its row in this order, without regard to case:

1. the row of that slug;
2. the longest slug that the name begins with, if the name goes on with a separator;
3. the same, without the prefix that gateways put before the name;
4. the first rule whose beginning and pattern match;
5. `UNKNOWN`.
"""

# Annotations are no texts in this module: msgspec would compile each of them at the start of a server.
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.config.model_rows import ModelRow
from app_server_protocol.encoding import Json

_BUNDLED: Final = Path(__file__).with_name("models.json")

ASSUMED_WINDOW: Final = 272_000
"""Context window that is assumed of an unknown model, in tokens."""


class ModelRule(Struct, frozen=True, rename={"of": "as"}):
    """The names that have no row and begin in the same way, and the facts about the models of these names."""

    begins: tuple[str, ...] = ("",)
    """Beginnings of such names."""
    match: str | None = None
    """Pattern that such a name has to match, too; None if its beginning is enough. Most rules have none: to compile
    patterns for all models takes longer than all else that is done to find a row.
    """
    of: str | None = None
    """Slug of the row that such a model behaves as; None if the rule's own keys are all that is known."""
    keys: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """Values that are laid over the row."""


class CatalogueFile(Struct, frozen=True):
    """A decoded catalogue."""

    models: tuple[ModelRow, ...]
    version: int = 1
    date: str = ""
    """Date of the facts, `YYYY-MM-DD`."""
    follows: str = ""
    """Version of the reference whose rows these are."""
    rules: tuple[ModelRule, ...] = ()
    providers: tuple[dict[str, Json], ...] = ()
    too_long: tuple[str, ...] = ()


UNKNOWN: Final = ModelRow(slug="unknown", apply_patch_tool_type="function")
"""Row of an unknown model: a whole agent. No reasoning effort is sent to it unless the user chose one."""

PLAIN: Final = ModelRow(slug="unknown", supports_parallel_tool_calls=False, thoughts="none")
"""Row of an unknown model for clients of the conversation API: codex 0.58 gives such a model no patch tool."""


@cache
def bundled() -> CatalogueFile:
    """Return the catalogue of the package."""
    return msgspec.json.decode(_BUNDLED.read_bytes(), type=CatalogueFile)


class Catalogue:
    """Finds rows by names. A user's rows take precedence over the bundled ones."""

    def __init__(
        self, rows: Sequence[ModelRow] | None = None, rules: Sequence[ModelRule] | None = None
    ) -> None:
        self.rows = bundled().models if rows is None else tuple(rows)
        self._rules = bundled().rules if rules is None else tuple(rules)
        self._by_slug = {row.slug.lower(): row for row in self.rows}
        self._found: dict[str, ModelRow | None] = {}

    def find(self, name: str) -> ModelRow | None:
        """Return the row for a name; None if the model is unknown."""
        if name not in self._found:
            self._found[name] = self._search(name.lower())
        return self._found[name]

    def listed(self) -> list[ModelRow]:
        """Return the rows that lists show, in list order."""
        return sorted((row for row in self.rows if not row.hidden), key=lambda row: row.order)

    def _search(self, name: str) -> ModelRow | None:
        bare = without_gateway(name)
        candidates = (name,) if bare == name else (name, bare)
        for each in candidates:
            if (row := self._by_slug.get(each) or self._by_prefix(each)) is not None:
                return row
        # The name without its maker is tried first: a rule for all of a maker's models would match the maker's prefix.
        for each in reversed(candidates):
            if (row := self._by_rule(each)) is not None:
                return row
        return None

    def _by_prefix(self, name: str) -> ModelRow | None:
        """Return the row of the longest slug that the name begins with, if the rest of the name is a version."""
        for end in range(len(name) - 1, 0, -1):
            if name[end] in "-:@" and (row := self._by_slug.get(name[:end])) is not None:
                return row if re.fullmatch(_VARIANT, name[end:]) else None
        return None

    def _by_rule(self, name: str) -> ModelRow | None:
        for rule in self._rules:
            if name.startswith(rule.begins) and (rule.match is None or re.match(rule.match, name)):
                base = self._by_slug.get(rule.of or "") or ModelRow(slug=name)
                return msgspec.structs.replace(base, **_converted(rule.keys)) if rule.keys else base
        return None


_VARIANT: Final = (
    r"(?:[-:@](?:\d+|v\d+(?:[.:]\d+)*|latest|preview|exp|free|fast|thinking|beta|online|extended|nitro|floor"
    r"|it|instruct|chat|cloud|mini|nano|\d+(?:\.\d+)?[bkm]|[aq]\d\w*|fp\d+|bf16|awq|gptq|gguf|mlx|\d{4}-\d\d-\d\d))+"
)
"""Pattern of the text that may follow a slug in the name of the same model: dates, sizes, quantisations, variants of
gateways.
"""

_REGIONS: Final = frozenset(("us", "eu", "apac", "global"))
_MAKERS: Final = frozenset(("openai", "anthropic", "google", "meta", "mistral", "deepseek", "qwen"))


def without_gateway(name: str) -> str:
    """Return a name without the prefixes of gateways. Dots in a version of Claude count as hyphens."""
    bare = name.rpartition("/")[2]
    first, _, rest = bare.partition(".")
    if first in _REGIONS:
        first, _, rest = rest.partition(".")
    if first in _MAKERS and rest:
        bare = rest
    return re.sub(r"(?<=\d)\.(?=\d)", "-", bare) if bare.startswith("claude") else bare


def _converted(keys: Mapping[str, Json]) -> dict[str, object]:
    row = msgspec.convert({"slug": "rule", **keys}, ModelRow)
    return {key: getattr(row, key) for key in keys}


@cache
def bundled_catalogue() -> Catalogue:
    """Return the catalogue of the package, ready to find rows."""
    return Catalogue()


def is_other_model(asked: str, answered: str) -> bool:
    """Return whether the model that answered differs from the one that was asked for, and is not a version of it."""
    if asked.lower() == answered.lower():
        return False
    rows = [bundled_catalogue().find(name) for name in (asked, answered)]
    return None in rows or rows[0] != rows[1]


def find_model(name: str, *, plain: bool = False) -> ModelRow:
    """Return the row of a model. `plain`: return for an unknown model the row that the conversation API gives it."""
    return bundled_catalogue().find(name) or (PLAIN if plain else UNKNOWN)
