"""How a client of the conversation API learns of parameters that were ignored."""

from __future__ import annotations

from app_server.apis.services import ServerServices


def warn_in_conversation(services: ServerServices, notice: str, conversation: str | None) -> bool:
    """Warn in the conversation that the request was about or opened: those who listen to it, or will. Return whether it
    is open: this API has no notices outside of conversations.
    """
    live = None if conversation is None else services.conversations.find(conversation.lower())
    if live is not None:
        live.session.warn(notice)
    return live is not None
