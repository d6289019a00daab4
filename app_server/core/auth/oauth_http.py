"""Requests of OAuth logins at MCP servers: JSON answers of bounded size, without redirects.

httpx is imported with the first request. Errors say where and with which status, never what was sent or answered:
either may hold a token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

from app_server.core.auth.authorize import LOOPBACK
from app_server.core.errors import AuthError
from app_server.core.http.address import origin
from app_server.core.http.exchange import TrustUnavailable
from app_server.core.threads import YieldBudget, run_in_thread
from protocol.base import Json

if TYPE_CHECKING:
    import httpx

REQUEST_SECONDS = 30.0
MAX_BODY_BYTES = 1024 * 1024
MAX_URL = 8192
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}


class OAuthAnswer(Struct, frozen=True):
    status: int
    fields: Mapping[str, Json]
    """Empty where the body is no JSON object."""
    challenge: str
    """The header `WWW-Authenticate`."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def text(self, key: str) -> str | None:
        value = self.fields.get(key)
        return value if isinstance(value, str) and value else None

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.fields.get(key)
        return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()

    @property
    def error_code(self) -> str:
        """The code of OAuth, in parentheses; empty where there is none that looks like one."""
        code = self.fields.get("error")
        plain = isinstance(code, str) and len(code) <= 60 and code.replace("_", "").isalnum()
        return f" ({code})" if plain else ""


class OAuthHttp:
    """`env` is the user's environment, which names proxies and certificates."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    async def get(self, url: str) -> OAuthAnswer:
        """Raises AuthError where no answer comes."""
        return await self._ask("GET", url)

    async def challenge(self, url: str) -> tuple[int, str]:
        """Status and challenge of an answer whose body, which may be endless, is not read."""
        answer = await self._ask("GET", url, reads=False)
        return answer.status, answer.challenge

    async def post_form(self, url: str, form: Mapping[str, str]) -> OAuthAnswer:
        return await self._ask("POST", url, form=form)

    async def post_json(self, url: str, fields: Mapping[str, Json]) -> OAuthAnswer:
        return await self._ask("POST", url, fields=fields)

    async def _ask(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        fields: Mapping[str, Json] | None = None,
        reads: bool = True,
    ) -> OAuthAnswer:
        if not is_safe_url(url):
            raise AuthError(f"{_place(url)} is neither an https address nor one of this machine")
        await run_in_thread(_import_httpx)
        import httpx  # noqa: PLC0415 - imported in a thread just now

        from app_server.core.http.httpx_options import httpx_options  # noqa: PLC0415 - imports httpx

        try:
            with anyio.fail_after(REQUEST_SECONDS):
                options = await run_in_thread(httpx_options, url, self._env)
                async with (
                    httpx.AsyncClient(**options, timeout=REQUEST_SECONDS) as client,
                    client.stream(method, url, data=form, json=fields, headers=HEADERS) as response,
                ):
                    challenge = ", ".join(response.headers.get_list("WWW-Authenticate"))[:MAX_URL]
                    return OAuthAnswer(
                        response.status_code, await _fields(response) if reads else {}, challenge
                    )
        except TrustUnavailable as error:
            raise AuthError(str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, ImportError) as error:
            raise AuthError(f"{_place(url)} cannot be reached ({type(error).__name__})") from None


def is_safe_url(url: str) -> bool:
    """Whether secrets may be sent there, or a browser: with encryption, or to this machine."""
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
        _ = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= MAX_URL
    safe = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    return bool(host) and plain and safe and user is None and not parts.fragment


def _place(url: str) -> str:
    """Without a path or a query, which may hold secrets."""
    return (origin(url) or "an address")[:200]


async def _fields(response: httpx.Response) -> Mapping[str, Json]:
    body, budget = bytearray(), YieldBudget()
    async for chunk in response.aiter_raw():
        await budget.spend(len(chunk))
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise AuthError("the answer of the login server is too long")
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _import_httpx() -> None:
    import app_server.core.http.httpx_options  # noqa: F401, PLC0415
