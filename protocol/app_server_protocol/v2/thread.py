"""The shape of a thread: its origin, its status, its usage; and the notifications about it as a whole."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import Foreign, unserved
from app_server_protocol.method_table import ServerNotification
from app_server_protocol.outgoing import EngineStruct, WireStruct
from app_server_protocol.v2.fields import AbsolutePathBuf, Experimental, LegacyAppPathString, ReasoningEffort
from app_server_protocol.v2.turn import Turn


class ThreadHistoryMode(StrEnum):
    """Form in which the items of a thread are stored."""

    LEGACY = "legacy"
    PAGINATED = "paginated"


class GitInfo(WireStruct):
    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


ThreadActiveFlag = TypeAliasType("ThreadActiveFlag", Literal["waitingOnApproval", "waitingOnUserInput"])


class NotLoadedThreadStatus(WireStruct):
    type: Literal["notLoaded"] = "notLoaded"


class IdleThreadStatus(WireStruct):
    type: Literal["idle"] = "idle"


class SystemErrorThreadStatus(WireStruct):
    type: Literal["systemError"] = "systemError"


class ActiveThreadStatus(WireStruct):
    type: Literal["active"] = "active"
    active_flags: tuple[ThreadActiveFlag, ...]


ThreadStatus = TypeAliasType(
    "ThreadStatus",
    Annotated[
        NotLoadedThreadStatus | IdleThreadStatus | SystemErrorThreadStatus | ActiveThreadStatus,
        Field(discriminator="type"),
    ],
)


class SessionOriginWord(StrEnum):
    CLI = "cli"
    VSCODE = "vscode"
    EXEC = "exec"
    APP_SERVER = "appServer"
    UNKNOWN = "unknown"


SubAgentWord = TypeAliasType("SubAgentWord", Literal["review", "compact", "memory_consolidation"])


class ThreadSpawn(EngineStruct):
    """Which thread began the sub-agent, and how many are above it."""

    parent_thread_id: str
    depth: int
    agent_path: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None


class ThreadSpawnSubAgentSource(EngineStruct, forbid_unknown_fields=True):
    thread_spawn: ThreadSpawn


class OtherSubAgentSource(EngineStruct, forbid_unknown_fields=True):
    other: str


SubAgentSource = TypeAliasType(
    "SubAgentSource", SubAgentWord | ThreadSpawnSubAgentSource | OtherSubAgentSource
)


class CustomSessionSource(WireStruct, forbid_unknown_fields=True):
    """A client that gave itself a name."""

    custom: str


class SubAgentSessionSource(WireStruct, forbid_unknown_fields=True):
    """Begun by another thread."""

    sub_agent: SubAgentSource


SessionSource = TypeAliasType(
    "SessionSource", SessionOriginWord | CustomSessionSource | SubAgentSessionSource
)


class ThreadEnvironment(WireStruct):
    """Place where the commands of a thread run. There is one, the server's own machine, whose id is `local`."""

    environment_id: str
    cwd: LegacyAppPathString
    runtime_workspace_roots: tuple[LegacyAppPathString, ...]


class Thread(WireStruct):
    """A thread, its turns only where they were asked for. Times are in seconds; null fields are written.

    `environments` and `canAcceptDirectInput` are null for a thread that is not loaded.
    """

    id: str
    session_id: str
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    preview: str
    ephemeral: bool
    project_id: str | None
    history_mode: ThreadHistoryMode = ThreadHistoryMode.LEGACY
    model_provider: str
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    created_at: int
    updated_at: int
    recency_at: int | None = None
    status: ThreadStatus
    path: str | None = None
    cwd: AbsolutePathBuf
    cli_version: str
    originator: str | None = None
    source: SessionSource
    thread_source: str | None = None
    agent_nickname: str | None = None
    name: str | None = None
    agent_role: str | None = None
    git_info: GitInfo | None = None
    environments: Annotated[tuple[ThreadEnvironment, ...] | None, Experimental] = None
    can_accept_direct_input: Annotated[bool | None, Experimental] = None
    attached_to_thread_id: Annotated[str | None, Experimental] = None
    section: Annotated[Foreign, unserved("ThreadSection")] | None = None
    section_entered_at: int | None = None
    extra: Annotated[Annotated[Foreign, unserved("ThreadExtra")] | None, Experimental] = None
    turns: tuple[Turn, ...]


class TokenUsageBreakdown(WireStruct):
    total_tokens: int
    input_tokens: int
    cached_input_tokens: int
    cache_write_input_tokens: int = 0
    output_tokens: int
    reasoning_output_tokens: int


class ThreadTokenUsage(WireStruct):
    """Tokens since the beginning, and those of the last request."""

    total: TokenUsageBreakdown
    last: TokenUsageBreakdown
    model_context_window: int | None = None


class ThreadStartedNotification(WireStruct):
    thread: Thread


class ThreadStatusChangedNotification(WireStruct):
    thread_id: str
    status: ThreadStatus


class ThreadArchivedNotification(WireStruct):
    thread_id: str


class ThreadUnarchivedNotification(WireStruct):
    thread_id: str


class ThreadDeletedNotification(WireStruct):
    thread_id: str


class ThreadClosedNotification(WireStruct):
    thread_id: str


class ThreadRevertedNotification(WireStruct):
    thread_id: str


class ThreadNameUpdatedNotification(WireStruct):
    thread_id: str
    thread_name: str | None = None


class ThreadTokenUsageUpdatedNotification(WireStruct):
    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage


THREAD_STARTED: Final = ServerNotification(
    "thread/started", ThreadStartedNotification, "A thread was begun, forked or brought back."
)
THREAD_STATUS_CHANGED: Final = ServerNotification(
    "thread/status/changed",
    ThreadStatusChangedNotification,
    "A thread is idle, busy, waiting for an answer, in trouble or no longer open.",
)
THREAD_ARCHIVED: Final = ServerNotification(
    "thread/archived", ThreadArchivedNotification, "A thread went to the archive."
)
THREAD_UNARCHIVED: Final = ServerNotification(
    "thread/unarchived", ThreadUnarchivedNotification, "A thread came back from the archive."
)
THREAD_DELETED: Final = ServerNotification(
    "thread/deleted", ThreadDeletedNotification, "A thread was deleted."
)
THREAD_CLOSED: Final = ServerNotification(
    "thread/closed", ThreadClosedNotification, "A thread that nobody used is no longer open."
)
THREAD_REVERTED: Final = ServerNotification(
    "thread/reverted", ThreadRevertedNotification, "The end of a thread was cut off."
)
THREAD_NAME_UPDATED: Final = ServerNotification(
    "thread/name/updated", ThreadNameUpdatedNotification, "A thread has another name."
)
THREAD_TOKEN_USAGE_UPDATED: Final = ServerNotification(
    "thread/tokenUsage/updated",
    ThreadTokenUsageUpdatedNotification,
    "What the thread has used, after each answer of the model.",
)


class McpServerStartupState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


class McpServerStartupFailureReason(StrEnum):
    REAUTHENTICATION_REQUIRED = "reauthenticationRequired"


class McpServerStatusUpdatedNotification(WireStruct):
    """A server of a thread starts, is ready or failed."""

    thread_id: str | None = None
    name: str
    status: McpServerStartupState
    error: str | None = None
    failure_reason: McpServerStartupFailureReason | None = None
    protocol_version: str | None = None
    environment_id: str | None = None


MCP_SERVER_STARTUP_STATUS_UPDATED: Final = ServerNotification(
    "mcpServer/startupStatus/updated",
    McpServerStatusUpdatedNotification,
    "A server of a thread starts, is ready or failed.",
)


class ThreadGoalStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    BLOCKED = "blocked"
    USAGE_LIMITED = "usageLimited"
    BUDGET_LIMITED = "budgetLimited"
    COMPLETE = "complete"


class ThreadGoal(WireStruct):
    """Goal that a thread works for by itself, and what that has used."""

    thread_id: str
    objective: str
    status: ThreadGoalStatus
    token_budget: int | None = None
    tokens_used: int
    time_used_seconds: int
    created_at: int
    updated_at: int


class ThreadGoalUpdatedNotification(WireStruct):
    thread_id: str
    turn_id: str | None = None
    goal: ThreadGoal


class ThreadGoalClearedNotification(WireStruct):
    thread_id: str


THREAD_GOAL_UPDATED: Final = ServerNotification(
    "thread/goal/updated", ThreadGoalUpdatedNotification, "The goal of a thread changed."
)


THREAD_GOAL_CLEARED: Final = ServerNotification(
    "thread/goal/cleared", ThreadGoalClearedNotification, "A thread has no goal any more."
)
