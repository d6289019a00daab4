"""The facts about the models of one configuration, merged from all sources: the user's `[models]` tables override the
provider's list, and the list overrides the catalogue. Also decides which models are offered, and which one is the
default. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from typing import Final

from app_server.engine.config.config_values import ANTHROPIC, OPENAI, Config, ProviderConfig, WireApi
from app_server.engine.config.model_rows import ModelRow, read_rows, row_of
from app_server.engine.config.model_tables import ModelTables
from app_server.engine.model.catalogue import PLAIN, UNKNOWN, Catalogue, bundled, bundled_catalogue
from app_server.engine.model.quirks import Lessons, Quirks, provider_row, quirks_of
from app_server.engine.model.served_models import ServedModel, ServedModels, ServerKind
from app_server_protocol.encoding import Json
from app_server_protocol.policy import DEFAULT_TIER
from app_server_protocol.values import replace

LOCAL_WINDOW: Final = 32_768
"""Context window that is assumed of a model on the user's machine, in tokens, if its server does not name one."""

SMALL_WINDOWS: Final[frozenset[ServerKind]] = frozenset({"ollama", "lmstudio", "llamacpp"})
"""Kinds of servers that load models with a small window unless told otherwise."""

USUAL_EFFORTS: Final = ("low", "medium", "high")
"""Reasoning efforts that are offered for a configured model that is otherwise unknown."""

NO_MODELS: Final = ServedModels()
"""Empty list, for a provider whose models are not known."""


def catalogue_of(tables: ModelTables) -> Catalogue:
    """Return the user's catalogue, or else the bundled one."""
    if tables.catalogue is None:
        return bundled_catalogue()
    return _users_catalogue(tables.catalogue)


@cache
def _users_catalogue(content: bytes) -> Catalogue:
    return Catalogue(read_rows(content))


def catalogue_date() -> date:
    """Return the date of the facts in the bundled catalogue."""
    return date.fromisoformat(bundled().date)


class ModelFacts:
    """The models of one configuration."""

    def __init__(
        self, config: Config, served: ServedModels | None = None, lessons: Lessons | None = None
    ) -> None:
        """`served`: the provider's list; None if it was not asked. `lessons`: facts learnt from its refusals."""
        self._config, self.served, self._lessons = config, served or NO_MODELS, lessons
        self._catalogue = catalogue_of(config.models)
        self.provider = config.provider
        self._found: dict[tuple[str, bool], ModelRow] = {}

    @property
    def quirks(self) -> Quirks:
        return quirks_of(self.provider, self._config.thread.model)

    @property
    def is_known(self) -> bool:
        """Whether the provider has said which models it serves."""
        return bool(self.served.models)

    def row(self, name: str, *, plain: bool = False) -> ModelRow:
        """Return the row of a model. `plain`: return for an unknown model the row that the conversation API
        gives it.
        """
        if (found := self._found.get((name, plain))) is None:
            found = self._found[name, plain] = self._joined(name, plain=plain)
        return found

    def _joined(self, name: str, *, plain: bool) -> ModelRow:
        row = self._catalogue.find(name) or (PLAIN if plain else UNKNOWN)
        if self.assumed_window is not None:
            # The catalogue has the model's own window. A local server runs it with a smaller one, and may truncate
            # silently.
            row = replace(row, context_window=None)
        served, own = self.served.find(name), _table_of(name, self._config.models.tables)
        if served is not None:
            row = _over(row, served.row)
        if own:
            row = _over(row, row_of(name, own))
        window = None if self._lessons is None else self._lessons.window(self.provider, name)
        return row if window is None else replace(row, context_window=window, max_context_window=window)

    def is_unknown(self, name: str) -> bool:
        """Return whether no source knows the model."""
        return self.row(name).slug == UNKNOWN.slug

    @property
    def assumed_window(self) -> int | None:
        """Context window that is assumed of models without a known one, in tokens; None if it is that of any other
        model.
        """
        return LOCAL_WINDOW if self.served.kind in SMALL_WINDOWS else None

    @property
    def is_own_server(self) -> bool:
        """Whether the server runs on the user's machine, or is not in the bundled file."""
        return self.quirks.local or provider_row(self.provider) is None

    @property
    def cuts_silently(self) -> bool:
        """Whether the provider truncates a request that exceeds the context window, and answers the rest."""
        return self.served.kind == "ollama" or self.quirks.list == "ollama"

    def is_served(self, name: str) -> bool | None:
        """Return whether the provider serves a model; None if it does not list its models."""
        if not self.is_known:
            return None
        answers = self.served.find if self.served.kind == "llamacpp" else self.served.named
        return answers(name) is not None

    def listed(self) -> list[ModelRow]:
        """Return the models that can be chosen: the default first, hidden ones last."""
        rows = {row.slug: row for row in self._offered()}
        name = self._config.thread.model
        if name and not any(name.lower() == slug.lower() for slug in rows):
            row = self.row(name)
            efforts = USUAL_EFFORTS if self.is_unknown(name) else row.supported_reasoning_levels
            own = replace(row, slug=name, visibility=None, supported_reasoning_levels=efforts)
            rows = {name: own, **rows}
        return sorted(rows.values(), key=lambda row: row.hidden)

    def _offered(self) -> Iterable[ModelRow]:
        has_table = [name for name in self._config.models.tables if "*" not in name]
        if self.provider.id == OPENAI:
            yield from self._of_catalogue()
        elif self.is_known:
            yield from (self._shown(each) for each in self.served.models)
        elif self.provider.id == ANTHROPIC:
            yield from self._of_catalogue("claude-")
        elif self._is_gateway:
            yield from self._of_catalogue()
        for name in has_table:
            own = self._config.models.tables[name].get("visibility")
            yield replace(self.row(name), slug=name, visibility=own)

    @property
    def _is_gateway(self) -> bool:
        """Whether the provider speaks the Responses API and answered with an empty list: most of these forward to
        OpenAI, and editors need more than one model to choose from.
        """
        asked = bool(self.served.asked) and (self.served.kind == "any" or self.served.kind == "openai")
        return asked and self.provider.wire_api is WireApi.RESPONSES

    def _of_catalogue(self, begins: str = "") -> Iterable[ModelRow]:
        """Yield rows of the catalogue, in order. The rows that a login is served replace them."""
        if self.served.kind == "chatgpt":
            rows = [replace(self.row(each.name), slug=each.name) for each in self.served.models]
            yield from sorted(rows, key=lambda row: row.order)
            return
        for row in sorted(self._catalogue.rows, key=lambda row: row.order):
            if row.slug.startswith("claude-") is (begins == "claude-"):
                found = self.row(row.slug)
                is_gone = self.is_served(row.slug) is False
                yield replace(found, visibility="hide") if is_gone else found

    def _shown(self, served: ServedModel) -> ModelRow:
        """Return the row of a model in the provider's list, under the name in that list."""
        row = self.row(served.name)
        name = served.row.display_name or served.name
        hidden = "hide" if served.tools is False else served.row.visibility
        texts = "" if row.slug == served.name else row.description
        return replace(row, slug=served.name, display_name=name, description=texts, visibility=hidden)

    def default(self) -> str | None:
        """Return the default model of conversations that name none; None if no rule chooses one."""
        if self._config.thread.model:
            return self._config.thread.model
        if self.provider.id in (OPENAI, ANTHROPIC):
            return next((row.slug for row in self._offered() if not row.hidden), None)
        if self.quirks.local:
            able = [each for each in self.served.models if each.tools is not False]
            loaded = [each for each in able if each.loaded]
            return next((each.name for each in (*loaded, *able)), None)
        return None

    def names(self) -> list[str]:
        """Return the models that lists show."""
        return [row.slug for row in self.listed() if not row.hidden]


def _over(row: ModelRow, said: ModelRow) -> ModelRow:
    """Return a row overridden by the values that another row has."""
    fields = {
        name: value for name in ModelRow.__struct_fields__ if (value := getattr(said, name)) is not None
    }
    del fields["slug"]
    if not fields:
        return row
    slug = said.slug if row.slug == UNKNOWN.slug else row.slug
    return replace(row, slug=slug, **fields)


def _table_of(name: str, tables: Mapping[str, Mapping[str, Json]]) -> Mapping[str, Json] | None:
    """Return the user's table for a model: the table of its name, or else of the longest prefix."""
    wanted = name.lower()
    fitting = [
        key
        for key in tables
        if key.lower() == wanted or (key.endswith("*") and wanted.startswith(key[:-1].lower()))
    ]
    return tables[max(fitting, key=lambda key: (not key.endswith("*"), len(key)))] if fitting else None


def some(names: Sequence[str], most: int = 3) -> str:
    """Return a text with the first names of a list, and the number of the others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def without_model(facts: ModelFacts, address: str) -> str:
    """Return the message of the error that the user chose no model and no rule chooses one."""
    id, names = facts.provider.id, facts.names()
    if facts.quirks.list == "ollama":
        why = f"Ollama at {address} has no model that calls tools"
        return f"{why}; pull one (`ollama pull qwen3-coder`) or set `model`."
    if facts.quirks.local:
        return f"The server of the provider `{id}` at {address} has no model; load one or set `model`."
    if names:
        return f"Set `model`: the provider `{id}` offers {some(names)} (model/list shows all)."
    return f"Set `model` to one that the provider `{id}` serves."


def wire_settled(provider: ProviderConfig) -> ProviderConfig:
    """Return the provider with the API that its row names, if the user chose none."""
    wanted = None if provider.says_wire else quirks_of(provider, "").wire
    return provider if wanted is None else replace(provider, wire_api=wanted)


def sent_tier(tier: str | None, provider: ProviderConfig, row: ModelRow) -> str | None:
    """Return the service tier of requests: the chosen tier, if the model or the provider has it. `default` is sent as
    None.
    """
    wanted = SAME_TIERS.get(tier or "", tier)
    listed = any(each.id == wanted for each in row.service_tiers or ())
    return wanted if listed or (wanted == FLEX and provider.id == OPENAI) else None


def tier_in_force(
    tier: str | None, model: str, facts: Callable[[], ModelFacts]
) -> tuple[str | None, str | None]:
    """Return the chosen service tier, None if the model lacks it; and a warning about that, None if there is none."""
    if tier in (None, DEFAULT_TIER):
        return tier, None
    known = facts()
    sent = sent_tier(tier, known.provider, known.row(model))
    return sent, None if sent else f"The model `{model}` has no service tier `{tier}`; it is not sent."


FLEX: Final = "flex"
"""Service tier that OpenAI has for every model."""

SAME_TIERS: Final = {"fast": "priority"}
"""Aliases of service tiers."""
