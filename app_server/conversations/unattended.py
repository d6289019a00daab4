"""Ends what goes on without anybody: turns that nobody follows for long, and questions that nobody is there to answer.

Only a server that outlives its clients has it: elsewhere a conversation ends with its client.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from app_server.conversations.adapter import Activity
from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager

log = logging.getLogger(__name__)

LOOK_SECONDS = 15
UNANSWERED = "Nobody was there to answer a question for {:g} hours: it counts as declined."


class Unattended:
    """`clock` gives monotonic seconds. `turn_seconds`: so long a turn runs that nobody follows; `question_seconds`: so
    long a question waits without anybody to answer it. The turn that it belongs to waits with it.
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
        """Since when nobody has followed."""

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Look from time to time and whenever a client leaves, until cancelled."""
        self._conversations.on_leave = self.look
        while True:
            self.look()
            await sleep(LOOK_SECONDS)

    def look(self) -> None:
        """End what has gone on for long enough."""
        now = self._clock()
        alone = [live for live in self._conversations.all() if not live.subscriptions.any]
        self._since = {live: self._since.get(live, now) for live in alone}
        for live, since in self._since.items():
            seconds = now - since
            if live.questions.open:
                if seconds >= self._question_seconds:
                    live.untold.append(UNANSWERED.format(self._question_seconds / 3600))
                    live.questions.decline_all()
            elif live.status.activity is Activity.ACTIVE and seconds >= self._turn_seconds:
                log.info("conversation %s: nobody has followed its turn for %d seconds", live.id, seconds)
                live.interrupt()
