"""One MCP connection, independent of its transport: our requests with their replies, and the server's requests.

A reply belongs to the request with the same id, and only the first one counts. Every request has a timeout.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct
from pydantic_core import to_json

from app_server.engine.mcp import mcp_errors
from app_server.engine.mcp.rpc_messages import (
    METHOD_NOT_FOUND,
    Incoming,
    McpError,
    McpReply,
    McpServerRequest,
    McpToolsChanged,
)
from app_server.engine.mcp.runtime_interface import Elicit, ElicitationRequest, ElicitationResult
from app_server.engine.mcp.tool_catalog import ServerIntroduction
from app_server.engine.support.engine_errors import CoreError
from app_server_protocol.encoding import Json

log = logging.getLogger(__name__)

PROTOCOL_VERSION = "2025-06-18"


OnMessage = Callable[[Incoming], None]


class McpTransport(ABC):
    """One open connection to one server over any transport. The link handles bytes and HTTP, the client the methods.

    If the outgoing queue is full, `send` waits, and `send_soon` drops the message.
    """

    def __init__(self) -> None:
        self._outgoing, self._waiting = anyio.create_memory_object_stream[Json](mcp_errors.OUTGOING_QUEUE)
        self.protocol_version: str | None = None
        """Negotiated protocol version. None before the handshake."""
        self.announces = False
        """Whether the server notifies of changes of its tools."""

    @abstractmethod
    async def receive(self, on_message: OnMessage) -> None:
        """Pass incoming messages to `on_message`; return when the connection closes."""

    async def send(self, message: Json) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._outgoing.send(message)

    def send_soon(self, message: Json) -> None:
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._outgoing.send_nowait(message)

    def end_queue(self) -> None:
        self._outgoing.close()
        self._waiting.close()


class McpRequestFailed(mcp_errors.McpFailure):
    """One request failed. `causes` are the reasons, outermost first."""

    def __init__(self, *causes: str, code: int | None = None) -> None:
        super().__init__(": ".join(causes))
        self.causes = causes
        self.code = code


class McpSessionLost(McpRequestFailed):
    """The server has forgotten the session of the request, and has not processed it."""


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
        self._server = server
        self._link = link
        self._version = version
        self._elicit = elicit
        self._roots = roots
        self._on_tools_changed = on_tools_changed
        self._next = 0
        self._waiters: dict[int, _Waiter] = {}
        self._deadlines: set[anyio.CancelScope] = set()
        self._open_elicitations = 0
        self._tasks: TaskGroup | None = None
        self.closed = anyio.Event()
        self.capabilities: frozenset[str] = frozenset()
        self.introduction = ServerIntroduction()

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

    async def initialize(self) -> None:
        """Perform the handshake. It accepts any protocol version: this client uses only what all versions have. Raises
        McpFailure.
        """
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": ({} if self._elicit is None else {"elicitation": {}})
            | ({"roots": {}} if self._roots else {}),
            "clientInfo": {"name": "app-server-mcp-client", "title": "App Server", "version": self._version},
        }
        outcome = await self._exchange("initialize", params)
        if outcome is None:
            raise mcp_errors.McpFailure(f"{mcp_errors.HANDSHAKE}connection closed: initialize response")
        if isinstance(outcome, McpError):
            raise mcp_errors.McpFailure(mcp_errors.HANDSHAKE + outcome.reason)
        result = outcome.result
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if (
            not isinstance(version, str)
            or not version.isascii()
            or not version.isprintable()
            or len(version) > 40
        ):
            raise mcp_errors.McpFailure(
                f"{mcp_errors.HANDSHAKE}its answer to initialize names no protocol version"
            )
        offered, info = result.get("capabilities"), result.get("serverInfo")
        self.capabilities = frozenset(offered) if isinstance(offered, dict) else frozenset()
        self.introduction = ServerIntroduction(_short(info), _short(offered))
        self._link.protocol_version = version
        self._link.announces = announces_tools(offered)
        await self._link.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def request(self, method: str, params: Json, seconds: float) -> Json:
        """Return the result of one request. Raises McpRequestFailed. After a timeout, the server is notified."""
        outcome: McpReply | McpError | None = None
        with anyio.move_on_after(seconds) as scope:
            self._deadlines.add(scope)
            try:
                outcome = await self._exchange(method, params)
            finally:
                self._deadlines.discard(scope)
        if scope.cancelled_caught:
            raise McpRequestFailed(*mcp_errors.timed_out(method, seconds))
        if outcome is None:
            raise McpRequestFailed(f"{method} failed: {mcp_errors.TRANSPORT_CLOSED}")
        if isinstance(outcome, McpError):
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
        elif request.method == "roots/list" and self._roots:
            roots = [{"uri": Path(root).as_uri(), "name": Path(root).name} for root in self._roots]
            self._reply(request, {"roots": roots})
        elif request.method == "elicitation/create":
            if (
                self._elicit is None
                or self._tasks is None
                or self._open_elicitations >= mcp_errors.MAX_OPEN_ELICITATIONS
            ):
                self._reply(request, {"action": "decline"})
            else:
                self._open_elicitations += 1
                self._tasks.start_soon(self._elicit_and_reply, request, self._elicit)
        else:
            error = {"code": METHOD_NOT_FOUND, "message": "this client does not offer that"}
            self._link.send_soon({"jsonrpc": "2.0", "id": request.id, "error": error})

    def _reply(self, request: McpServerRequest, result: Json) -> None:
        self._link.send_soon({"jsonrpc": "2.0", "id": request.id, "result": result})

    async def _elicit_and_reply(self, request: McpServerRequest, elicit: Elicit) -> None:
        """Send an elicitation to the user and the result to the server. Deadlines of pending calls pause until then."""
        begun, paused = anyio.current_time(), {scope: scope.deadline for scope in self._deadlines}
        for scope in paused:
            scope.deadline = math.inf
        try:
            result = await self._request_elicitation(request, elicit)
        finally:
            self._open_elicitations -= 1
            for scope, deadline in paused.items():
                scope.deadline = deadline + anyio.current_time() - begun
        accepted = result.action == "accept"
        self._reply(
            request, {"action": result.action} | ({"content": result.content or {}} if accepted else {})
        )

    async def _request_elicitation(self, request: McpServerRequest, elicit: Elicit) -> ElicitationResult:
        params = request.params if isinstance(request.params, dict) else {}
        message = str(params.get("message", ""))[: mcp_errors.MAX_ERROR_CHARS]
        try:
            return await elicit(ElicitationRequest(self._server, message, params.get("requestedSchema")))
        except CoreError as error:
            log.warning("an elicitation of MCP server %s failed: %s", self._server, error)
            return ElicitationResult("cancel")


def announces_tools(capabilities: Json) -> bool:
    """Return whether a server declares that it notifies of changes of its tools."""
    tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
    return isinstance(tools, dict) and tools.get("listChanged") is True


def _short(value: Json) -> Json:
    """Return the value for display by clients; None if it is too long."""
    return value if len(to_json(value)) <= mcp_errors.MAX_INTRODUCTION_BYTES else None


def entries(method: str, result: Json, key: str) -> list[Json]:
    """Return the list called `key` in a result. Raises McpRequestFailed if it is not a list."""
    found = result.get(key) if isinstance(result, dict) else None
    if not isinstance(found, list):
        raise McpRequestFailed(f"{method} failed: {mcp_errors.UNEXPECTED}")
    return found
