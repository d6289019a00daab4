"""Hooks of a program: functions that the server asks about events of the program's threads, without files and consent.

    hooks = Hooks()

    @hooks.on("PreToolUse", "Bash")
    def guard(call: HookCall) -> HookReply | None:
        return call.deny("not on my watch") if "rm -rf" in call.command else None

    async with AppServer.spawn(hooks=hooks) as server: ...

A function that fails or takes longer than `timeout` has not agreed: what it guards is asked about, or blocked.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.client.answering import call_handler
from app_server.client.connection import ServerConnection
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import INTERNAL_ERROR, Request, RequestId
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.v2.hook_runs import HookRunResponse

log = logging.getLogger(__name__)

PATCHES: Final = frozenset({"apply_patch", "Edit", "Write"})
"""Names of the tool that applies patches, any of which stands for all."""


class HookReply(Struct, frozen=True):
    """The answer to an event. The methods of `HookCall` make it."""

    answer: Mapping[str, Json]


class HookCall(Struct, frozen=True):
    """An event of a thread. `input` has what a command would read as its input."""

    event: str
    thread_id: str
    turn_id: str | None
    input: Mapping[str, Json]

    @property
    def tool(self) -> str:
        """The name of the tool; empty for events without one."""
        return str(self.input.get("tool_name") or "")

    @property
    def command(self) -> str:
        """The command line of a command, or the text of a patch; empty for other events."""
        given = self.input.get("tool_input")
        return str(given.get("command") or "") if isinstance(given, dict) else ""

    @property
    def prompt(self) -> str:
        """The user's words; empty for other events."""
        return str(self.input.get("prompt") or "")

    def deny(self, reason: str) -> HookReply:
        """Refuse the call or the message. Of `Stop`: let the turn go on, and give the model the reason."""
        return HookReply({"decision": "block", "reason": reason})

    def ask(self, reason: str) -> HookReply:
        """Let the user be asked about the call."""
        return self._own(permissionDecision="ask", permissionDecisionReason=reason)

    def allow(self) -> HookReply:
        """Answer the question about this call with yes, as far as this client may."""
        if self.event == "PermissionRequest":
            return self._own(decision={"behavior": "allow"})
        return self._own(permissionDecision="allow")

    def change(self, tool_input: Mapping[str, Json]) -> HookReply:
        """Make the call with another input, which is judged anew."""
        return self._own(updatedInput=dict(tool_input))

    def context(self, text: str) -> HookReply:
        """Tell the model something."""
        return self._own(additionalContext=text)

    def end_turn(self, reason: str) -> HookReply:
        """End the turn; the user is shown the reason."""
        return HookReply({"continue": False, "stopReason": reason})

    def _own(self, **fields: Json) -> HookReply:
        return HookReply({"hookSpecificOutput": {"hookEventName": self.event, **fields}})


HookFunction: TypeAlias = Callable[[HookCall], HookReply | Awaitable[HookReply | None] | None]
"""A hook. A coroutine function runs in the event loop, a plain function in a worker thread."""

F = TypeVar("F", bound=HookFunction)


class Hooks:
    """The hooks of a program, for `AppServer.spawn` and `connect`."""

    def __init__(self, *, timeout: int = 60) -> None:
        """`timeout`: time limit of an answer in seconds."""
        self._timeout = timeout
        self._functions: list[tuple[str, frozenset[str], HookFunction]] = []

    def on(self, event: str, *tools: str) -> Callable[[F], F]:
        """Register a function for an event, such as `PreToolUse`: for calls of these tools, or for all."""

        def register(function: F) -> F:
            names = frozenset(tools) | (PATCHES if PATCHES.intersection(tools) else frozenset())
            self._functions.append((event, names, function))
            return function

        return register

    def announcement(self) -> Json:
        """Return `capabilities.hooks`; None if there are no functions."""
        if not self._functions:
            return None
        events = sorted({event for event, _, _ in self._functions})
        tools = {name for _, names, _ in self._functions for name in names}
        alone = all(names for _, names, _ in self._functions)
        return {
            "events": events,
            "timeoutSec": self._timeout,
            **({"matcher": "|".join(sorted(tools))} if alone else {}),
        }

    async def answer(self, call: HookCall) -> Mapping[str, Json]:
        """Return the answer of the first function that has one."""
        for event, tools, function in self._functions:
            if event == call.event and (not tools or call.tool in tools):
                reply = await call_handler(function, call)
                if reply is not None:
                    return reply.answer
        return {}


class HookAnswerer:
    """Answers `hook/run` requests, each in a task of its own."""

    def __init__(self, hooks: Hooks, group: TaskGroup) -> None:
        self._hooks, self._group = hooks, group
        self._open: dict[RequestId, anyio.CancelScope] = {}

    def asked(self, request: Request, connection: ServerConnection) -> None:
        scope = self._open[request.id] = anyio.CancelScope()
        self._group.start_soon(self._answer, request, connection, scope)

    def withdraw(self, id: RequestId) -> None:
        """Cancel the function of a request that needs no answer any more."""
        if (scope := self._open.get(id)) is not None:
            scope.cancel()

    async def _answer(self, request: Request, connection: ServerConnection, scope: anyio.CancelScope) -> None:
        params = request.params if isinstance(request.params, dict) else {}
        given = params.get("input")
        call = HookCall(
            event=str(params.get("event")),
            thread_id=str(params.get("threadId")),
            turn_id=params.get("turnId"),
            input=given if isinstance(given, dict) else {},
        )
        with scope:
            try:
                answer = await self._hooks.answer(call)
            except Exception as error:
                log.exception("a hook for %s failed; it has not agreed", call.event)
                connection.refuse(request.id, RpcError(INTERNAL_ERROR, f"the hook failed: {error!r}"[:200]))
                return
            finally:
                self._open.pop(request.id, None)
            connection.respond(request.id, HookRunResponse.model_validate(answer))
