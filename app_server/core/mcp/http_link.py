"""A link over streamable HTTP: every message is a POST, and the response is one JSON body or a stream of events.

It imports httpx, so it is imported only if such a server is configured, and in a worker thread. It does not follow
redirects, because requests carry a token: one of the settings, or that of a stored login, which is refreshed here. It
does not open the optional stream for messages that the server initiates, because it would use none of them;
elicitations arrive on the stream of their call.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping

import anyio
import httpx

from app_server.core.auth.mcp_tokens import McpTokenSource
from app_server.core.auth.oauth_client import McpLoginOver
from app_server.core.bounds import PIECE_BYTES
from app_server.core.config.types import McpHttpTransport
from app_server.core.errors import AuthError
from app_server.core.http.exchange import TrustUnavailable
from app_server.core.http.httpx_options import httpx_options
from app_server.core.http.sse import EventTooLong, SseDecoder, SseFrame
from app_server.core.mcp.faults import (
    AUTH_REQUIRED,
    KEPT_HEAD_BYTES,
    MAX_MESSAGE_BYTES,
    OUTGOING_QUEUE,
    McpFailure,
)
from app_server.core.mcp.interfaces import LoadTokens
from app_server.core.mcp.launch import display_url, is_http_url, request_headers, sends_token
from app_server.core.mcp.mcp_client import OnMessage
from app_server.core.mcp.rpc_messages import McpError, encode, oversized, parse
from app_server.core.threads import YieldBudget, run_in_thread
from protocol.structs import Json


class StoredLogin(httpx.Auth):
    """Sends the token of one server to that server. A token that is refused is refreshed once."""

    def __init__(self, tokens: McpTokenSource, server: str, url: str) -> None:
        self._tokens, self._server, self._url = tokens, server, url

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Send the token. Raises AuthError where a login cannot be refreshed for now; one that is over is none."""
        try:
            token = await self._tokens.token(self._server, self._url)
        except McpLoginOver:
            token = None
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code != httpx.codes.UNAUTHORIZED or token is None:
            return
        try:
            renewed = await self._tokens.renewed(self._server, self._url, token)
        except McpLoginOver:
            return
        if renewed is not None:
            request.headers["Authorization"] = f"Bearer {renewed}"
            yield request


SESSION_HEADER = "Mcp-Session-Id"
VERSION_HEADER = "MCP-Protocol-Version"
CONNECT_SECONDS = 10.0
FAREWELL_SECONDS = 1.0
MAX_CONNECTIONS = 16


class _SessionOver(Exception):
    """The server no longer recognises this session."""


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

    async def receive(self, on_message: OnMessage) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._dispatch, on_message)
            await self._over.wait()
            group.cancel_scope.cancel()

    async def send(self, message: Json) -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._outgoing.send(message)

    def send_soon(self, message: Json) -> None:
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._outgoing.send_nowait(message)

    def set_protocol_version(self, version: str) -> None:
        self._version = version

    async def close(self) -> None:
        """End the session at the server, if the server has created one."""
        self._outgoing.close()
        self._waiting.close()
        if self._session is not None and not self._over.is_set():
            with anyio.move_on_after(FAREWELL_SECONDS), contextlib.suppress(httpx.HTTPError, AuthError):
                await self._client.delete(self._url, headers=self._headers())

    async def _dispatch(self, on_message: OnMessage) -> None:
        async with anyio.create_task_group() as group:
            async for message in self._waiting:
                if message.get("method") == "notifications/initialized":
                    await self._post(
                        message, on_message
                    )  # the server must receive it before any other message
                    continue
                if message.get("method") == "notifications/cancelled":
                    scope = self._posts.pop(message["params"]["requestId"], None)
                    if scope is not None:
                        scope.cancel()
                group.start_soon(self._post, message, on_message)

    async def _post(self, message: Json, on_message: OnMessage) -> None:
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
                    reason = await self._read_messages(response, on_message) or reason
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
            reason = f"cannot reach {display_url(self._url)}: {_error_text(error)}"
        except AuthError as error:
            reason = f"cannot use the login at {display_url(self._url)}: {error}"
        except _SessionOver:
            self._over.set()  # ends the link, which fails all pending requests
            return
        if key is not None:
            self._posts.pop(key, None)
            on_message(McpError(key, reason))  # ignored if a reply came before it

    def _headers(self) -> dict[str, str]:
        headers = {}
        if self._session is not None:
            headers[SESSION_HEADER] = self._session
        if self._version is not None:
            headers[VERSION_HEADER] = self._version
        return headers

    async def _read_messages(self, response: httpx.Response, on_message: OnMessage) -> str | None:
        """Pass the messages of a response on; return the reason if the response is an error."""
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
            return await _read_events(response, on_message)
        if kind == "application/json":
            await _read_body(response, on_message)
        return None if response.is_success else f"{display_url(self._url)} answered {response.status_code}"


async def _read_body(response: httpx.Response, on_message: OnMessage) -> None:
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
            on_message(left)
        return
    for message in parse(bytes(body)):
        on_message(message)


async def _read_events(response: httpx.Response, on_message: OnMessage) -> str | None:
    decoder, budget = SseDecoder(MAX_MESSAGE_BYTES), YieldBudget()
    try:
        async for chunk in response.aiter_raw():
            for start in range(0, len(chunk), PIECE_BYTES):
                piece = chunk[start : start + PIECE_BYTES]
                await _handle_frames(decoder.feed(piece), on_message, budget)
                await budget.spend(len(piece))
        await _handle_frames(decoder.close(), on_message, budget)
    except EventTooLong:
        return f"an event of its answer is over the limit of {MAX_MESSAGE_BYTES} bytes"
    return None


async def _handle_frames(frames: Iterable[SseFrame], on_message: OnMessage, budget: YieldBudget) -> None:
    for frame in frames:
        for message in parse(frame.data):
            on_message(message)
        await budget.spend(0)


def _error_text(error: Exception) -> str:
    """Return the error, without what the library quotes from the request."""
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
    name: str, transport: McpHttpTransport, user: Mapping[str, str], tokens: LoadTokens | None = None
) -> AsyncIterator[HttpLink]:
    """Open a session. `tokens`: of logins, for a server whose settings name no token of their own.

    Raises McpFailure if the server's settings need something that is missing, or if certificates or the proxy from
    the user's environment are invalid.
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
            auth=None
            if tokens is None or sends_token(transport)
            else StoredLogin(tokens(), name, transport.url),
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
