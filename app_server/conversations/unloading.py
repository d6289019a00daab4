"""Ends conversations that nobody has listened to for long and in which nothing happens; they can be loaded again.

Only those whose API says so: a client of the conversation API may go on with one that it never listened to.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from app_server.conversations.manager import ConversationManager

log = logging.getLogger(__name__)

IDLE_SECONDS = 30 * 60
LOOK_SECONDS = 60
MOST_IDLE = 32
"""Each holds its history in memory and its file open. Beyond that, those that have been idle for longest are ended."""


class IdleUnloader:
    """`clock` gives monotonic seconds; `closed` is told of each conversation that was ended."""

    def __init__(
        self, conversations: ConversationManager, clock: Callable[[], float], closed: Callable[[str], None]
    ) -> None:
        self._conversations, self._clock, self._closed = conversations, clock, closed
        self._idle_since: dict[str, float] = {}
        self._looking = anyio.Lock()

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Until it is cancelled."""
        while True:
            await sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Ends what has been idle for long enough, or is too much."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        now = self._clock()
        idle = {live.id: live for live in self._conversations.all() if live.unloads and live.idle}
        self._idle_since = {id: self._idle_since.get(id, now) for id in idle}
        longest_first = sorted(idle, key=self._idle_since.__getitem__)
        for n, id in enumerate(longest_first):
            seconds = now - self._idle_since.get(id, now)
            too_many = len(longest_first) - n > MOST_IDLE
            if not idle[id].idle or not (too_many or seconds >= IDLE_SECONDS):
                continue
            self._idle_since.pop(id, None)
            log.info("conversation %s is unloaded: nobody followed it for %d seconds", id, seconds)
            await idle[id].shut_down()
            self._closed(id)
