"""The client's half of a conversation with one server: requests and their answers, and what the server asks
of us.

Knows nothing of processes or HTTP. An answer belongs to the request whose id it carries, the first one
counts, and whoever asked waits no longer than told.
"""

from __future__ import annotations

import logging
import math
from dataclasses import field

import anyio
from anyio.abc import TaskGroup

from app_server.core.errors import CoreError
from app_server.core.mcp.contract import (
    Answer,
    Elicit,
    ElicitationAnswer,
    ElicitationRequest,
    Incoming,
    Link,
    McpFailure,
    Refusal,
    Request,
)
from app_server.core.mcp.failures import HANDSHAKE, TRANSPORT_CLOSED, UNEXPECTED, timed_out
from app_server.core.mcp.limits import MAX_ERROR_CHARS, MAX_OPEN_ELICITATIONS, MAX_PAGES
from app_server.core.mcp.messages import METHOD_NOT_FOUND
from protocol.base import Json
from protocol.records import dataclass

log = logging.getLogger(__name__)

PROTOCOL_VERSION = "2025-06-18"


class RequestFailed(McpFailure):
    """One request came to nothing. `causes` tells why, outermost first."""

    def __init__(self, *causes: str, code: int | None = None) -> None:
        super().__init__(": ".join(causes))
        self.causes = causes
        self.code = code


@dataclass(slots=True, eq=False)
class _Waiter:
    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Answer | Refusal | None = None


class McpClient:
    """One open connection; `serve` runs as long as it is."""

    def __init__(self, server: str, link: Link, version: str, elicit: Elicit | None = None) -> None:
        self._server = server
        self._link = link
        self._version = version
        self._elicit = elicit
        self._next = 0
        self._waiters: dict[int, _Waiter] = {}
        self._deadlines: set[anyio.CancelScope] = set()
        self._asking = 0
        self._tasks: TaskGroup | None = None
        self.closed = anyio.Event()
        self.capabilities: frozenset[str] = frozenset()

    async def serve(self) -> None:
        """Returns when the connection is over; whoever still waits is told so."""
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._link.run(self._take)
                self._tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            self.closed.set()
            for waiter in self._waiters.values():
                waiter.done.set()

    async def initialize(self) -> None:
        """The handshake; raises McpFailure. Any version that the server names is spoken: what is used is in
        all."""
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {} if self._elicit is None else {"elicitation": {}},
            "clientInfo": {"name": "app-server-mcp-client", "title": "App Server", "version": self._version},
        }
        outcome = await self._exchange("initialize", params)
        if outcome is None:
            raise McpFailure(f"{HANDSHAKE}connection closed: initialize response")
        if isinstance(outcome, Refusal):
            raise McpFailure(HANDSHAKE + outcome.reason)
        result = outcome.result
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if (
            not isinstance(version, str)
            or not version.isascii()
            or not version.isprintable()
            or len(version) > 40
        ):
            raise McpFailure(f"{HANDSHAKE}its answer to initialize names no protocol version")
        offered = result.get("capabilities")
        self.capabilities = frozenset(offered) if isinstance(offered, dict) else frozenset()
        self._link.agreed(version)
        await self._link.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def request(self, method: str, params: Json, seconds: float) -> Json:
        """The result of one request. Raises RequestFailed; a request that was given up is cancelled at the
        server."""
        outcome: Answer | Refusal | None = None
        with anyio.move_on_after(seconds) as scope:
            self._deadlines.add(scope)
            try:
                outcome = await self._exchange(method, params)
            finally:
                self._deadlines.discard(scope)
        if scope.cancelled_caught:
            raise RequestFailed(*timed_out(method, seconds))
        if outcome is None:
            raise RequestFailed(f"{method} failed: {TRANSPORT_CLOSED}")
        if isinstance(outcome, Refusal):
            raise RequestFailed(f"{method} failed: {outcome.reason}", code=outcome.code)
        return outcome.result

    async def collect(self, method: str, key: str, limit: int, seconds: float = math.inf) -> list[Json]:
        """Every page of a list. Ends at a cursor that was seen before, after MAX_PAGES, and at `limit`
        entries."""
        found: list[Json] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            result = await self.request(method, {} if cursor is None else {"cursor": cursor}, seconds)
            found += entries(method, result, key)
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor in seen or len(found) >= limit:
                break
            seen.add(cursor)
        return found[:limit]

    async def _exchange(self, method: str, params: Json) -> Answer | Refusal | None:
        """None where the connection ended first."""
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

    def _take(self, message: Incoming) -> None:
        if isinstance(message, Request):
            self._answer(message)
            return
        waiter = self._waiters.get(message.id)
        if waiter is not None and waiter.outcome is None:
            waiter.outcome = message
            waiter.done.set()

    def _answer(self, request: Request) -> None:
        if request.method == "ping":
            self._reply(request, {})
        elif request.method == "elicitation/create":
            if self._elicit is None or self._tasks is None or self._asking >= MAX_OPEN_ELICITATIONS:
                self._reply(request, {"action": "decline"})
            else:
                self._asking += 1
                self._tasks.start_soon(self._ask, request, self._elicit)
        else:
            error = {"code": METHOD_NOT_FOUND, "message": "this client does not offer that"}
            self._link.send_soon({"jsonrpc": "2.0", "id": request.id, "error": error})

    def _reply(self, request: Request, result: Json) -> None:
        self._link.send_soon({"jsonrpc": "2.0", "id": request.id, "result": result})

    async def _ask(self, request: Request, elicit: Elicit) -> None:
        """Puts a question to the user. The time that the user takes is not held against the calls that wait
        for it."""
        begun, paused = anyio.current_time(), {scope: scope.deadline for scope in self._deadlines}
        for scope in paused:
            scope.deadline = math.inf
        try:
            answer = await self._put(request, elicit)
        finally:
            self._asking -= 1
            for scope, deadline in paused.items():
                scope.deadline = deadline + anyio.current_time() - begun
        accepted = answer.action == "accept"
        self._reply(
            request, {"action": answer.action} | ({"content": answer.content or {}} if accepted else {})
        )

    async def _put(self, request: Request, elicit: Elicit) -> ElicitationAnswer:
        params = request.params if isinstance(request.params, dict) else {}
        message = str(params.get("message", ""))[:MAX_ERROR_CHARS]
        try:
            return await elicit(ElicitationRequest(self._server, message, params.get("requestedSchema")))
        except CoreError as error:
            log.warning("a question of MCP server %s could not be asked: %s", self._server, error)
            return ElicitationAnswer("cancel")


def entries(method: str, result: Json, key: str) -> list[Json]:
    """The list called `key` in a result. Raises RequestFailed where it is none."""
    found = result.get(key) if isinstance(result, dict) else None
    if not isinstance(found, list):
        raise RequestFailed(f"{method} failed: {UNEXPECTED}")
    return found
