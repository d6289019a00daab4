"""The parts that the requests of a conversation have in common: their beginning, which is instructions and tools, and
what the settings and the model say of all requests of a turn. Pure.

The beginning is made at the first request to a model and stays until a compaction: providers cache it, and some refuse
the model's thoughts once it has changed. Later information for the model is appended to the history; a tool that is
added later is appended to the tools. A stored history may call tools of another time or program: one message informs
the model that these may be gone.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app_server.engine.config.model_rows import ModelRow
from app_server.engine.context.history import message_text
from app_server.engine.context.sizes import PromptSize, WindowBounds
from app_server.engine.model.prompt import Prompt, RequestSettings, ToolSpec
from app_server.engine.tools.tool_base import Tool
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.responses import (
    CustomToolCall,
    FunctionCall,
    InputText,
    MessageItem,
    ResponseItem,
)
from app_server_protocol.rollout import TurnContextItem

if TYPE_CHECKING:
    from app_server.engine.mcp.tool_catalog import McpTool
    from app_server.engine.model.model_facts import ModelFacts
    from app_server.engine.tools.registry import ToolSet

TOOLS_GONE: Final = "Tools named earlier may be gone; use only those that you are offered now."


class ConversationHead(Struct):
    """Instructions and tools for one model."""

    size: PromptSize
    instructions: str
    tools: tuple[Tool, ...] = ()
    """Tools of the last request, in its order; empty before the first one."""
    given: str | None = None
    """Instructions that a client gave in place of the server's; None if it gave none."""


class ServerTraits(Struct, frozen=True):
    """Properties of the provider that decide what a failed request means."""

    cuts_silently: bool
    """Whether it truncates a request that exceeds the context window, and answers the rest."""
    is_own: bool
    """Whether it runs on the user's machine, or is not in the bundled file."""


class RequestTemplate(Struct, frozen=True):
    """Parts that all requests of one turn have in common."""

    model: ModelRow
    head: ConversationHead
    instructions: str
    """Instructions of the head; a review has its own."""
    context_window: int | None
    """Context window in tokens, as clients see it; None if the API does not show an assumed one."""
    compact_limit: int
    bounds: WindowBounds
    parallel_tool_calls: bool
    settings: RequestSettings
    context_line: TurnContextItem
    """Line of the rollout with the settings of the requests, without the id of a turn."""
    unknown_notice: str | None
    """Notice that nothing is known of the model; None if no notice is due."""
    server: ServerTraits
    made_of: tuple[ThreadSettings, ModelFacts, bool, bool]
    """Values that the template was made of: settings, facts, whether a client follows turns, and whether it sends any
    effort.
    """

    def prompt(
        self, items: Sequence[ResponseItem], tools: Sequence[ToolSpec], output_schema: object
    ) -> Prompt:
        return Prompt(
            instructions=self.instructions,
            input=items,
            tools=tools,
            parallel_tool_calls=self.parallel_tool_calls,
            output_schema=output_schema,
        )


class ToolChoice(Struct, frozen=True):
    """The tools of a turn, with the values that they were chosen by."""

    chosen_by: tuple[RequestTemplate, Mapping[str, McpTool], bool]
    tools: ToolSet


class HeadSize(Struct, frozen=True):
    """The estimated size of the beginning of a request."""

    instructions: str
    specs: Sequence[ToolSpec]
    tokens: int


def gone_tools(items: Sequence[ResponseItem], known: Container[str]) -> MessageItem | None:
    """Return the message about tools that a history calls and that are not `known` any more; None if there are no such
    tools, or if the history already has the message.
    """
    called = {item.name for item in items if isinstance(item, FunctionCall | CustomToolCall)}
    if all(name in known for name in called):
        return None
    notes = (item for item in items if isinstance(item, MessageItem) and item.role == "developer")
    if any(message_text(note) == TOOLS_GONE for note in notes):
        return None
    return MessageItem(role="developer", content=(InputText(text=TOOLS_GONE),))
