"""Finds the era that a server speaks, and opens the connection in it.

The handshake comes first, because many servers end or fall silent at any other message. An error as its answer leads to
`server/discover`. The handshake accepts any protocol version: this client uses only what all of them have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from pydantic_core import to_json

from app_server.engine.mcp import mcp_errors
from app_server.engine.mcp.mcp_era import (
    LEGACY_VERSION,
    MODERN_VERSION,
    read_discovery,
    supported_versions,
    unknown_versions,
)
from app_server.engine.mcp.mcp_transport import McpTransport
from app_server.engine.mcp.rpc_messages import McpError, McpReply
from app_server.engine.mcp.tool_catalog import ServerIntroduction
from app_server_protocol.encoding import Json

DISCOVER: Final = "server/discover"

Exchange = Callable[[str, Json], Awaitable[McpReply | McpError | None]]


class EraNegotiation:
    """The opening of one connection."""

    def __init__(self, link: McpTransport, exchange: Exchange, handshake: Json) -> None:
        """`exchange` sends a request and returns its outcome, None if the connection closes first. `handshake` has the
        client's parameters of `initialize`.
        """
        self._link, self._exchange, self._handshake = link, exchange, handshake
        self.introduction = ServerIntroduction()
        self.refusal: str | None = None

    async def run(self, *, discover_first: bool) -> None:
        """Open the connection. With `discover_first` the handshake is the second attempt, else the first. Raises
        McpFailure.
        """
        named: tuple[str, ...] = ()
        if discover_first:
            named = await self._discover()
            if self._link.is_modern:
                return
        outcome = await self._exchange("initialize", {"protocolVersion": LEGACY_VERSION, **self._handshake})
        if outcome is None:
            raise mcp_errors.McpFailure(f"{mcp_errors.HANDSHAKE}connection closed: initialize response")
        if isinstance(outcome, McpReply):
            await self._accept_handshake(outcome.result)
            return
        self.refusal = outcome.reason
        if outcome.code is not None:
            named = supported_versions(outcome.data) or named
            if not discover_first:
                with anyio.move_on_after(mcp_errors.DISCOVERY_SECONDS):
                    named = await self._discover() or named
                if self.introduction.revision is not None:
                    return
        reason = unknown_versions(named) if named and MODERN_VERSION not in named else self.refusal
        raise mcp_errors.McpFailure(mcp_errors.HANDSHAKE + reason)

    async def _accept_handshake(self, result: Json) -> None:
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
        offered = result.get("capabilities")
        self._introduce(result.get("serverInfo"), offered, version)
        self._link.announces = announces_tools(offered)
        await self._link.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _discover(self) -> tuple[str, ...]:
        """Ask the server for the revisions that it supports, and stay in the new era if it speaks it. Return the
        revisions that it named. Raises McpFailure if it requires a login.
        """
        self._link.is_modern, self._link.protocol_version = True, MODERN_VERSION
        outcome = await self._exchange(DISCOVER, {})
        found = read_discovery(outcome.result) if isinstance(outcome, McpReply) else None
        if found is not None and MODERN_VERSION in found.versions:
            self._introduce(found.info, found.capabilities, MODERN_VERSION)
            self._link.announces = announces_tools(found.capabilities)
            return found.versions
        self._link.is_modern, self._link.protocol_version = False, None
        if isinstance(outcome, McpError):
            if mcp_errors.AUTH_REQUIRED in outcome.reason:
                raise mcp_errors.McpFailure(mcp_errors.HANDSHAKE + outcome.reason)
            return supported_versions(outcome.data)
        return () if found is None else found.versions

    def _introduce(self, info: Json, offered: Json, version: str) -> None:
        declared = frozenset(offered) if isinstance(offered, dict) else frozenset()
        self.introduction = ServerIntroduction(_short(info), _short(offered), version, declared)
        self._link.protocol_version, self.refusal = version, None


def announces_tools(capabilities: Json) -> bool:
    """Return whether a server declares that it notifies of changes of its tools."""
    tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
    return isinstance(tools, dict) and tools.get("listChanged") is True


def _short(value: Json) -> Json:
    """Return the value for display by clients; None if it is too long."""
    return value if len(to_json(value)) <= mcp_errors.MAX_INTRODUCTION_BYTES else None
