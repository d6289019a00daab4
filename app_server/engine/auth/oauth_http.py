"""Sends requests to OAuth servers. Answers are JSON of bounded size. Redirects are not followed, and each request has a
connection of its own.

Errors contain the server and the status, never the content of a request or an answer: either may contain a token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlencode

import anyio

from app_server.engine.auth.browser import MAX_URL, is_safe_url
from app_server.engine.http.address import origin
from app_server.engine.http.interface import Fault, HttpFailure, HttpRequest, HttpResponse
from app_server.engine.http.lazy_http import LazyHttp
from app_server.engine.support.engine_errors import AuthError, IssuerUnreachable
from app_server_protocol.encoding import Json
from app_server_protocol.values import Redacted

REQUEST_SECONDS = 30.0
"""Timeout of a request, in seconds. Issuers respond in well under a second."""

CLOSE_SECONDS = 1.0

MAX_BODY_BYTES = 1024 * 1024
"""Maximum size of a response, in bytes. Three tokens have a few kilobytes."""


class OAuthAnswer(Redacted, frozen=True):
    """The response of an OAuth server."""

    HIDDEN = ("fields",)
    status: int
    fields: Mapping[str, Json]
    """Members of the JSON object in the body; empty if the body is not a JSON object."""
    challenge: str = ""
    """Value of the header `WWW-Authenticate`."""

    @property
    def is_success(self) -> bool:
        """Whether the request was granted."""
        return 200 <= self.status < 300

    def text(self, key: str) -> str | None:
        """Return the value of a field, if it is a text that is not empty; else None."""
        value = self.fields.get(key)
        return value if isinstance(value, str) and value else None

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the texts in a field that is a list; none for any other value."""
        value = self.fields.get(key)
        return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()

    @property
    def error_code(self) -> str:
        """The error code of the answer, which some servers wrap (`error: {code}`); empty if it does not look like a
        code.
        """
        error = self.fields.get("error")
        code = error.get("code") if isinstance(error, dict) else error
        plain = isinstance(code, str) and len(code) <= 60 and code.replace("_", "").replace("-", "").isalnum()
        return str(code) if plain else ""

    @property
    def outcome(self) -> str:
        """The status and the error code, for messages."""
        return f"status {self.status}" + (f", {self.error_code}" if self.error_code else "")


class OAuthHttp:
    """HTTP client for OAuth servers. `env` is the user's environment, which names proxies and certificates."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    async def get(
        self, url: str, *, headers: Mapping[str, str] | None = None, whom: str = "", reads: bool = True
    ) -> OAuthAnswer:
        """Request a document. Raises AuthError if there is no answer. Without `reads`, the body is not read: it may be
        endless.
        """
        return await self._ask("GET", url, whom=whom, headers=headers, reads=reads)

    async def post_form(
        self, url: str, form: Mapping[str, str], whom: str = "", headers: Mapping[str, str] | None = None
    ) -> OAuthAnswer:
        """Send fields as a form. `whom` is the name of the server in errors; if it is empty, they contain its
        address.
        """
        content = "application/x-www-form-urlencoded"
        return await self._ask("POST", url, urlencode(form).encode(), content, whom, headers=headers)

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
        # Messages contain no path or query of the address, because these may contain secrets.
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
