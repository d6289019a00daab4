"""The context window of a conversation, and the bounds that follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app_server.engine.config.config_values import Config
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.context.sizes import PromptSize, WindowBounds, bounds_of, chosen_size
from app_server.engine.context.text_for_model import estimate_tokens, within_tokens
from app_server.engine.model.catalogue import ASSUMED_WINDOW
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.model.model_facts import ModelFacts


def known_window(config: Config, row: ModelRow) -> int | None:
    """Return the context window, in tokens; None if it is unknown. The user's setting cannot exceed the model's
    window.
    """
    own = config.model.context_window
    most = row.max_context_window
    return row.context_window if own is None else own if most is None else min(own, most)


def bounds_for(
    config: Config, facts: ModelFacts, row: ModelRow, size: PromptSize | None = None
) -> WindowBounds:
    """Return the bounds of a conversation's requests. `size`: size of its instructions and tools; None if it is still
    to be chosen.
    """
    window = known_window(config, row) or facts.assumed_window or ASSUMED_WINDOW
    size = size or chosen_size(window, config.model.prompt, row.prompt)
    return bounds_of(window, size, config.model.output_tokens)


def bounds_of_codex(config: Config, facts: ModelFacts, row: ModelRow) -> WindowBounds:
    """Return the bounds of a conversation that has the instructions and tools of codex 0.58 in any window, and whose
    requests the provider judges.
    """
    return replace(bounds_for(config, facts, row, PromptSize.FULL), request=None)


def first_bounds(config: Config, facts: ModelFacts) -> WindowBounds:
    """Return the bounds of a conversation that opens with the model of its settings."""
    return bounds_for(config, facts, facts.row(config.thread.model))


def fitting_documents(agents: str | None, bounds: WindowBounds) -> str | None:
    """Return the text of the AGENTS.md files, as far as the context window has room for it."""
    if agents is None or bounds.documents is None:
        return agents
    return within_tokens(agents, bounds.documents)


def documents_notice(agents: str | None, model: str, bounds: WindowBounds) -> str | None:
    """Return the notice about AGENTS.md files that do not fit; None if they do."""
    if agents is None or bounds.documents is None or estimate_tokens(agents) <= bounds.documents:
        return None
    return (
        f"The model `{model}` has a window of {bounds.window:,} tokens: of about {estimate_tokens(agents):,} tokens of "
        f"AGENTS.md it is sent {bounds.documents:,}."
    )
