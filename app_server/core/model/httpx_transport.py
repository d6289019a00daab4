"""Requests over httpx. Imports it at the top, so import this module late."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import certifi
import httpx

from app_server.core.model.http import Fault, HttpFailure, HttpRequest
from app_server.core.model.proxies import proxy_for
from protocol.base import Json

CONNECT_SECONDS = 15.0
CLOSE_SECONDS = 1.0
UNUSABLE = (ValueError, ImportError)
"""An address that is none; a SOCKS proxy without the package for it."""

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=60.0)


class HttpxAnswer:
    """An open response."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except httpx.TimeoutException as error:
            raise HttpFailure(Fault.IDLE, "the answer paused for too long") from error
        except httpx.HTTPError as error:
            raise HttpFailure(Fault.CUT, str(error) or type(error).__name__) from error


class HttpxTransport:
    """One client per way out: clear or encrypted, direct or through a proxy."""

    def __init__(self, env: Mapping[str, str]) -> None:
        for name in ("httpx", "httpcore"):
            # They log whole URLs, and a query may hold a key.
            logging.getLogger(name).setLevel(logging.WARNING)
        self._env = env
        self._clients: dict[tuple[bool, str | None], httpx.AsyncClient] = {}
        self._opening = anyio.Lock()

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpxAnswer]:
        response = await self._response(request)
        try:
            yield HttpxAnswer(response)
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await response.aclose()

    async def aclose(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()

    async def _response(self, request: HttpRequest) -> httpx.Response:
        reused = True

        async def trace(event: str, details: Json) -> None:
            nonlocal reused
            if event == "connection.connect_tcp.started":
                reused = False

        try:
            client = await self._client(request.url)
            built = client.build_request(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=request.body,
                timeout=httpx.Timeout(request.idle_seconds, connect=CONNECT_SECONDS, pool=None),
                extensions={"trace": trace},
            )
            with anyio.fail_after(request.header_seconds):
                return await client.send(built, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            fault = Fault.UNTRUSTED if _certificate_refused(error) else Fault.UNREACHABLE
            raise HttpFailure(fault, _reason(error)) from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, *UNUSABLE) as error:
            raise HttpFailure(Fault.UNTRUSTED, "the address or a header cannot be used") from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise HttpFailure(Fault.HEADERS_LATE, "no answer in time") from error
        except httpx.HTTPError as error:
            raise HttpFailure(Fault.NO_ANSWER, _reason(error), reused_connection=reused) from error

    async def _client(self, url: str) -> httpx.AsyncClient:
        encrypted = not url.lower().startswith("http://")
        way = (encrypted, proxy_for(url, self._env))
        async with self._opening:
            if way not in self._clients:
                # Reading the certificates takes a tenth of a second; a plain connection needs none.
                verify = await anyio.to_thread.run_sync(_certificates) if encrypted else False
                self._clients[way] = httpx.AsyncClient(
                    verify=verify, proxy=way[1], trust_env=False, limits=LIMITS, follow_redirects=False
                )
            return self._clients[way]


def _certificates() -> ssl.SSLContext:
    """The system's, which may hold a company's own, and the usual public ones."""
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=certifi.where())
    return context


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(chain) < 10:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    return chain


def _certificate_refused(error: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def _reason(error: BaseException) -> str:
    """The most telling of the errors that led here, in the system's words."""
    for cause in reversed(_causes(error)):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"no encrypted connection: {cause.reason}"
        if isinstance(cause, OSError) and cause.strerror:
            # asyncio puts the address into its text; the system's own text is the plain one.
            return os.strerror(cause.errno) if cause.errno is not None and cause.errno > 0 else cause.strerror
    return str(error) or type(error).__name__
