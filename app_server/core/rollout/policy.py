"""What of a conversation is kept in its rollout. Deltas, command output and progress are not: they can be
told again from the items, or no longer matter.
"""

from __future__ import annotations

from typing import Final

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
    """Whether an event of this kind is stored, to be shown again on a resume."""
    return event.type in PERSISTED_EVENTS
