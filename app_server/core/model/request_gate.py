"""A port in front of the requests to models: who shares a provider with other conversations, or with other servers,
says there when each request may be sent, and learns what came of it.

A server that was given no gate sends every request at once.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from app_server.core.model.api_failures import RequestFailure
from app_server.core.model.model_errors import TOO_MANY_REQUESTS
from protocol.events.turn import TokenUsage


class GatedRequest(Struct):
    """One request: who sends it, how large it is, and what came of it."""

    conversation_id: str
    model: str
    size: int
    """Bytes of its body."""
    status: int | None = None
    """Of the answer that refused it."""
    retry_after: float | None = None
    """Seconds that the provider asks to wait."""
    limited: bool = False
    """The provider asks for fewer requests. It is sent again once the gate lets it pass, and that is no retry."""
    usage: TokenUsage | None = None
    """What the answer cost, once it is complete."""

    def refused(self, failure: RequestFailure) -> None:
        """Take why the request was refused."""
        self.status, self.retry_after = failure.status, failure.delay
        self.limited = failure.status == TOO_MANY_REQUESTS and (failure.again or failure.delay is not None)


class RequestGate(Protocol):
    """Lets requests pass."""

    def passing(self, request: GatedRequest) -> AbstractAsyncContextManager[None]:
        """Wait until the request may be sent; while the block runs it is under way. What came of it is in `request`
        when the block is left.
        """
        ...
