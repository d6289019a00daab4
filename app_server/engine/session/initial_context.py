"""The first items of a history: of a new conversation, after a compaction, and of a stored history that was
compacted.
"""

from __future__ import annotations

from collections.abc import Sequence

from app_server.engine.context.environment_context import opening_messages
from app_server.engine.context.history import (
    build_compacted_history,
    collect_user_messages,
    with_marked_summary,
)
from app_server.engine.context.sizes import WindowBounds
from app_server.engine.session.session_services import ConversationSetup, SessionServices
from app_server.engine.session.windows import first_bounds, fitting_documents
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import CompactedItem


def opening_items(
    conversation: ConversationSetup, settings: ThreadSettings, bounds: WindowBounds
) -> list[ResponseItem]:
    """Return the items that the model is sent before the user's input, as far as the context window has room
    for them.
    """
    instructions = conversation.instructions
    return opening_messages(
        settings,
        instructions.shell,
        developer=conversation.config.instructions.developer,
        agents=fitting_documents(instructions.agents, bounds),
    )


def first_items(services: SessionServices) -> list[ResponseItem]:
    """Return the items that a new conversation begins with."""
    bounds = first_bounds(services.conversation.config, services.model.facts())
    return opening_items(services.conversation, services.state.settings, bounds)


def compacted_again(
    services: SessionServices, before: Sequence[ResponseItem], line: CompactedItem
) -> Sequence[ResponseItem]:
    """Return the history that a stored compaction left. `before`: the history before the compaction."""
    if line.replacement_history is not None:
        return with_marked_summary(line.replacement_history, line.message)
    bounds = first_bounds(services.conversation.config, services.model.facts())
    opening = opening_items(services.conversation, services.state.settings, bounds)
    words = collect_user_messages(before)
    return build_compacted_history(opening, words, line.message, kept_tokens=bounds.kept_words)
