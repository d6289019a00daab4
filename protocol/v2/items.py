"""Items of turns: what the user and the model said and did. Those of other servers (of sub-agents, hooks,
generated pictures, results given in advance) are known too; this server makes none of them.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import Json
from protocol.structs import WireStruct, shown
from protocol.v2.fields import AbsolutePathBuf, LegacyAppPathString, ReasoningEffort
from protocol.v2.item_parts import (
    CommandAction,
    CommandExecutionSource,
    CommandExecutionStatus,
    DynamicToolCallOutputContentItem,
    DynamicToolCallStatus,
    FileUpdateChange,
    Item,
    McpAppUi,
    McpToolCallAppContext,
    McpToolCallError,
    McpToolCallResult,
    McpToolCallStatus,
    PatchApplyStatus,
    UserInput,
    WebSearchAction,
)

FunctionCallOutputBody = TypeAliasType("FunctionCallOutputBody", str | tuple[Json, ...])
"""What a tool gave the model: text, or parts as the model's API spells them."""


class CollabAgentStatus(StrEnum):
    PENDING_INIT = "pendingInit"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    ERRORED = "errored"
    SHUTDOWN = "shutdown"
    NOT_FOUND = "notFound"


class CollabAgentState(WireStruct):
    status: CollabAgentStatus
    message: str | None = None


class CollabAgentTool(StrEnum):
    SPAWN_AGENT = "spawnAgent"
    SEND_INPUT = "sendInput"
    RESUME_AGENT = "resumeAgent"
    WAIT = "wait"
    CLOSE_AGENT = "closeAgent"
    SEND_MESSAGE = "sendMessage"
    FOLLOWUP_TASK = "followupTask"
    INTERRUPT_AGENT = "interruptAgent"
    LIST_AGENTS = "listAgents"


class CollabAgentToolCallStatus(StrEnum):
    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class SubAgentActivityKind(StrEnum):
    STARTED = "started"
    INTERACTED = "interacted"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"


class ImageGenerationFailure(WireStruct):
    type: Literal["usageLimitExceeded"] = "usageLimitExceeded"
    limit_id: str
    resets_at: int | None = None


class ImageGenerationInputImage(WireStruct):
    path: AbsolutePathBuf
    sha256: str


class HookPromptFragment(WireStruct):
    text: str
    hook_run_id: str


class HookPromptThreadItem(Item):
    """Words that a hook gave the model."""

    type: Literal["hookPrompt"] = "hookPrompt"
    fragments: tuple[HookPromptFragment, ...]


class FunctionCallOutputThreadItem(Item):
    """A result that the client gave the model in advance."""

    type: Literal["functionCallOutput"] = "functionCallOutput"
    name: str
    namespace: str | None = None
    output: FunctionCallOutputBody


class CollabAgentToolCallThreadItem(Item):
    """A call by which one agent directs others."""

    type: Literal["collabAgentToolCall"] = "collabAgentToolCall"
    agents_states: dict[str, CollabAgentState]
    model: str | None = None
    prompt: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    receiver_thread_ids: tuple[str, ...]
    sender_thread_id: str
    status: CollabAgentToolCallStatus
    tool: CollabAgentTool


class SubAgentActivityThreadItem(Item):
    """A sub-agent began, was sent a message or ended."""

    type: Literal["subAgentActivity"] = "subAgentActivity"
    agent_path: str
    agent_thread_id: str
    kind: SubAgentActivityKind
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class SleepThreadItem(Item):
    """The model waited."""

    type: Literal["sleep"] = "sleep"
    duration_ms: int


class ImageGenerationThreadItem(Item, omit_defaults=True):
    """A picture that the model made."""

    type: Literal["imageGeneration"] = shown("imageGeneration")
    file_id: str | None = None
    result: str | None = None
    failure: ImageGenerationFailure | None = shown(None)
    generation_id: str | None = shown(None)
    input_images: tuple[ImageGenerationInputImage, ...] = shown(())
    revised_prompt: str | None = shown(None)
    saved_path: AbsolutePathBuf | None = shown(None)
    status: str
    transparent_background: bool | None = shown(None)


class MessagePhase(StrEnum):
    """What a message of the model is for, where the model says so."""

    COMMENTARY = "commentary"
    PARTIAL_ANSWER = "partial_answer"
    FINAL_ANSWER = "final_answer"


class MemoryCitationEntry(WireStruct):
    path: str
    line_start: int
    line_end: int
    note: str


class MemoryCitation(WireStruct):
    entries: tuple[MemoryCitationEntry, ...]
    thread_ids: tuple[str, ...]


class UserMessageThreadItem(Item):
    """What the user said, as it was sent; `clientId` is the client's own name for it."""

    type: Literal["userMessage"] = "userMessage"
    client_id: str | None = None
    content: tuple[UserInput, ...]


class AgentMessageThreadItem(Item):
    """What the model said."""

    type: Literal["agentMessage"] = "agentMessage"
    text: str
    phase: MessagePhase | None = None
    memory_citation: MemoryCitation | None = None


class PlanThreadItem(Item):
    """The plan that the model proposed."""

    type: Literal["plan"] = "plan"
    text: str


class ReasoningThreadItem(Item):
    """What the model thought: summaries by part, and the raw text where it is shown."""

    type: Literal["reasoning"] = "reasoning"
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class CommandExecutionThreadItem(Item):
    """A command; `command` is one line, quoted for a shell. Output is null while it runs or where it is empty."""

    type: Literal["commandExecution"] = "commandExecution"
    command: str
    cwd: LegacyAppPathString
    process_id: str | None = None
    source: CommandExecutionSource = CommandExecutionSource.AGENT
    status: CommandExecutionStatus
    command_actions: tuple[CommandAction, ...]
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    plugin_id: str | None = None
    script_path: str | None = None


class FileChangeThreadItem(Item):
    """A patch."""

    type: Literal["fileChange"] = "fileChange"
    changes: tuple[FileUpdateChange, ...]
    status: PatchApplyStatus


class McpToolCallThreadItem(Item, omit_defaults=True):
    """A call of a tool of an MCP server: `result` or `error` when it ended."""

    type: Literal["mcpToolCall"] = shown("mcpToolCall")
    server: str
    tool: str
    status: McpToolCallStatus
    arguments: Json
    result: McpToolCallResult | None = shown(None)
    error: McpToolCallError | None = shown(None)
    duration_ms: int | None = shown(None)
    app_context: McpToolCallAppContext | None = shown(None)
    plugin_id: str | None = shown(None)
    read_only_hint: bool | None = shown(None)
    mcp_app_ui: McpAppUi | None = shown(None)
    mcp_app_resource_uri: str | None = None


class DynamicToolCallThreadItem(Item):
    """A call of a tool that the client brought."""

    type: Literal["dynamicToolCall"] = "dynamicToolCall"
    namespace: str | None = None
    tool: str
    arguments: Json
    status: DynamicToolCallStatus
    content_items: tuple[DynamicToolCallOutputContentItem, ...] | None = None
    success: bool | None = None
    duration_ms: int | None = None


class WebSearchThreadItem(Item):
    """A search on the web, or a page that was opened."""

    type: Literal["webSearch"] = "webSearch"
    query: str
    action: WebSearchAction | None = None
    results: tuple[Json, ...] | None = None


class ImageViewThreadItem(Item):
    """A picture that the model looked at."""

    type: Literal["imageView"] = "imageView"
    path: LegacyAppPathString


class EnteredReviewModeThreadItem(Item):
    """A review begins; `review` says of what."""

    type: Literal["enteredReviewMode"] = "enteredReviewMode"
    review: str


class ExitedReviewModeThreadItem(Item):
    """A review ended; `review` is what it found."""

    type: Literal["exitedReviewMode"] = "exitedReviewMode"
    review: str


class ContextCompactionThreadItem(Item):
    """The history was replaced by a summary."""

    type: Literal["contextCompaction"] = "contextCompaction"


ThreadItem = TypeAliasType(
    "ThreadItem",
    Annotated[
        UserMessageThreadItem
        | HookPromptThreadItem
        | AgentMessageThreadItem
        | FunctionCallOutputThreadItem
        | PlanThreadItem
        | ReasoningThreadItem
        | CommandExecutionThreadItem
        | FileChangeThreadItem
        | McpToolCallThreadItem
        | DynamicToolCallThreadItem
        | CollabAgentToolCallThreadItem
        | SubAgentActivityThreadItem
        | WebSearchThreadItem
        | ImageViewThreadItem
        | SleepThreadItem
        | ImageGenerationThreadItem
        | EnteredReviewModeThreadItem
        | ExitedReviewModeThreadItem
        | ContextCompactionThreadItem,
        Field(discriminator="type"),
    ],
)
