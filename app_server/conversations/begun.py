"""A request that opens a conversation and was answered before the server was loaded. Fast to import."""

from __future__ import annotations

from collections.abc import Callable

from app_server.core.begun import Begun
from protocol.jsonrpc import Request
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """The response was written; everything else that the request does is left to the server."""

    request: Request
    conversation: Begun | None = None
    """The new conversation; None: it resumes a stored one."""
    notified: frozenset[str] = frozenset()
    """Methods of notifications that the client was sent."""
    release: Callable[[], None] = lambda: None
    """Releases the stored conversation, right before the server opens it."""
