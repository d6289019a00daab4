"""Advice for refusals of a provider that the user can act on: where the key comes from, which models can be used
instead, what is wrong with an address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol
from urllib.parse import urlsplit

from app_server.engine.auth.credentials import Credentials
from app_server.engine.config.config_values import ProviderConfig
from app_server.engine.http.address import origin
from app_server.engine.model.endpoints import AZURE_HOSTS, Endpoint, key_source
from app_server.engine.model.model_errors import Unauthorized, UnexpectedStatus
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ModelError

NOT_FOUND = 404
AZURE_WORDS = "Resource not found"
"""Message of Azure for a path that it does not serve."""

PATHS: Final = ("chat/completions", "responses", "messages")
"""Paths of the APIs, below a provider's address."""

_NO_PATH: Final = (
    r"(?i)\b(?:file|page|route|path|url|endpoint|resource)\b.{0,40}(?:not found|unknown|not exist)"
    r"|unknown (?:request )?url|cannot post|\"(?:detail|message|error)\"\s*:\s*\"not found\""
    r"|^\W*(?:404\W+)?not found\W*$"
)
"""Pattern of the messages of servers that do not serve a path."""


class KnownProvider(Protocol):
    """Knowledge of a provider beside its configuration."""

    async def offer(self, model: str) -> str:
        """Return a sentence about the models that the provider offers instead of one that is gone; empty if they are
        not known.
        """
        ...

    async def elsewhere(self) -> str:
        """Return sentences about other providers that a user without a key could use at once; empty if there
        are none.
        """
        ...

    def saw_list(self, etag: str) -> None:
        """Handle the version of the list of models that an answer named."""
        ...


async def with_advice(
    error: ModelError, provider: ProviderConfig, model: str, target: Endpoint, known: KnownProvider | None
) -> ModelError:
    """Return the error, with advice if there is some."""
    if not isinstance(error, UnexpectedStatus) or error.status is None:
        return error
    if error.model_unknown:
        offer = "" if known is None else await known.offer(model)
        problem = user_messages.model_unknown(provider.id, model, offer)
        return UnexpectedStatus(error.status, error.body, problem, model_unknown=True)
    where, path = origin(target.url), urlsplit(target.url).path
    if error.status != NOT_FOUND or not where:
        return error
    if AZURE_WORDS in error.body and any(host in where.lower() for host in AZURE_HOSTS):
        problem = user_messages.azure_address(provider.id, f"{where}{path}")
        return UnexpectedStatus(error.status, error.body, problem)
    asked = f"{where}{path}"
    for added in PATHS:
        if path.count(added) > 1:
            problem = user_messages.address_too_long(provider.id, asked, added)
            return UnexpectedStatus(error.status, error.body, problem)
    if "/v" not in path:
        problem = user_messages.address_unknown(provider.id, asked)
        return UnexpectedStatus(error.status, error.body, problem)
    if re.search(_NO_PATH, error.body):
        return UnexpectedStatus(error.status, error.body, user_messages.other_api(provider.id, asked))
    return error


async def unauthorized(
    provider: ProviderConfig,
    env: Mapping[str, str],
    login: Credentials | None,
    known: KnownProvider | None,
    *,
    needs_login: bool,
) -> Unauthorized:
    """Return the error of refused credentials, or of a request without any. `needs_login`: the provider uses the OpenAI
    login.
    """
    source = key_source(provider, env, login)
    if source is not None:
        return Unauthorized(user_messages.key_refused(provider.id, source))
    if needs_login:
        return Unauthorized(user_messages.nobody_logged_in("" if known is None else await known.elsewhere()))
    # Clients of the conversation API compare the text of this error.
    return Unauthorized(details=user_messages.key_not_sent(provider.id))
