"""What a session knows between turns: history, settings, token counts. Changed by the session's own tasks only."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from app_server.core.context.environment_context import EnvironmentContext
from app_server.core.context.history import ConversationHistory
from app_server.core.goals import GoalKeeper
from app_server.core.turn.settings import Settings, SettingsChange
from app_server.core.turn.token_counts import TokenCounts


class SessionState(Struct):
    """The session's memory."""

    settings: Settings
    history: ConversationHistory = msgspec.field(default_factory=ConversationHistory)
    tokens: TokenCounts = msgspec.field(default_factory=TokenCounts)
    last_sent_context: EnvironmentContext | None = None
    """The surroundings of the last turn, which later turns are compared with. None until one has run."""
    goals: GoalKeeper = msgspec.field(default_factory=GoalKeeper)
    shown_once: set[str] = msgspec.field(default_factory=set)
    """What the client was sent once and need not receive again."""

    def change(self, change: SettingsChange) -> None:
        """From the next turn on."""
        self.settings = self.settings.changed(change)
