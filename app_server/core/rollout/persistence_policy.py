"""Which events a rollout stores. Not deltas, command output and progress: items contain them, or they are obsolete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protocol.events.msg import EventMsg

PERSISTED_EVENTS: Final = frozenset(
    {
        "user_message",
        "agent_message",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "token_count",
        "entered_review_mode",
        "exited_review_mode",
        "undo_completed",
        "turn_aborted",
    }
)


def is_persisted(event: EventMsg) -> bool:
    """Whether an event of this kind is stored, for display after a resume."""
    return event.type in PERSISTED_EVENTS
