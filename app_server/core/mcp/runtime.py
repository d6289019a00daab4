"""What the MCP servers of a conversation need to start. Apart from the servers, which most conversations do without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from app_server.core.mcp.interfaces import Elicit, ProcessSpawner
from protocol.engine.events import McpServerStateChanged
from protocol.records import dataclass

if TYPE_CHECKING:
    from app_server.core.auth.mcp_tokens import McpTokenSource

LoadTokens = Callable[[], "McpTokenSource"]
OnState = Callable[[McpServerStateChanged], None]


def ignore_state(change: McpServerStateChanged) -> None:
    """Nobody is interested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRuntime:
    """What the servers of a conversation need to start."""

    environment: Mapping[str, str] = field(repr=False)
    """The user's environment; a server receives an allow-list of it."""
    home: str
    """In which servers have folders of their own."""
    cwd: str
    """The conversation's folder, of which servers learn as a root."""
    spawner: ProcessSpawner
    version: str
    """Of this program, for the handshake."""
    elicit: Elicit | None = None
    """Sends a server's question to the user; without it, every elicitation is declined."""
    tokens: LoadTokens | None = None
    """Gives those of logins at servers, which only servers over HTTP need."""
    on_state: OnState = ignore_state
    """Called when a server starts, has started, or failed to start; not when it is started again after it died."""
