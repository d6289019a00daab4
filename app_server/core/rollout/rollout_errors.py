"""Errors of stored conversations. The texts name files, never their content."""

from __future__ import annotations

from app_server.core.errors import ConversationError


class RolloutUnreadable(ConversationError):
    """The file is not a rollout, or cannot be read."""


class RolloutBusy(ConversationError):
    """Another writer has this conversation open."""


class ArchiveRefused(ConversationError):
    """The path to archive is not a rollout of this home, or belongs to another conversation."""
