"""The parts of a browser login that need no I/O: the address to open, the secrets that bind the callback to this login
(PKCE), and the HTTP exchange between the browser and the loopback listener.

Every process of this machine and every web page can reach the port. So a callback counts only if it has this login's
`state`, has each field once, and names this machine as its host. After any other request, the login continues to wait.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from app_server_protocol.values import Redacted

CLIENT_ID = "app_EMoamEEZ73f0CkXaXp7hrann"
DEFAULT_ISSUER = "https://auth.openai.com"
ISSUER_VARIABLE = "APP_SERVER_AUTH_ISSUER"
"""Environment variable that overrides the issuer, for a company's own issuer or for tests."""
DEFAULT_ORIGINATOR = "codex_cli_rs"
SCOPE = "openid profile email offline_access"
CALLBACK_PATH = "/auth/callback"
MAX_URL = 8192

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_safe_url(url: str) -> bool:
    """Return whether an address is safe for secrets and for the browser: it is encrypted, or on this machine."""
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
        _ = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= MAX_URL
    safe = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    return bool(host) and plain and safe and user is None and not parts.fragment


class LoginSecrets(Redacted, frozen=True):
    """Secrets of one login. Only this process knows them, until it sends the verifier to the issuer."""

    HIDDEN = ("verifier", "state")
    verifier: str
    state: str

    @property
    def challenge(self) -> str:
        return code_challenge(self.verifier)


def code_challenge(verifier: str) -> str:
    """Return the PKCE challenge for a verifier, by the method S256."""
    return _base64url(hashlib.sha256(verifier.encode()).digest())


def new_login_secrets(random: Callable[[int], bytes]) -> LoginSecrets:
    """Return new secrets for one login."""
    return LoginSecrets(verifier=_base64url(random(64)), state=_base64url(random(32)))


def redirect_uri(port: int) -> str:
    """Return the address of the callback. Issuers know `localhost`, though the listener is bound to 127.0.0.1."""
    return f"http://localhost:{port}{CALLBACK_PATH}"


def authorize_url(
    endpoint: str, client_id: str, redirect: str, secrets: LoginSecrets, more: Mapping[str, str]
) -> str:
    """Return the address for the user's browser, which requests a code with PKCE."""
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect,
        "code_challenge": secrets.challenge,
        "code_challenge_method": "S256",
        "state": secrets.state,
        **more,
    }
    joint = "&" if "?" in endpoint else "?"
    return f"{endpoint}{joint}{urlencode(query, quote_via=quote, safe='')}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


CANCEL_PATH = "/cancel"
"""Path of the request with which another program that needs the port cancels the login."""

MAX_HEAD_BYTES = 16 * 1024
HEAD_END = b"\r\n\r\n"
_OWN_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.ASCII)
"""Allowed hosts of a request. A web page can let another name point to this machine; its requests have that name as
their host.
"""


class Granted(Redacted, frozen=True):
    """The callback of a user who agreed. The code can be exchanged once."""

    HIDDEN = ("code",)
    code: str
    issuer: str | None = None
    """Issuer that sent the callback (RFC 9207); None for most issuers, which do not send it."""


class NotGranted(Struct, frozen=True):
    """A request without a code, and the response to it."""

    status: HTTPStatus
    text: str
    ends: str | None = None
    """Why the login has ended; None if it continues, because the request is not its callback."""


CANCELLED = "the login was cancelled"


class CallbackAddress(Struct, frozen=True):
    """The address on this machine to which a browser returns."""

    host: str = "127.0.0.1"
    port: int = 0
    """Port, 0 for any free one."""
    path: str = CALLBACK_PATH

    def url(self, port: int) -> str:
        """Return the address with the port that is listened at."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}{self.path}"


def parse_callback_url(url: str) -> CallbackAddress:
    """Return the address for a setting. Raises ValueError if it is not on this machine."""
    parts = urlsplit(url)
    if not is_safe_url(url) or parts.scheme != "http" or parts.query:
        raise ValueError("expected an address of this machine, as http://127.0.0.1/callback")
    path = parts.path or "/"
    if path == CANCEL_PATH:
        raise ValueError(f"expected a path other than {CANCEL_PATH}")
    return CallbackAddress(parts.hostname or "", parts.port or 0, path)


def read_callback(head: bytes, state: str, path: str = CALLBACK_PATH) -> Granted | NotGranted:
    """Return the meaning of a request's head for the login with this state, whose callback has this path."""
    if HEAD_END not in head:
        return NotGranted(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "That request is too long.")
    lines = head.split(HEAD_END)[0].decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return NotGranted(HTTPStatus.BAD_REQUEST, "This is not a request that can be answered here.")
    if parts[0] != "GET":
        return NotGranted(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered here.")
    try:
        target = urlsplit(parts[1])
        fields = parse_qsl(target.query, max_num_fields=32)
    except ValueError:
        return NotGranted(HTTPStatus.BAD_REQUEST, "This address cannot be read.")
    query = dict(fields)
    if len(query) < len(fields):
        return NotGranted(HTTPStatus.BAD_REQUEST, "This address says something twice.")
    if [bool(_OWN_HOST.fullmatch(host)) for host in _hosts(lines[1:])] != [True]:
        return NotGranted(HTTPStatus.BAD_REQUEST, "This is not the host that was asked for.")
    if target.path == CANCEL_PATH and not _from_browser(lines[1:]):
        return NotGranted(HTTPStatus.OK, "The login was cancelled.", CANCELLED)
    if target.path != path:
        return NotGranted(HTTPStatus.NOT_FOUND, "There is nothing here.")
    return _login_callback(query, state)


def page(status: HTTPStatus, text: str) -> bytes:
    """Return a complete, uncacheable response that displays one sentence."""
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Login</title>'
        f"<p>{html.escape(text)}</p></html>\n"
    ).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _login_callback(query: Mapping[str, str], state: str) -> Granted | NotGranted:
    if not hmac.compare_digest(query.get("state", "").encode(), state.encode()):
        return NotGranted(HTTPStatus.BAD_REQUEST, "This answer belongs to another login (state mismatch).")
    if query.get("error"):
        text = "The login was refused. You may close this window."
        return NotGranted(HTTPStatus.OK, text, f"the login was refused: {_plain(query['error'])}")
    if not query.get("code"):
        return NotGranted(HTTPStatus.BAD_REQUEST, "The answer holds no authorization code.")
    return Granted(query["code"], query.get("iss"))


def _hosts(header_lines: list[str]) -> list[str]:
    headers = [line.partition(":") for line in header_lines]
    return [value.strip().lower() for name, _, value in headers if name.lower() == "host"]


def _from_browser(header_lines: list[str]) -> bool:
    """Return whether the headers show that a web page sent the request: a page must not be able to cancel a login."""
    return any(line.lower().startswith(("sec-fetch-", "origin:", "referer:")) for line in header_lines)


def _plain(reason: str) -> str:
    """Return the error code, if it looks like one; other text is not shown to the user."""
    return reason if reason.replace("_", "").isalnum() and len(reason) <= 60 else "unknown reason"
