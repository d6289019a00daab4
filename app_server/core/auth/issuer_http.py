"""One request to the OAuth issuer, with httpx, which is slow to import: see `issuer`.

The size of a body is limited. Errors contain neither the request nor the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

import anyio
import httpx

from app_server.core.errors import AuthError, IssuerUnreachable
from app_server.core.http.exchange import TrustUnavailable
from app_server.core.http.httpx_options import httpx_options
from app_server.core.threads import YieldBudget, run_in_thread
from protocol.records import dataclass

REQUEST_SECONDS = 30.0
"""Timeout of a request; the issuer responds in well under a second."""

MAX_BODY_BYTES = 1024 * 1024
"""Maximum size of a response. Three tokens have a few kilobytes."""

HEADERS = {"Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class IssuerResponse:
    status: int
    body: bytes = field(repr=False)


class PostToIssuer(Protocol):
    async def __call__(
        self,
        url: str,
        env: Mapping[str, str],
        *,
        form: Mapping[str, str] | None = None,
        json_fields: Mapping[str, str] | None = None,
    ) -> IssuerResponse: ...


async def post_to_issuer(
    url: str,
    env: Mapping[str, str],
    *,
    form: Mapping[str, str] | None = None,
    json_fields: Mapping[str, str] | None = None,
) -> IssuerResponse:
    """`env` is the user's environment, which names proxies and certificates. Raises AuthError."""
    try:
        with anyio.fail_after(REQUEST_SECONDS):
            options = await run_in_thread(httpx_options, url, env)
            async with (
                httpx.AsyncClient(**options, timeout=REQUEST_SECONDS) as client,
                client.stream("POST", url, data=form, json=json_fields, headers=HEADERS) as response,
            ):
                return IssuerResponse(response.status_code, await _body(response))
    except TrustUnavailable as error:
        raise AuthError(str(error)) from None
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, ImportError) as error:
        raise IssuerUnreachable(f"the login server cannot be reached ({type(error).__name__})") from None


async def _body(response: httpx.Response) -> bytes:
    """The raw body: the request did not accept compression."""
    body, budget = bytearray(), YieldBudget()
    async for chunk in response.aiter_raw():
        await budget.spend(len(chunk))
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise AuthError("the login server's response is too long")
    return bytes(body)
