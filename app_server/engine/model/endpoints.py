"""Derives the URL and the headers of a request from a provider's configuration. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from app_server.engine.auth.credentials import AuthMethod, Credentials
from app_server.engine.client_context import ClientIdentity
from app_server.engine.config.config_values import ProviderConfig, WireApi
from app_server.engine.model.model_errors import missing_variable
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ModelError
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.values import Redacted

OPENAI_URL = "https://api.openai.com/v1"
CHATGPT_URL = "https://chatgpt.com/backend-api/codex"
AZURE_HOSTS = ("openai.azure.", "cognitiveservices.azure.", "aoai.azure.", "azure-api.", "azurefd.")

ANTHROPIC_VERSION = "2023-06-01"
"""Version of the Messages API that requests name."""

AMAZON = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
VERTEX = "aiplatform.googleapis.com"
SIGNED_ONLY = (
    "Amazon Bedrock and Vertex AI need signed requests, which are not spoken here; use a gateway such as"
    " LiteLLM."
)

log = logging.getLogger(__name__)


class CredentialSource(Protocol):
    """The login of the server's user; both methods may raise AuthError."""

    async def credentials(self) -> Credentials | None: ...

    async def refresh(self, refused: Credentials | None = None) -> Credentials | None:
        """Return credentials that differ from the refused ones; None if there are none."""
        ...


class Endpoint(Redacted, frozen=True):
    """The URL and the headers of a request. Both may contain secrets."""

    HIDDEN = ("url", "headers", "secret")

    url: str
    headers: Mapping[str, str]
    """Headers, with names in lower case."""
    secret: str | None = None
    """The credential, which is redacted if a response quotes it; None if none is sent."""


def endpoint(
    provider: ProviderConfig,
    path: str,
    *,
    env: Mapping[str, str],
    identity: ClientIdentity,
    login: Credentials | None,
) -> Endpoint:
    """Return the endpoint. `login` is used if the provider has no key of its own. Raises ModelError."""
    headers = {"originator": identity.originator, "user-agent": identity.user_agent}
    if provider.wire_api is WireApi.MESSAGES:
        headers["anthropic-version"] = ANTHROPIC_VERSION
    headers |= {name.lower(): value for name, value in provider.http_headers.items()}
    for name, variable in provider.env_http_headers.items():
        value = env.get(variable, "").strip()
        if value:
            headers[name.lower()] = value
    key = own_key(provider, env, login)
    secret = (key or (login.bearer if login else "") or "").strip() or None
    if secret is not None:
        carried = _carried(secret, key_source(provider, env, login))
        if _sends_api_key(provider):
            headers["x-api-key"] = carried
        else:
            headers["authorization"] = f"Bearer {carried}"
    if key is None and login is not None and login.method is AuthMethod.CHATGPT and login.account_id:
        headers["chatgpt-account-id"] = login.account_id
    chatgpt = key is None and login is not None and login.method is AuthMethod.CHATGPT
    return Endpoint(_url(provider, path, chatgpt=chatgpt), _sendable(headers), secret)


def own_key(provider: ProviderConfig, env: Mapping[str, str], login: Credentials | None) -> str | None:
    """Return the provider's own key: the configured one, or else the one in its variable. None if it has none."""
    if provider.experimental_bearer_token:
        return provider.experimental_bearer_token.strip()
    if provider.env_key is None:
        return None
    key = env.get(provider.env_key, "").strip()
    if not key and login is None:
        raise missing_variable(provider.env_key, provider.env_key_instructions)
    return key or None


def key_source(provider: ProviderConfig, env: Mapping[str, str], login: Credentials | None) -> str | None:
    """Describe for the user where the credential of a request comes from: `in SOME_VARIABLE`. None if none is sent."""
    if provider.experimental_bearer_token:
        return "in `experimental_bearer_token`"
    if provider.env_key is not None and env.get(provider.env_key, "").strip():
        return f"in {provider.env_key}"
    if login is not None:
        return "of the ChatGPT login" if login.method is AuthMethod.CHATGPT else "of the login"
    own = any(env.get(variable, "").strip() for variable in provider.env_http_headers.values())
    if not provider.requires_openai_auth and (provider.http_headers or own):
        return "in its configured headers"
    return None


def is_azure(provider: ProviderConfig) -> bool:
    """Return whether the provider is Azure's Responses API, which stores conversations and wants the ids of its items
    back.
    """
    if provider.wire_api is not WireApi.RESPONSES:
        return False
    url = (provider.base_url or "").lower()
    return provider.name.lower() == "azure" or any(host in url for host in AZURE_HOSTS)


def _url(provider: ProviderConfig, path: str, *, chatgpt: bool) -> str:
    base = provider.base_url
    if base is None:
        if not provider.requires_openai_auth:
            raise ModelError(str(user_messages.no_base_url(provider.id)))
        base = CHATGPT_URL if chatgpt else OPENAI_URL
    if provider.wire_api is WireApi.MESSAGES and _wants_signature(base):
        raise ModelError(SIGNED_ONLY, ErrorClass.BAD_REQUEST)
    query = urlencode(dict(provider.query_params))
    return f"{base.rstrip('/')}/{path}" + (f"?{query}" if query else "")


def _wants_signature(url: str) -> bool:
    """Return whether the host belongs to a cloud that accepts signed requests only."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return (host.startswith("bedrock") and host.endswith(AMAZON)) or host.endswith(VERTEX)


def _sends_api_key(provider: ProviderConfig) -> bool:
    """Return whether the key is sent in the header `x-api-key`, which the Messages API uses."""
    if provider.auth is None:
        return provider.wire_api is WireApi.MESSAGES
    return provider.auth == "x-api-key"


def _carried(secret: str, source: str | None) -> str:
    """Return a key in the form that a header carries. Raises ModelError for a key that no header can carry."""
    if not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise ModelError(
            f"The key {source or 'of the provider'} holds a blank, a line end or a character beyond ASCII, with which"
            " it cannot be sent; store it again"
        )
    return secret


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Remove characters that HTTP cannot carry: a line end within a value would begin another header."""
    fit = {}
    for name, value in headers.items():
        value = value.strip()
        if name.isascii() and value.isascii() and f"{name}{value}".isprintable() and " " not in name:
            fit[name] = value
        else:
            log.warning("the header %r has a value that cannot be sent, and is left out", name)
    return fit
