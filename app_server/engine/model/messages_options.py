"""The fields of a Messages API request besides its messages: the length of the answer, and how the model
thinks. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app_server.engine.config.model_rows import ModelRow
from app_server.engine.model.prompt import (
    TEXT_ARGUMENT,
    FreeformTool,
    FunctionTool,
    Prompt,
    RequestSettings,
)
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.schema_forms import in_form
from app_server_protocol.encoding import Json

ANSWER_TOKENS: Final = 32_000
"""Maximum number of tokens in an answer of an unknown model."""
LEAST_TOKENS: Final = 1024

INTERLEAVED: Final = "interleaved-thinking-2025-05-14"
"""Name of the API extension that lets a model think between calls."""

BUDGETS: Final[Mapping[str, int]] = {"minimal": 4096, "low": 4096, "medium": 10_240}
"""Budget of thoughts by effort, in tokens, for models that take a number; a higher effort has a larger budget."""
LARGEST_BUDGET: Final = 16_384


def max_tokens(settings: RequestSettings, size: int) -> int:
    """Return the maximum number of tokens in the answer: the user's setting or the model's limit, reduced to the room
    in the context window.
    """
    if settings.max_output_tokens is not None:
        return settings.max_output_tokens
    row = settings.row
    most = row.max_output_tokens or ANSWER_TOKENS
    if row.context_window is not None:
        most = min(most, row.context_window - size // (row.bytes_per_token or 4))
    return max(most, LEAST_TOKENS)


def options_of(
    prompt: Prompt, settings: RequestSettings, quirks: Quirks, limit: int, *, may_think: bool
) -> dict[str, Json]:
    """Return the fields that follow the messages of a request. `limit`: maximum number of tokens in the answer.
    `may_think`: whether a model with a budget of thoughts may think.
    """
    options: dict[str, Json] = {"max_tokens": limit, "stream": True}
    thinking, effort = thinking_of(settings.row, settings.effort, limit)
    if thinking is not None and (may_think or thinking["type"] != "enabled"):
        options["thinking"] = thinking
    output: dict[str, Json] = {} if effort is None else {"effort": effort}
    if prompt.output_schema is not None:
        output["format"] = {"type": "json_schema", "schema": prompt.output_schema}
    if output:
        options["output_config"] = output
    return {name: value for name, value in options.items() if name not in quirks.omit}


def thinking_of(row: ModelRow, chosen: str | None, limit: int) -> tuple[Json | None, str | None]:
    """Return the thinking option and the effort that are sent; None if the field is left out."""
    adaptive: Json = {"type": "adaptive", "display": "summarized"}
    word = None if chosen is None else _effort(row, chosen)
    match row.thinking:
        case "adaptive" if chosen == "none":
            return {"type": "disabled"}, None
        case "adaptive" | "always":
            return adaptive, word
        case "budget":
            budget = min(BUDGETS.get(word or "", LARGEST_BUDGET), limit - LEAST_TOKENS)
            if chosen in (None, "none") or budget < LEAST_TOKENS:
                return None, None
            return {"type": "enabled", "budget_tokens": budget}, None
        case _:
            return None, word


def _effort(row: ModelRow, chosen: str) -> str:
    """Return the effort that is sent for a chosen one: one that the model accepts, and the highest for an unknown
    effort.
    """
    word = "low" if chosen == "minimal" else row.nearest_effort(chosen)
    return word if not row.efforts or word in row.efforts else row.efforts[-1]


def headers_of(settings: RequestSettings) -> Mapping[str, str]:
    """Return the headers that enable thoughts between calls, for models with a budget of thoughts."""
    thinks = settings.row.thinking == "budget" and settings.effort not in (None, "none")
    return {"anthropic-beta": INTERLEAVED} if thinks else {}


def tool_of(tool: FunctionTool | FreeformTool, quirks: Quirks) -> Json:
    """Return a tool in the API's form; a tool of free text becomes a function with one text argument."""
    schema = TEXT_ARGUMENT if isinstance(tool, FreeformTool) else in_form(tool.parameters, quirks.schema)
    return {"name": tool.name, "description": tool.description, "input_schema": schema}
