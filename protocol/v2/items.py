"""Items of turns: what the user and the model said and did. What only other servers make is kept as it came."""

from enum import StrEnum
from typing import Annotated, Literal, Self

import msgspec
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from protocol.base import Foreign, unserved
from protocol.structs import Json, json_bytes, replace, shown
from protocol.v2 import item_parts as parts
from protocol.v2.fields import LegacyAppPathString


class MessagePhase(StrEnum):
    """Purpose of a message of the model, where the model says so."""

    COMMENTARY = "commentary"
    PARTIAL_ANSWER = "partial_answer"
    FINAL_ANSWER = "final_answer"


class UserMessageThreadItem(parts.Item):
    """Words of the user, as they were sent; `clientId` is the client's own name for them."""

    type: Literal["userMessage"] = "userMessage"
    client_id: str | None = None
    content: tuple[parts.UserInput, ...]


class AgentMessageThreadItem(parts.Item):
    """Words of the model."""

    type: Literal["agentMessage"] = "agentMessage"
    text: str
    phase: MessagePhase | None = None
    memory_citation: Annotated[Foreign, unserved("MemoryCitation")] | None = None


class PlanThreadItem(parts.Item):
    """The plan that the model proposed."""

    type: Literal["plan"] = "plan"
    text: str


class ReasoningThreadItem(parts.Item):
    """Thoughts of the model: summaries by part, and the raw text where it is shown."""

    type: Literal["reasoning"] = "reasoning"
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class CommandExecutionThreadItem(parts.Item):
    """A command; `command` is one line, quoted for a shell. Output is null while it runs or where it is empty."""

    type: Literal["commandExecution"] = "commandExecution"
    command: str
    cwd: LegacyAppPathString
    process_id: str | None = None
    source: parts.CommandExecutionSource = "agent"
    status: parts.CommandExecutionStatus
    command_actions: tuple[parts.CommandAction, ...]
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    plugin_id: str | None = None
    script_path: str | None = None


class FileChangeThreadItem(parts.Item):
    """A patch."""

    type: Literal["fileChange"] = "fileChange"
    changes: tuple[parts.FileUpdateChange, ...]
    status: parts.PatchApplyStatus


class McpToolCallThreadItem(parts.Item, omit_defaults=True):
    """A call of a tool of an MCP server: `result` or `error` when it ended."""

    type: Literal["mcpToolCall"] = shown("mcpToolCall")
    server: str
    tool: str
    status: parts.McpToolCallStatus
    arguments: Json
    result: parts.McpToolCallResult | None = shown(None)
    error: parts.McpToolCallError | None = shown(None)
    duration_ms: int | None = shown(None)
    app_context: Annotated[Foreign, unserved("McpToolCallAppContext")] | None = shown(None)
    plugin_id: str | None = shown(None)
    read_only_hint: bool | None = shown(None)
    mcp_app_ui: Annotated[Foreign, unserved("McpAppUi")] | None = shown(None)
    mcp_app_resource_uri: str | None = None


class DynamicToolCallThreadItem(parts.Item):
    """A call of a tool that the client brought."""

    type: Literal["dynamicToolCall"] = "dynamicToolCall"
    namespace: str | None = None
    tool: str
    arguments: Json
    status: parts.DynamicToolCallStatus
    content_items: tuple[parts.DynamicToolCallOutputContentItem, ...] | None = None
    success: bool | None = None
    duration_ms: int | None = None


class WebSearchThreadItem(parts.Item):
    """A search on the web, or a page that was opened."""

    type: Literal["webSearch"] = "webSearch"
    query: str
    action: parts.WebSearchAction | None = None
    results: tuple[Json, ...] | None = None


class ImageViewThreadItem(parts.Item):
    """A picture that the model looked at."""

    type: Literal["imageView"] = "imageView"
    path: LegacyAppPathString


class EnteredReviewModeThreadItem(parts.Item):
    """A review begins; `review` says of what."""

    type: Literal["enteredReviewMode"] = "enteredReviewMode"
    review: str


class ExitedReviewModeThreadItem(parts.Item):
    """A review ended; `review` is what it found."""

    type: Literal["exitedReviewMode"] = "exitedReviewMode"
    review: str


class ContextCompactionThreadItem(parts.Item):
    """The history was replaced by a summary."""

    type: Literal["contextCompaction"] = "contextCompaction"


class OtherThreadItem(parts.Item):
    """An item that only other servers make: of hooks, sub-agents and generated pictures, and results given in advance.
    `raw` is all of it.
    """

    type: Literal[
        "hookPrompt",
        "functionCallOutput",
        "collabAgentToolCall",
        "subAgentActivity",
        "sleep",
        "imageGeneration",
    ]
    raw: Foreign = msgspec.field(default_factory=dict)

    def to_json(self) -> bytes:
        return json_bytes(self.raw)

    @classmethod
    def of_model(cls, model: BaseModel, raw: Json) -> Self:
        return replace(super().of_model(model, raw), raw=raw)


ThreadItem = TypeAliasType(
    "ThreadItem",
    Annotated[
        UserMessageThreadItem
        | AgentMessageThreadItem
        | PlanThreadItem
        | ReasoningThreadItem
        | CommandExecutionThreadItem
        | FileChangeThreadItem
        | McpToolCallThreadItem
        | DynamicToolCallThreadItem
        | WebSearchThreadItem
        | ImageViewThreadItem
        | EnteredReviewModeThreadItem
        | ExitedReviewModeThreadItem
        | ContextCompactionThreadItem
        | OtherThreadItem,
        Field(discriminator="type"),
    ],
)
