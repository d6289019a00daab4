"""Events of the engine that belong to no item: messages for the user, the usage of tokens, the plan and the diff of a
turn, an undo, the end of a session; and the answers to lookups, each with the id of its operation. Pure.

Each API writes them in its own words; `app_server_protocol.engine.legacy` has those of the conversation API and of
stored lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server_protocol.engine.item_values import PlanItemArg
from app_server_protocol.engine.token_usage import RateLimitSnapshot, TokenUsageInfo
from app_server_protocol.outgoing import EngineStruct
from app_server_protocol.responses import ResponseItem

if TYPE_CHECKING:
    from app_server_protocol.mcp import McpAuthStatus, McpToolDefinition, Resource, ResourceTemplate


class HistoryEntry(EngineStruct):
    """One line of the user's message history over all conversations."""

    conversation_id: str
    ts: int
    text: str


class CustomPrompt(EngineStruct):
    """A prompt that the user keeps as a file."""

    name: str
    path: str
    content: str
    description: str | None = None
    argument_hint: str | None = None


class ErrorNotice(Struct, frozen=True):
    """A failure that ends no turn."""

    message: str


class WarningNotice(Struct, frozen=True):
    """A fact that the user should know; work goes on."""

    message: str


class DeprecationNotice(Struct, frozen=True):
    """A setting in use that will be removed."""

    summary: str
    details: str | None = None


class ProgressNotice(Struct, frozen=True):
    """A line of progress."""

    message: str


class UndoStarted(Struct, frozen=True):
    """Begin of an undo: the working tree is being restored."""

    message: str | None = None


class UndoCompleted(Struct, frozen=True):
    """End of an undo, emitted once for each `UndoStarted`; `message` names the files that were not restored."""

    success: bool
    message: str | None = None


class SessionClosed(Struct, frozen=True):
    """Last event of a session: the conversation is stored."""


class TokenUsageUpdated(Struct, frozen=True):
    """Usage of tokens or limits of the account, after a response, a failure of one, or a compaction."""

    info: TokenUsageInfo | None = None
    """Usage of the conversation; None until the first response is complete."""
    rate_limits: RateLimitSnapshot | None = None
    """Limits of the account; None if the provider reports none."""


class PlanUpdated(Struct, frozen=True):
    """The model's plan, which replaces the one before."""

    explanation: str | None
    plan: tuple[PlanItemArg, ...]


class TurnDiffUpdated(Struct, frozen=True):
    """Changes by all patches of the turn so far, as one unified diff."""

    unified_diff: str


class HistoryItemRecorded(Struct, frozen=True):
    """A new entry of the history in its original form, for clients that asked for such entries."""

    item: ResponseItem


class HistoryEntryFound(Struct, frozen=True):
    """Answer to the lookup of a line in the user's message history."""

    offset: int
    log_id: int
    entry: HistoryEntry | None = None
    """The line; None if there is none at this offset."""


class CustomPromptsListed(Struct, frozen=True):
    """Answer to the lookup of the user's prompts."""

    prompts: tuple[CustomPrompt, ...]


class McpToolsListed(Struct, frozen=True, kw_only=True):
    """Answer to the lookup of the MCP servers' tools, by qualified name, and of their other entries, by server."""

    tools: Mapping[str, McpToolDefinition]
    resources: Mapping[str, tuple[Resource, ...]]
    resource_templates: Mapping[str, tuple[ResourceTemplate, ...]]
    auth_statuses: Mapping[str, McpAuthStatus]


Notice = (
    ErrorNotice
    | WarningNotice
    | DeprecationNotice
    | ProgressNotice
    | UndoStarted
    | UndoCompleted
    | SessionClosed
    | TokenUsageUpdated
    | PlanUpdated
    | TurnDiffUpdated
    | HistoryItemRecorded
    | HistoryEntryFound
    | CustomPromptsListed
    | McpToolsListed
)
