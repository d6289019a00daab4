"""The interface of a connection to an MCP server over any transport: a queue for outgoing messages, and a callback for
incoming ones. And the failures of requests over it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress

import anyio

from app_server.engine.mcp import mcp_errors
from app_server.engine.mcp.mcp_era import MirroredParameter
from app_server.engine.mcp.rpc_messages import Incoming
from app_server_protocol.encoding import Json

OnMessage = Callable[[Incoming], None]


class McpTransport(ABC):
    """One open connection to one server over any transport. The link handles bytes and HTTP, the client the methods.

    If the outgoing queue is full, `send` waits, and `send_soon` drops the message.
    """

    def __init__(self) -> None:
        self._outgoing, self._waiting = anyio.create_memory_object_stream[Json](mcp_errors.OUTGOING_QUEUE)
        self.protocol_version: str | None = None
        """Negotiated protocol version. None before the handshake."""
        self.is_modern = False
        """Whether the server is spoken to in the stateless era, which begins with the revision 2026-07-28."""
        self.mirrored: Mapping[str, tuple[MirroredParameter, ...]] = {}
        """Parameters that headers repeat, by tool."""
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
