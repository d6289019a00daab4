"""Limits of one `exec`: requests to the model, tokens, seconds. A request that would go over a limit is not sent.

The server is in the same process, and asks here before each request (`RequestGate`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct

from app_server.client.turn_handle import TurnHandle

if TYPE_CHECKING:
    from app_server.core.model.model_client import GatedRequest

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds before a request is sent again that a provider refused without saying when; each pause is twice the last."""
LONGEST_WAIT: Final = 120.0
"""Seconds that a provider may ask for: as without limits, one that wants more fails the turn, which says so."""


class ExecLimits(Struct, frozen=True, kw_only=True):
    """Limits from the command line; None: no limit."""

    requests: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    @property
    def of_requests(self) -> bool:
        """Return whether requests have to be asked for."""
        return self.requests is not None or self.tokens is not None


class LimitGate:
    """Lets requests pass until a limit is reached, and then ends the turn."""

    longest_pause = LONGEST_WAIT

    def __init__(self, limits: ExecLimits, on_pause: Callable[[str], None]) -> None:
        self._limits, self._on_pause = limits, on_pause
        self._requests = self._tokens = 0
        self._pause = 0.0
        self.turn: TurnHandle | None = None
        """The turn to end; known before a limit can be reached, which the first request never does."""
        self.reached: str | None = None
        """Which limit was reached, for a person."""

    @asynccontextmanager
    async def passing(self, request: GatedRequest) -> AsyncIterator[None]:
        self.reached = self._reached()
        if self.reached is not None and self.turn is not None:
            await self.turn.interrupt()
            await anyio.sleep_forever()  # until the turn, of which this is a part, has ended
        await anyio.sleep(self._pause)
        try:
            yield
        finally:
            self._count(request)

    def timed_out(self) -> None:
        """Note that the time is over."""
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
