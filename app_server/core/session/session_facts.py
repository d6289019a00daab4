"""What can be read of a session from outside: its settings, its usage, where it is stored."""

from __future__ import annotations

from pathlib import Path

from app_server.core.config.types import Config
from app_server.core.context.compacted_history import collect_user_messages
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.turn.settings import Settings
from protocol.events.turn import TokenUsageInfo


class SessionFacts:
    def __init__(self, services: Services, state: SessionState) -> None:
        self._services, self._state = services, state

    @property
    def settings(self) -> Settings:
        """What the next turn starts from."""
        return self._state.settings

    @property
    def config(self) -> Config:
        """With which it was opened; its settings may have changed since."""
        return self._services.conversation.config

    @property
    def rollout_path(self) -> Path | None:
        """None: it is not stored."""
        return self._services.conversation.rollout_path

    @property
    def usage(self) -> TokenUsageInfo | None:
        """None: no request has reported any."""
        return self._state.tokens.info

    @property
    def instruction_sources(self) -> tuple[str, ...]:
        """The files with instructions that the model was sent."""
        return self._services.conversation.instructions.sources

    @property
    def first_words(self) -> str:
        """What the user said first; "" before that."""
        return next(iter(collect_user_messages(self._state.history.items)), "")

    async def history_metadata(self) -> tuple[int, int]:
        """Of the message history that all conversations share: which file it is, and how many entries it has."""
        return await self._services.messages.metadata()
