"""Ends conversations that nobody has listened to for long and in which nothing happens; they can be loaded again.

Only those whose API says so, and those whose client has left: a client of the conversation API may go on with one that
it never listened to.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager

log = logging.getLogger(__name__)

IDLE_SECONDS = 30 * 60
LOOK_SECONDS = 60
MOST_IDLE = 32
"""Each holds its history in memory and its file open. Beyond that, those that have been idle for longest are ended."""
NO_ROOM = 2 * MOST_IDLE
"""While so many are idle, none is opened: ending one may take longer than opening one."""


class IdleUnloader:
    """`clock` gives monotonic seconds."""

    def __init__(self, conversations: ConversationManager, clock: Callable[[], float]) -> None:
        self._conversations, self._clock = conversations, clock
        self.closed: list[Callable[[LiveConversation], None]] = []
        """Called for each conversation that was ended."""
        self._runs = False
        self._idle_since: dict[str, float] = {}
        self._looking = anyio.Lock()

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Look from time to time, until cancelled; where another task does, do nothing."""
        if self._runs:
            return
        self._runs = True
        self._conversations.wait_for_room = self.wait_for_room
        while True:
            await sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Ends what has been idle for long enough, or is too much."""
        async with self._looking, anyio.create_task_group() as ending:
            now = self._clock()
            idle = {live.id: live for live in self._conversations.all() if _unloads(live) and live.idle}
            self._idle_since = {id: self._idle_since.get(id, now) for id in idle}
            longest_first = sorted(idle, key=self._idle_since.__getitem__)
            for n, id in enumerate(longest_first):
                seconds = now - self._idle_since[id]
                too_many = len(longest_first) - n > MOST_IDLE
                if too_many or seconds >= IDLE_SECONDS:
                    log.info("conversation %s is unloaded: nobody followed it for %d seconds", id, seconds)
                    ending.start_soon(self._end, idle[id], name=f"unloading {id}")

    async def wait_for_room(self) -> None:
        """Returns at once, unless so many are idle that some have to be ended before another one is opened."""
        while self._count() >= NO_ROOM:
            await self.look()

    def _count(self) -> int:
        return sum(_unloads(live) and (live.idle or live.ending) for live in self._conversations.all())

    async def _end(self, live: LiveConversation) -> None:
        if live.idle:
            self._idle_since.pop(live.id, None)
            await live.shut_down()
            for tell in self.closed:
                tell(live)


def _unloads(live: LiveConversation) -> bool:
    return live.unloads or live.deserted
