"""Notices for the user about the model of a conversation: it is unknown, its context window is smaller than the
settings say, or it differs from the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app_server.engine.config.config_values import Config
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.model.catalogue import UNKNOWN
from app_server.engine.session.windows import known_window

if TYPE_CHECKING:
    from app_server.engine.model.model_facts import ModelFacts


def window_notice(config: Config, row: ModelRow) -> str | None:
    """Return the notice about a `model_context_window` that the model does not have; None if it has it."""
    own, most = config.model.context_window, row.max_context_window
    if own is None or most is None or own <= most:
        return None
    return (
        f"`model_context_window` is {own:,}; the model `{config.thread.model}` takes {most:,} tokens at most, which "
        "is its window here."
    )


def unknown_notice(config: Config, row: ModelRow, window: int, model: str) -> str | None:
    """Return the notice about a model that no source knows; None if no notice is due."""
    if row.slug != UNKNOWN.slug or known_window(config, row) is not None:
        return None
    return (
        f"Nothing is known of the model `{model}`; a window of {window:,} tokens is assumed. Say more in "
        f'[models."{model}"].'
    )


def cut_notice(read: int, estimated: int) -> str:
    """Return the notice about a request of which Ollama has read only a part."""
    return (
        f"Ollama read only {read:,} tokens of about {estimated:,}; start it with OLLAMA_CONTEXT_LENGTH=65536 or set "
        "`model_context_window`."
    )


def silence_notice(estimated: int, window: int) -> str:
    """Return the error of an unanswered request: some servers do not answer a request that exceeds their window."""
    return (
        f"The model's server closed the connection without an answer to a request of about {estimated:,} tokens, more "
        f"than it has answered before. It may exceed the window: {window:,} tokens count as the window from now "
        "on, and the next turn begins with a compaction. Load the model with a larger window, or see the server's log."
    )


def other_model_notice(
    before: str, provider: str | None, config: Config, facts: Callable[[], ModelFacts]
) -> str:
    """Return the notice about a stored conversation that continues with another model than `before`. It began with
    `provider`; None if its file does not name it.
    """
    now = config.thread.model
    elsewhere = facts().is_served(before) is False if provider is None else provider != config.provider.id
    if elsewhere:
        return f"This thread used `{before}` of another provider; it goes on with `{now}` of `{config.provider.id}`."
    # Clients of the conversation API match this text.
    return (
        f"This session was recorded with model `{before}` but is resuming with `{now}`. "
        f"Consider switching back to `{before}` as it may affect Codex performance."
    )
