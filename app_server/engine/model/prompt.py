"""One request to the model: its content (instructions, the history, the tools that may be called), its settings and its
sender; and the events of its response, which are the same for all APIs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from app_server.engine.config.model_rows import ModelRow
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_text import ItemText
from app_server_protocol.engine.token_usage import RateLimitSnapshot, TokenUsage
from app_server_protocol.policy import ReasoningSummary, Verbosity
from app_server_protocol.responses import ResponseItem


class FunctionTool(Struct, frozen=True):
    """A tool with JSON arguments, described by a JSON Schema."""

    name: str
    description: str
    parameters: Json
    strict: bool = False


class FreeformTool(Struct, frozen=True):
    """A tool that takes plain text, which `format` describes, for example by a grammar."""

    name: str
    description: str
    format: Json


TEXT_ARGUMENT: Final[Json] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The text itself."}},
    "required": ["input"],
}
"""Arguments of a function that replaces a tool of plain text, for providers that accept functions only."""


class WebSearchTool(Struct, frozen=True):
    """A search that the provider runs by itself."""


class LocalShellTool(Struct, frozen=True):
    """The shell tool that some models know without a description."""


ToolSpec = FunctionTool | FreeformTool | WebSearchTool | LocalShellTool


class Prompt(Struct, frozen=True, kw_only=True):
    instructions: str
    input: Sequence[ResponseItem]
    tools: Sequence[ToolSpec] = ()
    parallel_tool_calls: bool = False
    output_schema: Json | None = None
    """The JSON Schema that the final answer has to follow."""


class RequestSettings(Struct, frozen=True, kw_only=True):
    """Settings of a request. A request omits settings that the model does not support."""

    model: str
    row: ModelRow
    """Facts about the model."""
    conversation_id: str
    effort: str | None = None
    summary: ReasoningSummary = ReasoningSummary.AUTO
    verbosity: Verbosity | None = None
    supports_reasoning_summaries: bool | None = None
    """The user's setting; None if the model's row decides."""
    sends_chosen_effort: bool = False
    """Whether an effort that the user chose is sent regardless of the model's row."""
    wants_answer: bool = False
    """Whether an answer without text and calls is a failure."""
    max_output_tokens: int | None = None
    """Maximum number of tokens in an answer, as the user set it; None if the provider decides."""
    live_chat: bool = False
    """Whether a Chat Completions answer comes in deltas and with its token counts, instead of in whole items."""
    service_tier: str | None = None
    """Speed or price class of the request; None if the provider decides."""


class Created(Struct, frozen=True):
    """The response has begun."""


class OutputItemAdded(Struct, frozen=True):
    """An item begins; its content follows in deltas."""

    item: ResponseItem


class OutputItemDone(Struct, frozen=True):
    """An item is complete. There may have been no `OutputItemAdded` and no delta for it."""

    item: ResponseItem
    is_cut: bool = False
    """Whether the limit of the answer cut the item off. The item is a call, and is not run."""


class OutputTextDelta(Struct, frozen=True):
    """The text of the message has come up to `end`; the decoder may have added more to it since."""

    text: ItemText
    end: int


class ReasoningSummaryTextDelta(Struct, frozen=True):
    """A part of the summary has come up to `end`."""

    text: ItemText
    end: int
    summary_index: int


class ReasoningSummaryPartAdded(Struct, frozen=True):
    summary_index: int


class ReasoningContentDelta(Struct, frozen=True):
    """A part of the raw reasoning has come up to `end`."""

    text: ItemText
    end: int
    content_index: int


class RateLimits(Struct, frozen=True):
    """The account's limits from the response headers; always the first event."""

    snapshot: RateLimitSnapshot


class Rerouted(Struct, frozen=True):
    """The model that answers is not the one that was asked for."""

    model: str


class Completed(Struct, frozen=True):
    """The response is complete. No event follows."""

    usage: TokenUsage | None
    paused: bool = False
    """Whether the provider asks for another request, with the answer so far, to continue it."""
    cut_by: str | None = None
    """The provider's name of the limit that cut off the answer's last call; None if the answer is whole."""


ModelEvent = (
    Created
    | OutputItemAdded
    | OutputItemDone
    | OutputTextDelta
    | ReasoningSummaryTextDelta
    | ReasoningSummaryPartAdded
    | ReasoningContentDelta
    | RateLimits
    | Rerouted
    | Completed
)
