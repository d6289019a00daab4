"""Answers to requests that do not wait for the server to be loaded. Fast to import."""

from __future__ import annotations

from collections.abc import Callable

from app_server.conversations.begun import BegunRequest
from protocol.jsonrpc import Request
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class EarlyAnswer:
    response: bytes
    """One line without its end."""
    begun: BegunRequest | None = None
    """What the server has to go on with."""


EarlyResponder = Callable[[Request], EarlyAnswer | None]
"""Answers a request that needs no engine; None leaves it to the full server."""
