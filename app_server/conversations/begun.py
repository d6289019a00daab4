"""A request for a new conversation that was answered before the server was loaded. Fast to import."""

from __future__ import annotations

from app_server.core.begun import Begun
from protocol.jsonrpc import Request
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """The response was written; everything else that the request does is left to the server."""

    request: Request
    conversation: Begun
