"""Work of a thread besides turns of the user: compaction, a shell command, goals, terminals."""

from typing import Final, Literal

from typing_extensions import TypeAliasType

from app_server_protocol.encoding import Json
from app_server_protocol.method_table import ClientRequest, NoResult
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import ByPages, Integer, InThread, LegacyAppPathString
from app_server_protocol.v2.thread import ThreadGoal, ThreadGoalStatus
from app_server_protocol.wire_fields import CleanText


class ThreadInjectItemsParams(InThread):
    """Items of the model's API, for the model to see with the next request."""

    items: tuple[Json, ...]


class ThreadShellCommandParams(InThread):
    """A command of the user; the model is sent its output."""

    command: CleanText
    timeout_ms: Integer | None = None


class ThreadBackgroundTerminal(WireStruct):
    """A command that goes on after its turn."""

    item_id: str
    process_id: str
    command: str
    cwd: LegacyAppPathString
    os_pid: int | None = None
    cpu_percent: float | None = None
    rss_kb: int | None = None


class ThreadBackgroundTerminalsListParams(ByPages, InThread):
    pass


class ThreadBackgroundTerminalsListResponse(WireStruct):
    data: tuple[ThreadBackgroundTerminal, ...]
    next_cursor: str | None = None


class ThreadBackgroundTerminalsTerminateParams(InThread):
    process_id: str


class ThreadBackgroundTerminalsTerminateResponse(WireStruct):
    terminated: bool


ThreadGoalMutationOrigin = TypeAliasType("ThreadGoalMutationOrigin", Literal["user", "automatic"])


class ThreadGoalSetParams(InThread):
    """Change of a goal. What is absent stays as it is."""

    origin: ThreadGoalMutationOrigin | None = None
    objective: CleanText | None = None
    status: ThreadGoalStatus | None = None
    token_budget: Integer | None = None


class ThreadGoalSetResponse(WireStruct):
    goal: ThreadGoal


class ThreadGoalGetResponse(WireStruct):
    goal: ThreadGoal | None = None


class ThreadGoalClearParams(InThread):
    origin: ThreadGoalMutationOrigin | None = None


class ThreadGoalClearResponse(WireStruct):
    cleared: bool


THREAD_COMPACT_START: Final = ClientRequest(
    "thread/compact/start", InThread, NoResult, "Replaces the history by a summary, as a turn of its own."
)
THREAD_INJECT_ITEMS: Final = ClientRequest(
    "thread/inject_items",
    ThreadInjectItemsParams,
    NoResult,
    "Puts items into the history; the model sees them with the next request.",
)
THREAD_SHELL_COMMAND: Final = ClientRequest(
    "thread/shellCommand",
    ThreadShellCommandParams,
    NoResult,
    "Runs a command of the user, as a turn of its own or within the one that runs.",
)
THREAD_BACKGROUND_TERMINALS_LIST: Final = ClientRequest(
    "thread/backgroundTerminals/list",
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    "The commands that go on after their turn.",
    experimental=True,
)
THREAD_BACKGROUND_TERMINALS_TERMINATE: Final = ClientRequest(
    "thread/backgroundTerminals/terminate",
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
    "Ends one of these commands.",
    experimental=True,
)
THREAD_BACKGROUND_TERMINALS_CLEAN: Final = ClientRequest(
    "thread/backgroundTerminals/clean", InThread, NoResult, "Ends all of these commands.", experimental=True
)
THREAD_GOAL_SET: Final = ClientRequest(
    "thread/goal/set",
    ThreadGoalSetParams,
    ThreadGoalSetResponse,
    "Sets what the thread works for by itself, or parts of it.",
)
THREAD_GOAL_GET: Final = ClientRequest(
    "thread/goal/get", InThread, ThreadGoalGetResponse, "The goal of a thread."
)
THREAD_GOAL_CLEAR: Final = ClientRequest(
    "thread/goal/clear", ThreadGoalClearParams, ThreadGoalClearResponse, "Takes the goal away."
)
