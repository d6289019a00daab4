"""Services that MCP servers need from the rest of the engine to start, and their questions to the user.

This module is loaded even if no server is configured.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import McpServerStateChanged
from app_server_protocol.values import Redacted

if TYPE_CHECKING:
    from app_server.engine.auth.mcp_tokens import McpTokenSource
    from app_server.engine.sandbox.exec.command_runner import CommandRunner


DISCOVERS_FIRST: Final = "mcp_2026_07_28"
"""Feature with which connections over HTTP begin with `server/discover`."""


class ElicitationRequest(Struct, frozen=True):
    """A server's question to the user during a tool call."""

    server: str
    message: str
    requested_schema: Json = None


class ElicitationResult(Struct, frozen=True):
    """The user's answer. `action` is accept, decline or cancel; `content` belongs to accept."""

    action: str = "decline"
    content: Json = None


Elicit = Callable[[ElicitationRequest], Awaitable[ElicitationResult]]


class McpRuntime(Redacted, frozen=True, kw_only=True):
    """Services and data that the servers of a conversation need to start."""

    HIDDEN = ("environment",)

    environment: Mapping[str, str]
    """The user's environment; a server receives an allow-list of it."""
    home: str
    """Home directory of this program, in which servers have folders of their own."""
    cwd: str
    """The conversation's folder, which servers receive as a root."""
    runner: CommandRunner
    """Runner that starts server processes. They never outlive this process, not even after `kill -9`."""
    version: str
    """Version of this program, for the handshake."""
    discovers_first: bool = False
    """Whether connections over HTTP begin with `server/discover` instead of the handshake."""
    elicit: Elicit | None = None
    """Function that sends a server's question to the user. None if every elicitation is declined."""
    tokens: Callable[[], McpTokenSource] | None = None
    """Function that returns the token source of stored logins. Only servers over HTTP need it."""
    on_state: Callable[[McpServerStateChanged], None] | None = None
    """Callback for when a server starts, has started, or failed to start. It is not called for a restart after the
    server died.
    """
