"""Limits of one `exec`: requests to the model, tokens, seconds. A request that would exceed a limit is not sent.

The server is in the same process, and calls the gate of this module before each request (`RequestGate`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct

from app_server.client.turn_handle import TurnHandle

if TYPE_CHECKING:
    from app_server.engine.model.model_client import GatedRequest

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Delays before a refused request is sent again if the provider names no time, in seconds. Each delay is twice the
last.
"""
LONGEST_WAIT: Final = 120.0
"""Maximum delay that a provider may ask for, in seconds. As without limits, a longer one fails the turn, and the error
names it.
"""


class ExecLimits(Struct, frozen=True, kw_only=True):
    """Limits from the command line. None if there is no limit."""

    requests: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    @property
    def of_requests(self) -> bool:
        """Whether requests have to pass the gate."""
        return self.requests is not None or self.tokens is not None


class LimitGate:
    """Lets requests pass until a limit is reached, and then interrupts the turn."""

    longest_pause = LONGEST_WAIT

    def __init__(self, limits: ExecLimits, on_pause: Callable[[str], None]) -> None:
        self._limits, self._on_pause = limits, on_pause
        self._requests = self._tokens = 0
        self._pause = 0.0
        self.turn: TurnHandle | None = None
        """Turn to interrupt. It is set before a limit can be reached, which the first request never does."""
        self.reached: str | None = None
        """Limit that was reached, as text for a person. None if none was reached."""

    @asynccontextmanager
    async def passing(self, request: GatedRequest) -> AsyncIterator[None]:
        self.reached = self._reached()
        if self.reached is not None and self.turn is not None:
            await self.turn.interrupt()
            await anyio.sleep_forever()  # until the turn, which includes this request, has ended
        await anyio.sleep(self._pause)
        try:
            yield
        finally:
            self._count(request)

    def timed_out(self) -> None:
        """Record that the time is over."""
        self.reached = f"--timeout: {self._limits.seconds:g} s have passed"

    def _count(self, request: GatedRequest) -> None:
        if request.limited:
            self._pause = request.retry_after or min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
            self._on_pause(f"the provider asks for fewer requests; the next attempt is in {self._pause:g} s")
            return
        self._pause = 0.0
        self._requests += 1
        if request.usage is not None:
            self._tokens += request.usage.total_tokens

    def _reached(self) -> str | None:
        most, budget = self._limits.requests, self._limits.tokens
        if most is not None and self._requests >= most:
            return f"--max-turns: the model was asked {self._requests} times"
        if budget is not None and self._tokens >= budget:
            return f"--budget-tokens: {self._tokens} tokens were used"
        return None
