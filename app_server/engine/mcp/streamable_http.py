"""A link over streamable HTTP: every message is a POST, and the response is one JSON body or a stream of events.

The module is imported only if such a server is configured. Requests carry a token: one from the settings, or that of a
stored login, which is refreshed here. The optional stream for messages that the server initiates is opened if the
server declares that its tools may change; elicitations arrive on the stream of their call.

In the new era there are requests alone: no session, no stream beside them, no notification. A request is given up by
closing its response.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType
from urllib.parse import urlsplit

import anyio

from app_server.engine.auth.mcp_tokens import McpTokenSource
from app_server.engine.auth.oauth_client import McpLoginOver, lacking_scopes, plain_scopes
from app_server.engine.config.mcp_server_settings import McpHttpTransport
from app_server.engine.http.address import address, origin
from app_server.engine.http.interface import HttpFailure, HttpRequest, HttpResponse
from app_server.engine.http.lazy_http import LazyHttp
from app_server.engine.http.sse import EventTooLong, SseDecoder, SseFrame
from app_server.engine.mcp import mcp_errors
from app_server.engine.mcp.mcp_era import UnfitHeader, message_headers
from app_server.engine.mcp.mcp_transport import McpTransport, OnMessage
from app_server.engine.mcp.rpc_messages import McpError, encode, error_of_request, oversized, parse
from app_server.engine.mcp.runtime_interface import McpRuntime
from app_server.engine.support.engine_errors import AuthError
from app_server.engine.support.worker_threads import YieldBudget
from app_server_protocol.encoding import Json

OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 200, 401, 403, 404
SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
ALWAYS_SENT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
USUALLY_SENT = {"user-agent": "app-server-mcp-client"}
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
FAREWELL_SECONDS = 1.0


class _SessionOver(Exception):
    """The server no longer knows this session."""


class HttpLink(McpTransport):
    """One session with one server. `login` provides the token of a stored login if the server is sent no other
    token.
    """

    def __init__(
        self, name: str, url: str, headers: Mapping[str, str], http: LazyHttp, login: McpTokenSource | None
    ) -> None:
        super().__init__()
        self._name, self._url, self._login = name, url, login
        self._headers, self._http = headers, http
        self._session: str | None = None
        self._posts: dict[int, anyio.CancelScope] = {}
        self._over = anyio.Event()

    async def receive(self, on_message: OnMessage) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._dispatch, on_message)
            await self._over.wait()
            group.cancel_scope.cancel()

    async def close(self) -> None:
        """End the session at the server, if the server has created one."""
        self.end_queue()
        if self._in_session and not self._over.is_set():
            with anyio.move_on_after(FAREWELL_SECONDS), contextlib.suppress(HttpFailure, AuthError):
                async with self._answered("DELETE"):
                    pass

    @property
    def _in_session(self) -> bool:
        return self._session is not None and not self.is_modern

    async def _dispatch(self, on_message: OnMessage) -> None:
        async with anyio.create_task_group() as group:
            async for message in self._waiting:
                if message.get("method") == "notifications/initialized":
                    await self._post(
                        message, on_message
                    )  # the server must receive it before any other message
                    if self.announces:
                        group.start_soon(self._listen, on_message)
                    continue
                if message.get("method") == "notifications/cancelled":
                    scope = self._posts.pop(message["params"]["requestId"], None)
                    if scope is not None:
                        scope.cancel()
                if self.is_modern and not ("id" in message and "method" in message):
                    continue
                group.start_soon(self._post, message, on_message)

    async def _post(self, message: Json, on_message: OnMessage) -> None:
        key = message.get("id") if "method" in message else None
        scope = anyio.CancelScope()
        if key is not None:
            self._posts[key] = scope
        reason = "the server ended its answer without answering"
        try:
            with scope:
                repeated = message_headers(message, self.mirrored) if self.is_modern else {}
                async with self._answered("POST", encode(message), repeated) as response:
                    reason = await self._read_messages(response, on_message, key) or reason
        except UnfitHeader as error:
            reason = str(error)
        except HttpFailure as error:
            reason = f"cannot reach {display_url(self._url)}: {error.reason}"
        except AuthError as error:
            reason = f"cannot use the login at {display_url(self._url)}: {error}"
        except _SessionOver:
            if key is not None:
                self._posts.pop(key, None)
                on_message(McpError(key, "the server has forgotten the session", session_lost=True))
            self._over.set()  # ends the link, so that all pending requests fail
            return
        if key is not None:
            self._posts.pop(key, None)
            on_message(McpError(key, reason))  # ignored if a reply came before it

    async def _listen(self, on_message: OnMessage) -> None:
        """Receive messages that the server initiates, for as long as it offers a stream for them."""
        for pause in mcp_errors.LISTENING_AGAIN:
            with contextlib.suppress(HttpFailure, AuthError):
                async with self._answered("GET") as response:
                    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                    if response.status != OK or kind != "text/event-stream":
                        return
                    await _read_events(response, on_message)
            await anyio.sleep(pause)

    @asynccontextmanager
    async def _answered(
        self, method: str, body: bytes | None = None, headers: Mapping[str, str] = NO_HEADERS
    ) -> AsyncIterator[HttpResponse]:
        """Send a request and yield its response. A refused token is refreshed once."""
        token = await self._token()
        async with self._http.send(self._request(method, body, headers, token)) as response:
            refused = response.status == UNAUTHORIZED and token is not None
            renewed = await self._token(token) if refused else None
            if renewed is None:
                yield response
                return
        async with self._http.send(self._request(method, body, headers, renewed)) as response:
            yield response

    async def _token(self, refused: str | None = None) -> str | None:
        """Return the token of the stored login, and not the token `refused`. None if there is no login or if it is
        over. Raises AuthError if a login cannot be refreshed for now.
        """
        if self._login is not None:
            with contextlib.suppress(McpLoginOver):
                if refused is not None:
                    return await self._login.renewed(self._name, self._url, refused)
                return await self._login.token(self._name, self._url)
        return None

    def _request(
        self, method: str, body: bytes | None, repeated: Mapping[str, str], token: str | None
    ) -> HttpRequest:
        headers = {**self._headers, **repeated}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        if self._session is not None and not self.is_modern:
            headers[SESSION_HEADER] = self._session
        if self.protocol_version is not None:
            headers[VERSION_HEADER] = self.protocol_version
        # Every request has a deadline of its own, which pauses while the user answers an elicitation.
        return HttpRequest(
            method=method,
            url=self._url,
            headers=headers,
            body=body,
            idle_seconds=math.inf,
            header_seconds=math.inf,
        )

    async def _read_messages(
        self, response: HttpResponse, on_message: OnMessage, key: int | None
    ) -> str | None:
        """Pass on the messages of a response to the request `key`, None for a message that is no request. Return the
        reason if the response is an error.
        """
        status, headers = response.status, response.headers
        if status == NOT_FOUND and self._in_session:
            raise _SessionOver
        if status == UNAUTHORIZED:
            return f"{mcp_errors.AUTH_REQUIRED} by {display_url(self._url)}"
        if status == FORBIDDEN:
            lacking = lacking_scopes(headers.get("www-authenticate", ""))
            if lacking is not None:
                return self._needs_scopes(lacking)
        if 300 <= status < 400:
            return f"{display_url(self._url)} leads elsewhere, which is not followed"
        success = 200 <= status < 300
        session = headers.get(SESSION_HEADER)
        if session and session.isascii() and session.isprintable() and success:
            self._session = session
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" and success:
            return await _read_events(response, on_message)
        if kind == "application/json":
            await _read_body(response, on_message, None if success else key)
        return None if success else f"{display_url(self._url)} answered {status}"

    def _needs_scopes(self, lacking: tuple[str, ...]) -> str:
        """Return the reason for a request that needs more scopes than its token has."""
        needs = f"{display_url(self._url)} needs more rights for this"
        needs += f": {', '.join(lacking)}" if lacking else ""
        granted = None if self._login is None else self._login.scopes(self._name, self._url)
        if granted is None or not lacking:
            return needs
        scopes = ",".join(dict.fromkeys((*plain_scopes(granted), *lacking)))
        return f"{needs}. Run `app-server mcp login {self._name} --scopes {scopes}`"


async def _read_body(response: HttpResponse, on_message: OnMessage, refused: int | None) -> None:
    """Pass on the messages of a body. `refused` is the request whose refusal it is; None if it is none."""
    body, size = bytearray(), 0
    async for chunk in response.chunks():
        size += len(chunk)
        if size <= mcp_errors.MAX_MESSAGE_BYTES:
            body += chunk
    if size > mcp_errors.MAX_MESSAGE_BYTES:
        left = oversized(bytes(body[: mcp_errors.KEPT_HEAD_BYTES]), size)
        if left is not None:
            on_message(left)
        return
    error = None if refused is None else error_of_request(refused, bytes(body))
    for message in parse(bytes(body)) if error is None else (error,):
        on_message(message)


async def _read_events(response: HttpResponse, on_message: OnMessage) -> str | None:
    decoder, budget = SseDecoder(mcp_errors.MAX_MESSAGE_BYTES), YieldBudget()
    try:
        async with aclosing(response.chunks()) as chunks:
            async for chunk in chunks:
                await _handle_frames(decoder.feed(chunk), on_message, budget)
        await _handle_frames(decoder.close(), on_message, budget)
    except EventTooLong:
        return f"an event of its answer is over the limit of {mcp_errors.MAX_MESSAGE_BYTES} bytes"
    return None


async def _handle_frames(frames: Iterable[SseFrame], on_message: OnMessage, budget: YieldBudget) -> None:
    for frame in frames:
        for message in parse(frame.data):
            on_message(message)
        await budget.spend(0)


def request_headers(name: str, transport: McpHttpTransport, user: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of every request to a server. Raises McpFailure if the configured token is missing."""
    headers = dict(transport.http_headers)
    headers |= {
        header: user[source].strip()
        for header, source in transport.env_http_headers.items()
        if user.get(source)
    }
    variable = transport.bearer_token_env_var
    if variable is not None:
        token = (user.get(variable) or "").strip()
        if not token:
            state = "is empty" if variable in user else "is not set"
            raise mcp_errors.McpFailure(f"Environment variable {variable} for MCP server '{name}' {state}")
        headers = {key: value for key, value in headers.items() if key.lower() != "authorization"}
        headers["Authorization"] = f"Bearer {token}"
    return headers


def display_url(url: str) -> str:
    """Return a URL for messages, without user and query, which may contain secrets."""
    start = origin(url)
    return "its URL" if start is None else start + urlsplit(url).path


@asynccontextmanager
async def open_http(name: str, transport: McpHttpTransport, runtime: McpRuntime) -> AsyncIterator[HttpLink]:
    """Open a session. A server whose settings name no token gets the token of a stored login.

    Raises McpFailure if the server's settings refer to a value that is missing.
    """
    user, tokens = runtime.environment, runtime.tokens
    try:
        address(transport.url)
    except ValueError:
        raise mcp_errors.McpFailure("its url is no URL of HTTP") from None
    chosen = {key.lower(): value.strip() for key, value in request_headers(name, transport, user).items()}
    headers = USUALLY_SENT | chosen | ALWAYS_SENT
    login = None if tokens is None or transport.sends_token else tokens()
    http = LazyHttp(user)
    link = HttpLink(name, transport.url, headers, http, login)
    try:
        yield link
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(2 * FAREWELL_SECONDS):
            await link.close()
            await http.aclose()
