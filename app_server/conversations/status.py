"""What a live conversation is doing, for clients that do not follow its events. Pure."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from protocol.engine.events import SessionEvent, TurnEnded, TurnStarted, TurnStatus
from protocol.records import dataclass


class Activity(StrEnum):
    IDLE = "idle"
    ACTIVE = "active"
    SYSTEM_ERROR = "system_error"
    """The last turn failed; stays so until the next one begins."""
    NOT_LOADED = "not_loaded"


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    activity: Activity = Activity.IDLE
    waiting_on_approval: bool = False
    waiting_on_input: bool = False

    def after(self, event: SessionEvent) -> ConversationStatus:
        match event.event:
            case TurnStarted():
                return ConversationStatus(Activity.ACTIVE)
            case TurnEnded(status=TurnStatus.FAILED):
                return ConversationStatus(Activity.SYSTEM_ERROR)
            case TurnEnded():
                return ConversationStatus(Activity.IDLE)
            case _:
                return self

    def waiting(self, *, approvals: int, inputs: int) -> ConversationStatus:
        """With so many questions to the client open. Only while a turn runs."""
        if self.activity is not Activity.ACTIVE:
            return self
        return replace(self, waiting_on_approval=approvals > 0, waiting_on_input=inputs > 0)
