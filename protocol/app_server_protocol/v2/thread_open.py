"""Threads: start a new one, resume a stored one or join one that is open, fork, unsubscribe."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.ids import AbsolutePath, PathText
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import (
    AbsolutePathBuf,
    Experimental,
    InThread,
    LegacyAppPathString,
    ReasoningEffort,
    SortDirection,
    experimental,
)
from app_server_protocol.v2.settings import (
    ActivePermissionProfile,
    ApprovalsReviewer,
    AskForApproval,
    CollaborationMode,
    Personality,
    SandboxPolicy,
    ThreadOptions,
)
from app_server_protocol.v2.thread import Thread, ThreadHistoryMode
from app_server_protocol.v2.turn import Turn, TurnItemsView
from app_server_protocol.wire_fields import CleanText, Count, Flag

ThreadStartSource = TypeAliasType("ThreadStartSource", Literal["startup", "clear"])


class FunctionDynamicToolNamespaceTool(WireModel):
    type: Literal["function"] = "function"
    name: str
    description: CleanText
    input_schema: Json
    defer_loading: Flag = False


DynamicToolNamespaceTool = TypeAliasType("DynamicToolNamespaceTool", FunctionDynamicToolNamespaceTool)


class FunctionDynamicToolSpec(WireModel):
    type: Literal["function"] = "function"
    name: str
    description: CleanText
    input_schema: Json
    defer_loading: Flag = False


class NamespaceDynamicToolSpec(WireModel):
    type: Literal["namespace"] = "namespace"
    name: str
    description: CleanText
    tools: tuple[DynamicToolNamespaceTool, ...]


def _with_type(raw: Json) -> Json:
    """Return a tool without a type as a function."""
    return {"type": "function", **raw} if isinstance(raw, dict) else raw


DynamicToolSpec = TypeAliasType(
    "DynamicToolSpec",
    Annotated[
        Annotated[FunctionDynamicToolSpec | NamespaceDynamicToolSpec, Field(discriminator="type")],
        BeforeValidator(_with_type),
    ],
)


class EnvironmentCapabilityRootLocation(WireModel):
    """A folder of an environment. There is one, the server's own machine, whose id is `local`."""

    type: Literal["environment"] = "environment"
    environment_id: str
    path: AbsolutePath


CapabilityRootLocation = TypeAliasType("CapabilityRootLocation", EnvironmentCapabilityRootLocation)


class SelectedCapabilityRoot(WireModel):
    """A folder with skills for one thread."""

    id: str
    location: CapabilityRootLocation


class ThreadStartParams(ThreadOptions):
    """A new thread, and settings for it."""

    service_name: str | None = None
    personality: Personality | None = None
    ephemeral: Flag | None = None
    history_mode: ThreadHistoryMode | None = experimental()
    session_start_source: ThreadStartSource | None = None
    thread_source: str | None = None
    dynamic_tools: tuple[DynamicToolSpec, ...] | None = experimental()
    selected_capability_roots: tuple[SelectedCapabilityRoot, ...] | None = experimental()
    experimental_raw_events: Flag = experimental(False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_id(cls, raw: Json) -> Json:
        """Refuse an id: a client that chose the id would not find its thread under it."""
        if isinstance(raw, dict) and raw.get("threadId") is not None:
            raise ValueError("a new thread gets its own id: leave `threadId` out, or use thread/resume")
        return raw


MultiAgentMode = TypeAliasType("MultiAgentMode", Literal["explicitRequestOnly", "proactive"])


class OpenedThread(WireStruct):
    """The thread and the settings in force. No thread has plugins or begins sub-agents by itself."""

    thread: Thread
    model: str
    model_provider: str
    service_tier: str | None = None
    cwd: AbsolutePathBuf
    runtime_workspace_roots: Annotated[tuple[AbsolutePathBuf, ...], Experimental] = ()
    instruction_sources: tuple[LegacyAppPathString, ...] = ()
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    sandbox: SandboxPolicy
    active_permission_profile: Annotated[ActivePermissionProfile | None, Experimental] = None
    reasoning_effort: ReasoningEffort | None = None
    disabled_plugin_ids: tuple[str, ...] = ()
    multi_agent_mode: Annotated[MultiAgentMode, Experimental] = "explicitRequestOnly"


class ThreadStartResponse(OpenedThread):
    """The thread and the settings in force."""


class TurnsPage(WireStruct):
    data: tuple[Turn, ...]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadResumeInitialTurnsPageParams(WireModel):
    limit: Count | None = None
    sort_direction: SortDirection | None = None
    items_view: TurnItemsView | None = None


class ThreadResumeParams(ThreadOptions, InThread):
    """Which thread, and settings for it. A thread that is open is joined as it is.

    `history` are items of the model's API, to go on with instead of what is stored.
    """

    history: tuple[Json, ...] | None = experimental()
    path: PathText | None = experimental()
    personality: Personality | None = None
    exclude_turns: Flag = False
    initial_turns_page: ThreadResumeInitialTurnsPageParams | None = experimental()


class ThreadResumeResponse(OpenedThread):
    """The thread, the settings in force, and its turns unless they were not wanted."""

    collaboration_mode: CollaborationMode | None = None
    initial_turns_page: Annotated[TurnsPage | None, Experimental] = None
    turns_backwards_cursor: str | None = None
    items_backwards_cursor: str | None = None


class ThreadForkParams(ThreadOptions, InThread):
    """Which thread to copy, up to where, and settings of the copy."""

    last_turn_id: str | None = None
    before_turn_id: str | None = experimental()
    path: PathText | None = experimental()
    ephemeral: Flag = False
    thread_source: str | None = None
    exclude_turns: Flag = False


class ThreadForkResponse(OpenedThread):
    """The copy and the settings in force."""


ThreadUnsubscribeStatus = TypeAliasType(
    "ThreadUnsubscribeStatus", Literal["notLoaded", "notSubscribed", "unsubscribed"]
)


class ThreadUnsubscribeResponse(WireStruct):
    """Not an error for a thread that is unknown."""

    status: ThreadUnsubscribeStatus


THREAD_START: Final = ClientRequest(
    "thread/start",
    ThreadStartParams,
    ThreadStartResponse,
    "Begins a thread and subscribes to it. `thread/started` follows.",
)
THREAD_RESUME: Final = ClientRequest(
    "thread/resume",
    ThreadResumeParams,
    ThreadResumeResponse,
    "Opens a stored thread or joins one that is open, and subscribes to it. Open questions are asked again.",
)
THREAD_FORK: Final = ClientRequest(
    "thread/fork",
    ThreadForkParams,
    ThreadForkResponse,
    "Copies a thread, whole or up to a turn, and subscribes to the copy. `thread/started` follows.",
)
THREAD_UNSUBSCRIBE: Final = ClientRequest(
    "thread/unsubscribe",
    InThread,
    ThreadUnsubscribeResponse,
    "Ends the subscription of this connection; the thread goes on.",
)
