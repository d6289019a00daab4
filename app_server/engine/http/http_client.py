"""The HTTP client for all requests except those to models: httpx2's client, over the transport and rules of this
package.

httpx2 parses URLs, writes the head of a request and sends the name and the password of a URL. It follows no redirect,
stores no cookie and reads no environment; proxies, certificates, connections, limits and failures are those of
`http_transport`. Import late, because it imports httpx2.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpcore2
import httpx2

from app_server.engine.http.address import address
from app_server.engine.http.http_transport import (
    CONNECT_SECONDS,
    HttpcoreResponse,
    HttpTransport,
    answered_within,
    begun,
    timeouts,
    wire_headers,
)
from app_server.engine.http.interface import HttpRequest

# httpx2 logs the URL of each request, which may contain a secret.
logging.getLogger("httpx2").setLevel(logging.WARNING)


def no_cookies() -> CookieJar:
    """Return a cookie jar that neither stores nor sends cookies."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


def built_request(request: HttpRequest, connect_seconds: float = CONNECT_SECONDS) -> httpx2.Request:
    """Return a request in httpx2's form. Raises ValueError for an invalid URL or header."""
    address(request.url)  # httpx2 accepts other schemes and any port
    try:
        url = httpx2.URL(request.url)
    except httpx2.InvalidURL as error:
        raise ValueError("not an http address") from error
    return httpx2.Request(
        request.method,
        url,
        headers=wire_headers(request),
        content=request.body,
        extensions={"timeout": timeouts(request, connect_seconds)},
    )


class UrlCredentials(httpx2.Auth):
    """Sends the name and the password of the URL, unless a header says otherwise."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        url = request.url
        if (url.username or url.password) and "authorization" not in request.headers:
            yield from httpx2.BasicAuth(url.username, url.password).auth_flow(request)
        else:
            yield request


class ClientResponse:
    """An open `HttpResponse`."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._response.aiter_raw()) as chunks:
            async for chunk in chunks:
                yield chunk


class HttpClient:
    """Sends requests, which share connections. `env` is the user's environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        transport = _BoundedTransport(HttpTransport(env))
        self._client = httpx2.AsyncClient(
            transport=transport, trust_env=False, cookies=no_cookies(), auth=UrlCredentials()
        )

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[ClientResponse]:
        with begun():
            built = built_request(request)
        with answered_within(request.header_seconds):
            response = await self._client.send(built, stream=True)
        try:
            yield ClientResponse(response)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends the client's requests, and decodes bodies within the bounds of `content`. Raises HttpFailure."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        with begun():
            built = httpcore2.Request(
                request.method,
                httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions={"timeout": request.extensions["timeout"]},
            )
        response = await self._transport.open(built, str(url))
        return httpx2.Response(response.status, headers=response.raw_headers, stream=_Body(response))

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: HttpcoreResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.chunks()

    async def aclose(self) -> None:
        await self._response.aclose()
