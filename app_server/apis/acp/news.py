"""What clients are told of a session besides its items: notices, the plan, how full the context is. Pure."""

from __future__ import annotations

from typing import Final

from app_server.apis.acp.updates import Notice, SessionUpdates
from app_server.core.rollout.turn_fold import ItemIds
from protocol.engine import events
from protocol.engine.events import EngineEvent
from protocol.events import notices
from protocol.events.tools import PlanUpdateEvent
from protocol.events.turn import TokenCountEvent, TokenUsageInfo

MOST_HELD: Final = 50
"""Notices that wait for the next turn."""
ASSUMED_WINDOW: Final = 272_000
"""For a model whose context window is not known: clients show how full it is."""


def context_use(info: TokenUsageInfo, window: int | None) -> tuple[int, int]:
    """Return the tokens in the context and how many there is room for. `window` where `info` names none."""
    size = info.model_context_window or window or ASSUMED_WINDOW
    return max(info.last_token_usage.total_tokens, 0), size


class SessionNews:
    """Notices and usage of a session. Outside of a turn notices wait for the next one: clients take none then."""

    def __init__(self, updates: SessionUpdates, ids: ItemIds) -> None:
        """`ids`: those that messages of the session have already."""
        self._updates, self._ids = updates, ids
        self._turn: str | None = None
        self._window: int | None = None
        self._held: list[Notice] = []
        self.usage: tuple[int, int] | None = None
        """Tokens in the context, and how many there is room for; None: not known yet."""

    def turn_started(self, turn: str, window: int | None) -> None:
        """Write the notices that have waited for a turn."""
        self._turn, self._window = turn, window or self._window
        held, self._held = self._held, []
        for notice in held:
            self.notice(notice)

    def turn_ended(self) -> None:
        """Hold notices back from now on."""
        self._turn = None

    def notice(self, notice: Notice) -> None:
        """Write a notice now, or with the next turn."""
        if self._turn is not None:
            self._updates.notice(notice, self._ids.begin_and_end(f"notice-{self._turn}"))
        elif len(self._held) < MOST_HELD:
            self._held.append(notice)

    def take(self, event: EngineEvent) -> None:
        """Write an event that is about no item."""
        match event:
            case events.AttemptFailed():
                text = f"Reconnecting… {event.attempt}/{event.attempts}"
                self._updates.notice(Notice(text, details=event.error.message, passing=True), "")
            case TokenCountEvent(info=TokenUsageInfo() as info):
                usage = context_use(info, self._window)
                if usage != self.usage:
                    self.usage = usage
                    self._updates.usage(*usage)
            case PlanUpdateEvent():
                self._updates.plan(event.plan)
            case notices.WarningEvent() | notices.ErrorEvent():
                self.notice(Notice(event.message))
            case events.McpServersSettled(failures=failures):
                for message in failures:
                    self.notice(Notice(message))
            case notices.DeprecationNoticeEvent():
                self.notice(Notice(event.summary, details=event.details))
            case _:
                pass
