"""One MCP connection, independent of its transport: our requests with their replies, and the server's requests.

A reply belongs to the request with the same id, and only the first one counts. Every request has a timeout.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.mcp import input_rounds, mcp_errors
from app_server.engine.mcp.era_negotiation import EraNegotiation
from app_server.engine.mcp.mcp_era import (
    HEADERS_DIFFER,
    stamped,
)
from app_server.engine.mcp.mcp_transport import McpRequestFailed, McpSessionLost, McpTransport
from app_server.engine.mcp.rpc_messages import (
    METHOD_NOT_FOUND,
    Incoming,
    McpError,
    McpReply,
    McpServerRequest,
    McpToolsChanged,
)
from app_server.engine.mcp.runtime_interface import Elicit
from app_server.engine.mcp.server_questions import DECLINED, FORM, ROOTS, ServerQuestions, TimeLimit
from app_server.engine.mcp.tool_catalog import ServerIntroduction, ServerTool
from app_server_protocol.encoding import Json

LISTEN: Final = "subscriptions/listen"

log = logging.getLogger(__name__)


class _Waiter(Struct, eq=False):
    done: anyio.Event = msgspec.field(default_factory=anyio.Event)
    outcome: McpReply | McpError | None = None


class McpClient:
    """One open connection; `serve` runs until it is closed."""

    def __init__(
        self,
        server: str,
        link: McpTransport,
        version: str,
        elicit: Elicit | None = None,
        roots: tuple[str, ...] = (),
        on_tools_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`roots` are folders that are revealed to the server on request. `on_tools_changed` is called when the server
        notifies that its tools changed.
        """
        self._link = link
        self._info = {"name": "app-server-mcp-client", "title": "App Server", "version": version}
        self._questions = ServerQuestions(server, elicit, roots)
        self._on_tools_changed = on_tools_changed
        self._next = 0
        self._waiters: dict[int, _Waiter] = {}
        self._limits: set[TimeLimit] = set()
        self._tasks: TaskGroup | None = None
        self.closed = anyio.Event()
        handshake = {"capabilities": self._questions.capabilities, "clientInfo": self._info}
        self._negotiation = EraNegotiation(link, self._exchange, handshake)

    async def serve(self) -> None:
        """Dispatch messages until the connection closes; then all pending requests fail."""
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._link.receive(self._on_message)
                self._tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            self.closed.set()
            for waiter in self._waiters.values():
                waiter.done.set()

    @property
    def is_modern(self) -> bool:
        """Whether the server is spoken to in the stateless era."""
        return self._link.is_modern

    async def open(self, *, discover_first: bool = False) -> None:
        """Find the server's era, and introduce this client. Raises McpFailure."""
        await self._negotiation.run(discover_first=discover_first)

    @property
    def introduction(self) -> ServerIntroduction:
        return self._negotiation.introduction

    @property
    def refusal(self) -> str | None:
        """Reason of the server's refusal of the handshake, until a connection is open; None if it is not refused."""
        return self._negotiation.refusal

    def use_tools(self, tools: Iterable[ServerTool]) -> None:
        """Repeat the marked parameters of these tools in headers."""
        self._link.mirrored = {tool.tool: tool.mirrored for tool in reversed(tuple(tools)) if tool.mirrored}

    async def request(self, method: str, params: Json, seconds: float) -> Json:
        """Return the result of one request, after all questions of the server. Raises McpRequestFailed. After a
        timeout, the server is notified.
        """
        limit = TimeLimit(seconds)
        with limit.scope:
            self._limits.add(limit)
            try:
                if not self.is_modern:
                    return await self._result(method, params)
                return await input_rounds.complete(
                    method,
                    params,
                    partial(self._result, method),
                    partial(self._questions.answer, (limit,)),
                    self._questions.offered,
                )
            except input_rounds.UnusableResult as error:
                raise McpRequestFailed(f"{method} failed: {error}") from None
            finally:
                self._limits.discard(limit)
        raise McpRequestFailed(*mcp_errors.timed_out(method, seconds))

    async def listen(self) -> None:
        """Listen for changes of the tools at a server of the stateless era that announces them, for as long as it lets.
        The tools count as changed whenever listening begins again.
        """
        if not (self.is_modern and self._link.announces):
            return
        for pause in mcp_errors.LISTENING_AGAIN:
            try:
                await self._result(LISTEN, {"notifications": {"toolsListChanged": True}})
            except McpRequestFailed as error:
                if error.code is not None or self.closed.is_set():
                    return
            await anyio.sleep(pause)
            self._on_tools_changed()

    async def _result(self, method: str, params: Json) -> Json:
        """Return the result of one message. Raises McpRequestFailed."""
        outcome = await self._exchange(method, params)
        if outcome is None:
            raise McpRequestFailed(f"{method} failed: {mcp_errors.TRANSPORT_CLOSED}")
        if isinstance(outcome, McpError):
            if self.is_modern and outcome.code == HEADERS_DIFFER:
                raise McpRequestFailed(f"{method} failed: {mcp_errors.TOOLS_CHANGED}", outcome.reason)
            failure = McpSessionLost if outcome.session_lost else McpRequestFailed
            raise failure(f"{method} failed: {outcome.reason}", code=outcome.code)
        return outcome.result

    async def collect(self, method: str, key: str, limit: int, seconds: float = math.inf) -> list[Json]:
        """Collect all pages of a list, up to a repeated cursor, MAX_PAGES pages or `limit` entries."""
        found: list[Json] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(mcp_errors.MAX_PAGES):
            result = await self.request(method, {} if cursor is None else {"cursor": cursor}, seconds)
            found += entries(method, result, key)
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor in seen or len(found) >= limit:
                break
            seen.add(cursor)
        return found[:limit]

    async def _exchange(self, method: str, params: Json) -> McpReply | McpError | None:
        """Send a request and return its outcome; None if the connection closes first."""
        if self.closed.is_set():
            return None
        if self.is_modern:
            params = stamped(params, self._info, self._questions.capabilities)
        key, self._next = self._next, self._next + 1
        waiter = self._waiters[key] = _Waiter()
        try:
            await self._link.send({"jsonrpc": "2.0", "id": key, "method": method, "params": params})
            await waiter.done.wait()
        except BaseException:
            if method != "initialize":
                params = {"requestId": key, "reason": "the client gave up waiting"}
                self._link.send_soon(
                    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                )
            raise
        finally:
            del self._waiters[key]
        return waiter.outcome

    def _on_message(self, message: Incoming) -> None:
        if isinstance(message, McpServerRequest):
            self._on_request(message)
            return
        if isinstance(message, McpToolsChanged):
            self._on_tools_changed()
            return
        waiter = self._waiters.get(message.id)
        if waiter is not None and waiter.outcome is None:
            waiter.outcome = message
            waiter.done.set()

    def _on_request(self, request: McpServerRequest) -> None:
        if request.method == "ping":
            self._reply(request, {})
        elif request.method == ROOTS and ROOTS in self._questions.offered:
            self._reply(request, self._questions.roots())
        elif request.method == FORM:
            if self._tasks is None or not self._questions.reaches_user(request.params):
                self._reply(request, DECLINED)
            else:
                self._tasks.start_soon(self._elicit_and_reply, request)
        else:
            error = {"code": METHOD_NOT_FOUND, "message": "this client does not offer that"}
            self._link.send_soon({"jsonrpc": "2.0", "id": request.id, "error": error})

    def _reply(self, request: McpServerRequest, result: Json) -> None:
        self._link.send_soon({"jsonrpc": "2.0", "id": request.id, "result": result})

    async def _elicit_and_reply(self, request: McpServerRequest) -> None:
        self._reply(request, await self._questions.ask_user(tuple(self._limits), request.params))


def entries(method: str, result: Json, key: str) -> list[Json]:
    """Return the list called `key` in a result. Raises McpRequestFailed if it is not a list."""
    found = result.get(key) if isinstance(result, dict) else None
    if not isinstance(found, list):
        raise McpRequestFailed(f"{method} failed: {mcp_errors.UNEXPECTED}")
    return found
