"""Caches the lists of models of the providers, in memory and in a file of the home for the next server, and decides
when a provider is asked again.

A caller waits for a provider no longer than the limit that it passes. Only one request at a time goes to a provider.
After a failure, the provider is not asked again for a while, and no caller gets an error.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.client_context import ActiveClient
from app_server.engine.config.config_values import Config
from app_server.engine.config.safe_file import UnreadableFileError, read_regular_file, write_file_atomically
from app_server.engine.http.address import origin
from app_server.engine.model.model_facts import ModelFacts, some, wire_settled, without_model
from app_server.engine.model.quirks import Lessons, quirks_of
from app_server.engine.model.served_models import ModelsUnknown, ServedModels
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ConfigError, CoreError
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.values import replace

log = logging.getLogger(__name__)

FILE_NAME: Final = "app_server_models.json"
FILE_LIMIT: Final = 8 * 1024 * 1024
"""Maximum size of the file that is read, in bytes."""
MOST_LISTS: Final = 50
"""Maximum number of lists in the file; the newest ones are stored."""

LASTS_SECONDS: Final = 24 * 3600.0
"""Age up to which a stored list is used, in seconds."""
FRESH_SECONDS: Final = 300.0
"""Age of a list from which `model/list` refreshes it, in seconds."""
FAILED_SECONDS: Final = 60.0
"""Time after a failed request during which the provider is not asked again, in seconds."""

LIST_SECONDS: Final = 0.3
"""Longest wait of `model/list` for a provider without a known list, in seconds."""
LOCAL_LIST_SECONDS: Final = 1.0
"""Longest wait of `model/list` for a server on the user's machine without a known list, in seconds."""
OPEN_SECONDS: Final = 0.2
"""Longest wait for the context window of a local model when a conversation opens, in seconds."""
CHOICE_SECONDS: Final = 1.0
"""Longest wait for a list that is needed to choose a model or to word an error, in seconds."""

AskProvider = Callable[[Config, ActiveClient], Awaitable[ServedModels | ModelsUnknown]]
"""Asks the provider of a configuration for its models, about the model of the configuration first."""


class _Stored(Struct, frozen=True):
    """The content of the file."""

    lists: dict[str, ServedModels]
    version: int = 1


class _Provider(Struct):
    """The list of one provider under one account, and the pending request."""

    served: ServedModels | None = None
    is_stored: bool = False
    """Whether the list comes from the file, and this server did not request it."""
    failed: float | None = None
    """Time of the last request if it failed, on the clock of this process; None if it did not fail."""
    reason: str = ""
    """Reason of the last failure."""
    answered: anyio.Event | None = None
    """Event that is set when the pending request has ended; None if no request is pending."""
    asked_after_turn: bool = False
    etag: str = ""
    """Version of the list that the last answer named and for which the list was refreshed."""


class KnownModels:
    """The lists of the providers of one server."""

    def __init__(
        self,
        home: Path,
        ask: AskProvider,
        account: Callable[[Config, ActiveClient], str],
        background: TaskGroup,
        wall_clock: Callable[[], float],
        lessons: Lessons | None = None,
    ) -> None:
        """`account`: returns the name of the login that a provider is asked with. `lessons`: facts learnt from
        refusals.
        """
        self._path, self._ask, self._account = home / FILE_NAME, ask, account
        self._background, self._wall_clock, self.lessons = background, wall_clock, lessons or Lessons()
        self.revision = 0
        """Number of the lists that were received so far."""
        self._providers: dict[str, _Provider] = {}
        self._stored: dict[str, ServedModels] | None = None

    # --- known facts
    def facts(self, config: Config, caller: ActiveClient) -> ModelFacts:
        """Return the facts that are known now about the models of a configuration. Raises ConfigError."""
        return ModelFacts(config, self._provider(config, caller).served, self.lessons)

    async def listed(self, config: Config, caller: ActiveClient) -> ModelFacts:
        """Return the facts that `model/list` shows. If none are known, wait for the provider for a moment."""
        known = self._provider(config, caller)
        local = quirks_of(config.provider, "").local
        if known.served is None:
            await self.asked(config, caller, LOCAL_LIST_SECONDS if local else LIST_SECONDS)
        elif known.is_stored or self._wall_clock() - known.served.asked > FRESH_SECONDS:
            await self.asked(config, caller, 0.0)
        return self.facts(config, caller)

    async def asked(self, config: Config, caller: ActiveClient, seconds: float) -> ModelFacts:
        """Start a refresh, wait for it for up to `seconds`, and return the facts that are known then."""
        known = self._provider(config, caller)
        if known.answered is None and not self._failed_lately(known):
            self._begin_refresh(config, caller, known)
        if known.answered is not None and seconds > 0:
            with anyio.move_on_after(seconds):
                await known.answered.wait()
        return self.facts(config, caller)

    # --- when a conversation opens, and after a turn
    async def with_model(self, config: Config, caller: ActiveClient) -> Config:
        """Return the configuration with its model and its API chosen. Raises ConfigError if no model can be chosen."""
        config = replace(config, provider=wire_settled(config.provider))
        facts = self.facts(config, caller)
        kind = facts.quirks
        if not config.thread.model and facts.default() is None:
            facts = await self.asked(config, caller, CHOICE_SECONDS)
        elif (
            kind.list in ("ollama", "lmstudio") and config.model.context_window is None and not facts.is_known
        ):
            facts = await self.asked(config, caller, OPEN_SECONDS)
        name = facts.default()
        if name is None:
            raise ConfigError(self._no_model(config, caller, facts))
        return (
            config
            if name == config.thread.model
            else replace(config, thread=replace(config.thread, model=name))
        )

    def _no_model(self, config: Config, caller: ActiveClient, facts: ModelFacts) -> str:
        address = origin(config.provider.base_url or "") or "its address"
        known = self._provider(config, caller)
        if facts.quirks.local and not facts.is_known and known.reason:
            return str(user_messages.provider_unreachable(config.provider.id, address, known.reason))
        return without_model(facts, address)

    def turn_ended(self, config: Config, caller: ActiveClient) -> None:
        """Refresh the list after the provider's first turn: no caller waits, and a local server has the model
        loaded.
        """
        known = self._provider(config, caller)
        if not known.asked_after_turn and known.answered is None:
            known.asked_after_turn = True
            known.failed = None
            self._begin_refresh(config, caller, known)

    def learn_window(self, config: Config, model: str, tokens: int, *, is_guess: bool = False) -> None:
        """Store the context window that a provider has turned out to have, or may have, in tokens."""
        log.info("the provider %s reads %d tokens of a request to %s", config.provider.id, tokens, model)
        self.lessons.learn_window(config.provider, model, tokens, is_guess=is_guess)

    def window_is_guess(self, config: Config, model: str) -> bool:
        return self.lessons.window_is_guess(config.provider, model)

    def forget_guess(self, config: Config, model: str) -> None:
        """Forget a guessed context window, after a larger request was answered."""
        self.lessons.forget_guess(config.provider, model)

    def saw_list(self, config: Config, caller: ActiveClient, etag: str) -> None:
        """Refresh the list if an answer names another version of it than the known one."""
        known = self._provider(config, caller)
        if known.served is None or not known.served.etag or etag in (known.served.etag, known.etag):
            return
        if known.answered is None and not self._failed_lately(known):
            known.etag = etag
            self._begin_refresh(config, caller, known)

    async def offer(self, config: Config, caller: ActiveClient, model: str) -> str:
        """Return a sentence for a user whose model is gone: the models that the provider offers, or a successor. Empty
        if neither is known.
        """
        facts = await self.asked(config, caller, CHOICE_SECONDS)
        names = [name for name in facts.names() if name != model]
        if facts.is_known and names:
            return f"It offers {some(names)} (model/list). Set `model`."
        upgrade = facts.row(model).upgrade
        return "" if upgrade is None else f"Its successor is `{upgrade.model}`. Set `model`."

    # --- asking
    def _failed_lately(self, known: _Provider) -> bool:
        return known.failed is not None and anyio.current_time() - known.failed < FAILED_SECONDS

    def _begin_refresh(self, config: Config, caller: ActiveClient, known: _Provider) -> None:
        """Send the request in the background. No other request to the provider may be pending."""
        known.answered = anyio.Event()
        self._background.start_soon(self._refresh, config, caller, known, name="models of a provider")

    async def _refresh(self, config: Config, caller: ActiveClient, known: _Provider) -> None:
        answered = known.answered
        try:
            answer = await self._ask(config, caller)
            if isinstance(answer, ServedModels):
                known.served = replace(answer, asked=self._wall_clock())
                known.is_stored, known.failed, known.reason = False, None, ""
                self.revision += 1
                self.lessons.forget_windows(config.provider, answer.is_loaded)
        except CoreError as error:
            answer = ModelsUnknown(str(error))
        except Exception:  # a failed refresh costs this list, and must not end the server
            log.exception("asking the provider %s for its models", config.provider.id)
            answer = ModelsUnknown("the question failed")
        if isinstance(answer, ModelsUnknown):
            known.failed, known.reason = anyio.current_time(), answer.reason
            log.info("the provider %s does not list its models: %s", config.provider.id, answer.reason)
        known.answered = None
        if answered is not None:
            answered.set()
        if known.served is not None and known.failed is None:
            await run_in_thread(self._store, self._key(config, caller), known.served)

    def _provider(self, config: Config, caller: ActiveClient) -> _Provider:
        key = self._key(config, caller)
        if key not in self._providers:
            stored = self._read().get(key)
            is_young = stored is not None and 0 <= self._wall_clock() - stored.asked < LASTS_SECONDS
            usable = is_young and not quirks_of(config.provider, "").local
            self._providers[key] = _Provider(stored if usable else None, is_stored=usable)
        return self._providers[key]

    def _key(self, config: Config, caller: ActiveClient) -> str:
        provider = config.provider
        account = self._account(config, caller) if provider.requires_openai_auth else ""
        # The address may contain a secret, which must not get into the file.
        address = hashlib.sha256((provider.base_url or "").encode()).hexdigest()[:12]
        return f"{provider.id} {address} {account}".strip()

    # --- the file
    def _read(self) -> dict[str, ServedModels]:
        """Return the lists of the file; none if it cannot be read."""
        if self._stored is None:
            self._stored = {}
            try:
                content = read_regular_file(self._path, FILE_LIMIT, private=True)
                if content is not None:
                    self._stored = msgspec.json.decode(content, type=_Stored).lists
            except (UnreadableFileError, msgspec.DecodeError, UnicodeDecodeError) as error:
                log.info("%s is not used: %s", self._path, error)
        return self._stored

    def _store(self, key: str, served: ServedModels) -> None:
        lists = {**self._read(), key: _without_texts(served)}
        newest = sorted(lists.items(), key=lambda each: each[1].asked)[-MOST_LISTS:]
        self._stored = dict(newest)
        try:
            write_file_atomically(self._path, msgspec.json.encode(_Stored(self._stored)), 0o600)
        except OSError as error:
            log.info("%s is not written: %s", self._path, error)


def _without_texts(served: ServedModels) -> ServedModels:
    models = tuple(replace(each, row=replace(each.row, description=None)) for each in served.models)
    return replace(served, models=models)
