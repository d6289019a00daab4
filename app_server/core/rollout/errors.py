"""How a stored conversation refuses. The texts name files, never what is in them."""

from __future__ import annotations

from app_server.core.errors import ConversationError


class RolloutUnreadable(ConversationError):
    """The file is no rollout, or cannot be read."""


class RolloutBusy(ConversationError):
    """Somebody else writes this conversation."""


class ArchiveRefused(ConversationError):
    """What should be archived is no rollout of this home, or not that conversation's."""
