"""Requests to OAuth servers: JSON answers of bounded size, without redirects, each over a connection of its own.

Errors say where and with which status, never what was sent or answered: either may hold a token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlencode

import anyio

from app_server.core.auth.browser import MAX_URL, is_safe_url
from app_server.core.errors import AuthError, IssuerUnreachable
from app_server.core.http.address import origin
from app_server.core.http.exchange import Fault, HttpFailure, HttpRequest, HttpResponse
from app_server.core.http.lazy_http import LazyHttp
from app_server_protocol.structs import Discreet, Json

REQUEST_SECONDS = 30.0
"""Timeout of a request; issuers respond in well under a second."""

CLOSE_SECONDS = 1.0

MAX_BODY_BYTES = 1024 * 1024
"""Maximum size of a response. Three tokens have a few kilobytes."""


class OAuthAnswer(Discreet, frozen=True):
    """The response of an OAuth server."""

    HIDDEN = ("fields",)
    status: int
    fields: Mapping[str, Json]
    """Empty where the body is no JSON object."""
    challenge: str = ""
    """The header `WWW-Authenticate`."""

    @property
    def is_success(self) -> bool:
        """Whether the request was granted."""
        return 200 <= self.status < 300

    def text(self, key: str) -> str | None:
        """Return a field that holds a text with something in it."""
        value = self.fields.get(key)
        return value if isinstance(value, str) and value else None

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the texts of a field that holds a list."""
        value = self.fields.get(key)
        return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()

    @property
    def error_code(self) -> str:
        """Return the error's code, which some servers wrap (`error: {code}`). Empty if it does not look like a code."""
        error = self.fields.get("error")
        code = error.get("code") if isinstance(error, dict) else error
        plain = isinstance(code, str) and len(code) <= 60 and code.replace("_", "").replace("-", "").isalnum()
        return str(code) if plain else ""

    @property
    def outcome(self) -> str:
        """Return the status and the error's code, for messages."""
        return f"status {self.status}" + (f", {self.error_code}" if self.error_code else "")


class OAuthHttp:
    """The way to OAuth servers. `env` is the user's environment, which names proxies and certificates."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    async def get(
        self, url: str, *, headers: Mapping[str, str] | None = None, whom: str = "", reads: bool = True
    ) -> OAuthAnswer:
        """Ask for a document. Raises AuthError where no answer comes. Without `reads` its body, which may be endless,
        is left alone.
        """
        return await self._ask("GET", url, whom=whom, headers=headers, reads=reads)

    async def post_form(self, url: str, form: Mapping[str, str], whom: str = "") -> OAuthAnswer:
        """Send fields as a form. `whom` names the server in errors; without it its address does."""
        content = "application/x-www-form-urlencoded"
        return await self._ask("POST", url, urlencode(form).encode(), content, whom)

    async def post_json(self, url: str, fields: Mapping[str, Json], whom: str = "") -> OAuthAnswer:
        """Send fields as JSON."""
        return await self._ask("POST", url, json.dumps(fields).encode(), "application/json", whom)

    async def _ask(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        content: str | None = None,
        whom: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        reads: bool = True,
    ) -> OAuthAnswer:
        # Without a path or a query, which may hold secrets.
        whom = whom or (origin(url) or "an address")[:200]
        if not is_safe_url(url):
            raise AuthError(f"{whom} is neither an https address nor one of this machine")
        request = HttpRequest(
            method=method,
            url=url,
            headers={
                "Accept": "application/json",
                **({"Content-Type": content} if content else {}),
                **(headers or {}),
            },
            body=body,
            idle_seconds=REQUEST_SECONDS,
            header_seconds=REQUEST_SECONDS,
        )
        http = LazyHttp(self._env)
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                async with http.send(request) as response:
                    challenge = response.headers.get("www-authenticate", "")[:MAX_URL]
                    fields = await _fields(response, whom) if reads else {}
                    return OAuthAnswer(response.status, fields, challenge)
        except HttpFailure as error:
            if error.fault is Fault.UNTRUSTED:
                raise AuthError(f"{whom} cannot be asked: {error.reason}") from None
            raise IssuerUnreachable(f"{whom} cannot be reached: {error.reason}") from None
        except TimeoutError:
            raise IssuerUnreachable(f"{whom} cannot be reached: no answer in time") from None
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await http.aclose()


async def _fields(response: HttpResponse, whom: str) -> Mapping[str, Json]:
    body = bytearray()
    async for chunk in response.chunks():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise AuthError(f"the answer of {whom} is too long")
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
