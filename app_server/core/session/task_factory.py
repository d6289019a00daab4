"""Makes the tasks of a session: what each needs, and the model that it asks."""

from __future__ import annotations

from dataclasses import replace

from app_server.core.context.prompts import prompt as prompt_text
from app_server.core.session.compaction import Compactor, CompactTask
from app_server.core.session.regular import RegularTask
from app_server.core.session.requests import RequestShape, request_shape
from app_server.core.session.review import ReviewTask
from app_server.core.session.samplers import SamplerFactory
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState, Turn
from app_server.core.session.undo import UndoTask
from app_server.core.session.user_shell import UserShellTask
from protocol.events.review import ReviewRequest
from protocol.policy import ReasoningEffort, ReasoningSummary
from protocol.responses import MessageItem


class TaskFactory:
    def __init__(self, services: Services, state: SessionState) -> None:
        self._services, self._state = services, state

    def regular(self, turn: Turn, message: MessageItem) -> RegularTask:
        return RegularTask(self._services, self._state, turn, self._shape(turn), message)

    def compact(self, turn: Turn) -> CompactTask:
        shape = self._shape(turn)
        samplers = SamplerFactory(self._services, self._state)
        compactor = Compactor(self._services, self._state, turn, shape, samplers)
        return CompactTask(compactor, self._services, turn, shape)

    def review(self, turn: Turn, request: ReviewRequest) -> ReviewTask:
        """Asked of the review model, which thinks little and says much, whatever the conversation's settings."""
        settings = replace(
            turn.settings,
            model=self._services.config.review_model,
            effort=ReasoningEffort.LOW,
            summary=ReasoningSummary.DETAILED,
        )
        reviewing = replace(turn, settings=settings)
        shape = replace(self._shape(reviewing), instructions=prompt_text("review"))
        return ReviewTask(self._services, self._state, reviewing, shape, request)

    def undo(self, turn: Turn) -> UndoTask:
        return UndoTask(self._services, self._state, turn, self._shape(turn).context_window)

    def user_shell(self, turn: Turn, command: str) -> UserShellTask:
        return UserShellTask(self._services, self._state, turn, command, self._shape(turn).context_window)

    def _shape(self, turn: Turn) -> RequestShape:
        return request_shape(self._services.config, turn.settings, self._services.conversation_id)
