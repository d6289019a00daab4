"""Warnings about ignored parameters for clients of the conversation API."""

from __future__ import annotations

from app_server.server.apis.contexts import ConnectionContext


def warn_in_conversation(context: ConnectionContext, notice: str, conversation: str | None) -> bool:
    """Warn in the conversation that the request was about or opened; all its current and later subscribers see the
    warning. Return whether it is open: this API has no notifications outside of conversations.
    """
    live = None if conversation is None else context.conversations.find(conversation.lower())
    if live is not None:
        live.session.warn(notice)
    return live is not None
