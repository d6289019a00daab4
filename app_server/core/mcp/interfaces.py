"""What MCP servers need of the rest of the engine to start, and the questions that they put to the user. Loaded also
where no server is configured.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server_protocol.engine.events import McpServerStateChanged
from app_server_protocol.structs import Discreet, Json

if TYPE_CHECKING:
    from app_server.core.auth.mcp_tokens import McpTokenSource
    from app_server.core.exec.runner import CommandRunner


class ElicitationRequest(Struct, frozen=True):
    """A server's question to the user during a tool call."""

    server: str
    message: str
    requested_schema: Json = None


class ElicitationResult(Struct, frozen=True):
    """`action` is accept, decline or cancel; `content` is for accept."""

    action: str = "decline"
    content: Json = None


Elicit = Callable[[ElicitationRequest], Awaitable[ElicitationResult]]


class McpRuntime(Discreet, frozen=True, kw_only=True):
    """Surroundings that the servers of a conversation need to start."""

    HIDDEN = ("environment",)

    environment: Mapping[str, str]
    """The user's environment; a server receives an allow-list of it."""
    home: str
    """In which servers have folders of their own."""
    cwd: str
    """The conversation's folder, of which servers learn as a root."""
    runner: CommandRunner
    """Starts server processes, which never outlive this one, not even after `kill -9`."""
    version: str
    """Of this program, for the handshake."""
    elicit: Elicit | None = None
    """Sends a server's question to the user; without it, every elicitation is declined."""
    tokens: Callable[[], McpTokenSource] | None = None
    """Gives those of logins at servers, which only servers over HTTP need."""
    on_state: Callable[[McpServerStateChanged], None] | None = None
    """Called when a server starts, has started, or failed to start; not when it is started again after it died."""
