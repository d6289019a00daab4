"""Items of turns: messages, calls and results of the user and the model, and the notifications about an item while it
goes on. Items that only other servers make are passed through unchanged.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import Foreign, unserved
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.method_table import ServerNotification
from app_server_protocol.outgoing import WireStruct, always_written
from app_server_protocol.v2 import item_parts as parts
from app_server_protocol.v2.fields import LegacyAppPathString, RequestId


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

    type: Literal["mcpToolCall"] = always_written("mcpToolCall")
    server: str
    tool: str
    status: parts.McpToolCallStatus
    arguments: Json
    result: parts.McpToolCallResult | None = always_written(None)
    error: parts.McpToolCallError | None = always_written(None)
    duration_ms: int | None = always_written(None)
    app_context: Annotated[Foreign, unserved("McpToolCallAppContext")] | None = always_written(None)
    plugin_id: str | None = always_written(None)
    read_only_hint: bool | None = always_written(None)
    environment_id: str | None = always_written(None)
    mcp_app_ui: Annotated[Foreign, unserved("McpAppUi")] | None = always_written(None)
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


class HookPromptFragment(WireStruct):
    """Words of one hook, and the run of it that brought them."""

    text: str
    hook_run_id: str


class HookPromptThreadItem(parts.Item):
    """Words that hooks gave the model, because of which the turn goes on."""

    type: Literal["hookPrompt"] = "hookPrompt"
    fragments: tuple[HookPromptFragment, ...]


class OtherThreadItem(parts.Item):
    """An item that only other servers make: of sub-agents and generated pictures, and results given in advance.
    `raw` is all of it.
    """

    type: Literal[
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
    def of_fields(cls, values: dict[str, Any], raw: Json) -> Self:
        return super().of_fields({**values, "raw": raw}, raw)


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
        | HookPromptThreadItem
        | OtherThreadItem,
        Field(discriminator="type"),
    ],
)


class ItemStartedNotification(WireStruct):
    """Before everything else that is said about the item."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    started_at_ms: int


class ItemCompletedNotification(WireStruct):
    """The item as it stays. The last thing that is said about it."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    content_token_count: int | None = None
    completed_at_ms: int


class OfItem(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str


class ItemDelta(OfItem):
    delta: str


class AgentMessageDeltaNotification(ItemDelta):
    pass


class PlanDeltaNotification(ItemDelta):
    pass


class ReasoningSummaryPartAddedNotification(OfItem):
    summary_index: int


class ReasoningSummaryTextDeltaNotification(ItemDelta):
    summary_index: int


class ReasoningTextDeltaNotification(ItemDelta):
    content_index: int


class CommandExecutionOutputDeltaNotification(ItemDelta):
    pass


class TerminalInteractionNotification(OfItem):
    """The model wrote to a command that runs."""

    process_id: str
    stdin: str


class ServerRequestResolvedNotification(WireStruct):
    """A question of the server needs no answer any more: it was answered, or its turn has ended."""

    thread_id: str
    request_id: RequestId


ITEM_STARTED: Final = ServerNotification("item/started", ItemStartedNotification, "An item begins.")
ITEM_COMPLETED: Final = ServerNotification("item/completed", ItemCompletedNotification, "An item ended.")
ITEM_AGENT_MESSAGE_DELTA: Final = ServerNotification(
    "item/agentMessage/delta", AgentMessageDeltaNotification, "A piece of what the model says."
)
ITEM_PLAN_DELTA: Final = ServerNotification(
    "item/plan/delta", PlanDeltaNotification, "A piece of the plan that the model proposes."
)
ITEM_REASONING_SUMMARY_PART_ADDED: Final = ServerNotification(
    "item/reasoning/summaryPartAdded",
    ReasoningSummaryPartAddedNotification,
    "Another part of the summary of what the model thinks.",
)
ITEM_REASONING_SUMMARY_TEXT_DELTA: Final = ServerNotification(
    "item/reasoning/summaryTextDelta",
    ReasoningSummaryTextDeltaNotification,
    "A piece of that summary.",
)
ITEM_REASONING_TEXT_DELTA: Final = ServerNotification(
    "item/reasoning/textDelta",
    ReasoningTextDeltaNotification,
    "A piece of what the model thinks, where it is shown.",
)
ITEM_COMMAND_EXECUTION_OUTPUT_DELTA: Final = ServerNotification(
    "item/commandExecution/outputDelta",
    CommandExecutionOutputDeltaNotification,
    "A piece of a command's output, as text.",
)
ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION: Final = ServerNotification(
    "item/commandExecution/terminalInteraction",
    TerminalInteractionNotification,
    "The model wrote to a command.",
)
SERVER_REQUEST_RESOLVED: Final = ServerNotification(
    "serverRequest/resolved",
    ServerRequestResolvedNotification,
    "A question needs no answer any more.",
)
