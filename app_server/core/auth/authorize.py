"""The authorization URL for the user's browser, and the secrets that bind the callback to this login (PKCE). Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from urllib.parse import quote, urlencode, urlsplit

from protocol.structs import Discreet

CLIENT_ID = "app_EMoamEEZ73f0CkXaXp7hrann"
DEFAULT_ISSUER = "https://auth.openai.com"
ISSUER_VARIABLE = "APP_SERVER_AUTH_ISSUER"
"""Overrides the issuer, for a company's own one or for tests."""
DEFAULT_ORIGINATOR = "codex_cli_rs"
SCOPE = "openid profile email offline_access"
CALLBACK_PATH = "/auth/callback"
MAX_URL = 8192

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_safe_url(url: str) -> bool:
    """Return whether secrets may be sent there, or a browser: with encryption, or to this machine."""
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
        _ = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= MAX_URL
    safe = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    return bool(host) and plain and safe and user is None and not parts.fragment


class LoginSecrets(Discreet, frozen=True):
    """Only this process knows these, until it sends the verifier to the issuer."""

    HIDDEN = ("verifier", "state")
    verifier: str
    state: str

    @property
    def challenge(self) -> str:
        return code_challenge(self.verifier)


def code_challenge(verifier: str) -> str:
    """Return the challenge of PKCE for a verifier, by its method S256."""
    return _base64url(hashlib.sha256(verifier.encode()).digest())


def new_login_secrets(random: Callable[[int], bytes]) -> LoginSecrets:
    """Make the secrets of one login."""
    return LoginSecrets(verifier=_base64url(random(64)), state=_base64url(random(32)))


def redirect_uri(port: int) -> str:
    """Return where the browser comes back: issuers know `localhost`, though the listener is bound to 127.0.0.1."""
    return f"http://localhost:{port}{CALLBACK_PATH}"


def authorize_url(
    issuer: str, port: int, secrets: LoginSecrets, *, originator: str, workspace_id: str | None = None
) -> str:
    """Return the address that the user opens in the browser."""
    query = {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": redirect_uri(port),
        "scope": SCOPE,
        "code_challenge": secrets.challenge,
        "code_challenge_method": "S256",
        "id_token_add_organizations": "true",
        "codex_cli_simplified_flow": "true",
        "state": secrets.state,
        "originator": originator,
    }
    if workspace_id is not None:
        query["allowed_workspace_id"] = workspace_id
    return f"{issuer.rstrip('/')}/oauth/authorize?{urlencode(query, quote_via=quote, safe='')}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
