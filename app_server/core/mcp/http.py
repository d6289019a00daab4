"""A server over streamable HTTP: every message is a POST, answered by one JSON body or by a stream of events.

Imports httpx, so it is itself imported only where such a server is configured, and in a worker thread.
Redirects are not followed: the request carries a token. The optional stream that a server may open by itself
is not asked for, since nothing that comes on it is used; questions to the user arrive on the stream of the
call that they belong to.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping

import anyio
import httpx

from app_server.core.bounds import PIECE_BYTES
from app_server.core.config.types import McpHttpTransport
from app_server.core.http.httpx_options import httpx_options
from app_server.core.http.sse import EventTooLong, SseDecoder, SseFrame
from app_server.core.http.types import TrustUnavailable
from app_server.core.mcp.contract import McpFailure, Refusal, Take
from app_server.core.mcp.failures import AUTH_REQUIRED
from app_server.core.mcp.limits import KEPT_HEAD_BYTES, MAX_MESSAGE_BYTES, OUTGOING_QUEUE
from app_server.core.mcp.messages import encode, oversized, parse
from app_server.core.mcp.surroundings import display_url, is_http_url, request_headers
from app_server.core.threads import run_in_thread
from app_server.core.yielding import YieldBudget
from protocol.base import Json

SESSION_HEADER = "Mcp-Session-Id"
VERSION_HEADER = "MCP-Protocol-Version"
CONNECT_SECONDS = 10.0
FAREWELL_SECONDS = 1.0
MAX_CONNECTIONS = 16


class _SessionOver(Exception):
    """The server no longer knows this session."""


class HttpLink:
    """One session with one server."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self._url = url
        self._client = client
        self._session: str | None = None
        self._version: str | None = None
        self._posts: dict[int, anyio.CancelScope] = {}
        self._over = anyio.Event()
        self._outgoing, self._waiting = anyio.create_memory_object_stream[Json](OUTGOING_QUEUE)

    async def run(self, take: Take) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._dispatch, take)
            await self._over.wait()
            group.cancel_scope.cancel()

    async def send(self, message: Json) -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._outgoing.send(message)

    def send_soon(self, message: Json) -> None:
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._outgoing.send_nowait(message)

    def agreed(self, version: str) -> None:
        self._version = version

    async def close(self) -> None:
        """Tells the server that the session is over, where it gave one out."""
        self._outgoing.close()
        self._waiting.close()
        if self._session is not None and not self._over.is_set():
            with anyio.move_on_after(FAREWELL_SECONDS), contextlib.suppress(httpx.HTTPError):
                await self._client.delete(self._url, headers=self._headers())

    async def _dispatch(self, take: Take) -> None:
        async with anyio.create_task_group() as group:
            async for message in self._waiting:
                if message.get("method") == "notifications/initialized":
                    await self._post(message, take)  # nothing else is allowed before it has arrived
                    continue
                if message.get("method") == "notifications/cancelled":
                    scope = self._posts.pop(message["params"]["requestId"], None)
                    if scope is not None:
                        scope.cancel()
                group.start_soon(self._post, message, take)

    async def _post(self, message: Json, take: Take) -> None:
        key = message.get("id") if "method" in message else None
        scope = anyio.CancelScope()
        if key is not None:
            self._posts[key] = scope
        reason = "the server ended its answer without answering"
        try:
            with scope:
                async with self._client.stream(
                    "POST", self._url, content=encode(message), headers=self._headers()
                ) as response:
                    reason = await self._read(response, take) or reason
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
            reason = f"cannot reach {display_url(self._url)}: {_kind(error)}"
        except _SessionOver:
            self._over.set()  # which releases whoever waits, this request included
            return
        if key is not None:
            self._posts.pop(key, None)
            take(Refusal(key, reason))  # counts only where no answer came before it

    def _headers(self) -> dict[str, str]:
        headers = {}
        if self._session is not None:
            headers[SESSION_HEADER] = self._session
        if self._version is not None:
            headers[VERSION_HEADER] = self._version
        return headers

    async def _read(self, response: httpx.Response, take: Take) -> str | None:
        """Hands over what a response holds; gives the reason where it is a refusal."""
        if response.status_code == httpx.codes.NOT_FOUND and self._session is not None:
            raise _SessionOver
        if response.status_code == httpx.codes.UNAUTHORIZED:
            return f"{AUTH_REQUIRED} by {display_url(self._url)}"
        if response.is_redirect:
            return f"{display_url(self._url)} leads elsewhere, which is not followed"
        session = response.headers.get(SESSION_HEADER)
        if session and session.isascii() and session.isprintable() and response.is_success:
            self._session = session
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" and response.is_success:
            return await _read_events(response, take)
        if kind == "application/json":
            await _read_body(response, take)
        return None if response.is_success else f"{display_url(self._url)} answered {response.status_code}"


async def _read_body(response: httpx.Response, take: Take) -> None:
    budget, body = YieldBudget(), bytearray()
    size = 0
    async for chunk in response.aiter_raw():
        await budget.spend(len(chunk))
        size += len(chunk)
        if size <= MAX_MESSAGE_BYTES:
            body += chunk
    if size > MAX_MESSAGE_BYTES:
        left = oversized(bytes(body[:KEPT_HEAD_BYTES]), size)
        if left is not None:
            take(left)
        return
    for message in parse(bytes(body)):
        take(message)


async def _read_events(response: httpx.Response, take: Take) -> str | None:
    decoder, budget = SseDecoder(MAX_MESSAGE_BYTES), YieldBudget()
    try:
        async for chunk in response.aiter_raw():
            for start in range(0, len(chunk), PIECE_BYTES):
                piece = chunk[start : start + PIECE_BYTES]
                await _take_frames(decoder.feed(piece), take, budget)
                await budget.spend(len(piece))
        await _take_frames(decoder.close(), take, budget)
    except EventTooLong:
        return f"an event of its answer is over the limit of {MAX_MESSAGE_BYTES} bytes"
    return None


async def _take_frames(frames: Iterable[SseFrame], take: Take, budget: YieldBudget) -> None:
    for frame in frames:
        for message in parse(frame.data):
            take(message)
        await budget.spend(0)


def _kind(error: Exception) -> str:
    """What went wrong, without what the library quotes of the request."""
    match error:
        case httpx.ConnectTimeout():
            return "connecting took too long"
        case httpx.ConnectError():
            return "the connection was refused or the name is unknown"
        case httpx.UnsupportedProtocol() | httpx.InvalidURL() | ValueError():
            return "it is no URL of HTTP"
        case _:
            return "the connection broke"


@contextlib.asynccontextmanager
async def open_http(
    name: str, transport: McpHttpTransport, user: Mapping[str, str]
) -> AsyncIterator[HttpLink]:
    """Raises McpFailure where the table asks for something that is missing, or the user's environment for certificates
    or a proxy that cannot be used.
    """
    if not is_http_url(transport.url):
        raise McpFailure("its url is no URL of HTTP")
    headers = request_headers(name, transport, user)
    headers |= {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
    }
    try:
        options = await run_in_thread(httpx_options, transport.url, user)
        client = httpx.AsyncClient(
            **options,
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
        )
    except TrustUnavailable as error:
        raise McpFailure(str(error)) from error
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise McpFailure("its URL, its headers or its proxy cannot be used") from error
    link = HttpLink(transport.url, client)
    try:
        yield link
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(2 * FAREWELL_SECONDS):
            await link.close()
            await client.aclose()
