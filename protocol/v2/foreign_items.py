"""Items that this server does not make: of sub-agents, hooks, generated pictures, results given in advance.

They are known so that a stored thread of another server can be shown to clients.
"""

from enum import StrEnum
from typing import Literal

from typing_extensions import TypeAliasType

from protocol.base import Json
from protocol.structs import WireStruct, shown
from protocol.v2.fields import AbsolutePathBuf, ReasoningEffort
from protocol.v2.item_parts import Item

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
