"""Ends unused work: conversations that have been idle for long, which can be loaded again; turns that no client has
followed for long, and questions that no client is there to answer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from app_server.server.conversations.adapter import Activity
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.manager import ConversationManager

log = logging.getLogger(__name__)

IDLE_SECONDS = 30 * 60
LOOK_SECONDS = 60
MOST_IDLE = 32
"""Maximum number of idle conversations. Each holds its history in memory and its file open. Beyond it, those that have
been idle for longest are ended.
"""
NO_ROOM = 2 * MOST_IDLE
"""Number of idle conversations from which none is opened: ending one may take longer than opening one."""


class IdleReaper:
    """Ends idle conversations: only those whose API allows it, and those whose opener has left. A client of the
    conversation API may go on with a conversation that it never subscribed to. `clock` returns monotonic seconds.
    """

    def __init__(self, conversations: ConversationManager, clock: Callable[[], float]) -> None:
        self._conversations, self._clock = conversations, clock
        self.closed: list[Callable[[LiveConversation], None]] = []
        """Functions that are called for each conversation that was ended."""
        self._runs = False
        self._idle_since: dict[str, float] = {}
        self._looking = anyio.Lock()

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Check periodically, until cancelled; return at once if another task does."""
        if self._runs:
            return
        self._runs = True
        self._conversations.wait_for_room = self.wait_for_room
        while True:
            await sleep(LOOK_SECONDS)
            await self.look()

    async def look(self, idle_seconds: float = IDLE_SECONDS) -> None:
        """End conversations that have been idle for `idle_seconds`, and those beyond the maximum."""
        async with self._looking, anyio.create_task_group() as ending:
            now = self._clock()
            idle = {live.id: live for live in self._conversations.all() if _unloads(live) and live.idle}
            self._idle_since = {id: self._idle_since.get(id, now) for id in idle}
            longest_first = sorted(idle, key=self._idle_since.__getitem__)
            for n, id in enumerate(longest_first):
                seconds = now - self._idle_since[id]
                too_many = len(longest_first) - n > MOST_IDLE
                if too_many or seconds >= idle_seconds:
                    log.info("conversation %s is unloaded: nobody followed it for %d seconds", id, seconds)
                    ending.start_soon(self._end, idle[id], name=f"unloading {id}")

    async def wait_for_room(self) -> None:
        """Wait until another conversation may be opened; return at once unless too many are idle."""
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
    return live.auto_unload or live.deserted


ATTENDED_SECONDS = 15
"""Interval between two checks whether conversations are followed, in seconds."""
UNANSWERED = "Nobody was there to answer a question for {:g} hours: it counts as declined."


class UnattendedReaper:
    """Ends turns and questions of a server that outlives its clients: elsewhere a conversation ends with its client.

    `clock` returns monotonic seconds. `turn_seconds` is the time for which a turn runs without subscribers;
    `question_seconds` is the time for which a question waits without a client to answer it. Its turn waits with it.
    """

    def __init__(
        self,
        conversations: ConversationManager,
        clock: Callable[[], float],
        *,
        turn_seconds: float,
        question_seconds: float,
    ) -> None:
        self._conversations, self._clock = conversations, clock
        self._turn_seconds, self._question_seconds = turn_seconds, question_seconds
        self._since: dict[LiveConversation, float] = {}
        """Time since which a conversation has had no subscribers."""

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Check periodically and whenever a client leaves, until cancelled."""
        self._conversations.on_leave = self.look
        while True:
            self.look()
            await sleep(ATTENDED_SECONDS)

    def look(self) -> None:
        """End turns and questions whose time is over."""
        now = self._clock()
        alone = [live for live in self._conversations.all() if not live.subscriptions.any]
        self._since = {live: self._since.get(live, now) for live in alone}
        for live, since in self._since.items():
            seconds = now - since
            if live.questions.open:
                if seconds >= self._question_seconds:
                    live.pending_warnings.append(UNANSWERED.format(self._question_seconds / 3600))
                    live.questions.decline_all()
            elif live.status.activity is Activity.ACTIVE and seconds >= self._turn_seconds:
                log.info("conversation %s: nobody has followed its turn for %d seconds", live.id, seconds)
                live.interrupt()
