"""Runs of hooks in a thread: begin and end of each, with what it has brought; and callbacks, by which a client answers
for hooks itself.
"""

from enum import StrEnum
from typing import Any, Final

from pydantic import ConfigDict, Field

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.method_table import ServerNotification, ServerRequest
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import LegacyAppPathString
from app_server_protocol.v2.hook_listing import HookEventName, HookHandlerType, HookSource


class HookExecutionMode(StrEnum):
    """Mode of a run: nothing waits for one that is `async`, and it decides nothing."""

    SYNC = "sync"
    ASYNC = "async"


class HookScope(StrEnum):
    THREAD = "thread"
    TURN = "turn"


class HookRunStatus(StrEnum):
    """State of a run: `blocked` forbade what it guards, `stopped` ended the turn."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    STOPPED = "stopped"


class HookOutputEntryKind(StrEnum):
    WARNING = "warning"
    STOP = "stop"
    FEEDBACK = "feedback"
    CONTEXT = "context"
    ERROR = "error"


class HookOutputEntry(WireStruct):
    """A text that a run has brought: for the user, or as context for the model."""

    kind: HookOutputEntryKind
    text: str


class HookRunSummary(WireStruct):
    """One run of one hook. Times are in seconds since 1970."""

    id: str
    event_name: HookEventName
    handler_type: HookHandlerType
    execution_mode: HookExecutionMode
    scope: HookScope
    source_path: LegacyAppPathString
    source: HookSource = "unknown"
    display_order: int
    status: HookRunStatus
    status_message: str | None = None
    started_at: int
    completed_at: int | None = None
    duration_ms: int | None = None
    entries: tuple[HookOutputEntry, ...]


class HookStartedNotification(WireStruct):
    thread_id: str
    turn_id: str | None = None
    run: HookRunSummary


class HookCompletedNotification(WireStruct):
    """The run as it ended; it is the last thing that is said about it."""

    thread_id: str
    turn_id: str | None = None
    run: HookRunSummary


HOOK_STARTED: Final = ServerNotification("hook/started", HookStartedNotification, "A hook begins to run.")
HOOK_COMPLETED: Final = ServerNotification("hook/completed", HookCompletedNotification, "A hook has ended.")


class HookRunParams(WireStruct):
    """An event of a thread that the client follows."""

    thread_id: str
    turn_id: str | None
    """Turn of the event; null outside of turns."""
    event: str
    """Name of the event, as in `capabilities.hooks.events`."""
    input: Json
    """Object that a command would read as its input."""


class HookRunResponse(WireModel):
    """Answer of a hook, in the words that a command prints. Without a field it is no objection."""

    model_config = ConfigDict(extra="allow")

    goes_on: bool | None = Field(default=None, alias="continue")
    stop_reason: str | None = None
    system_message: str | None = None
    decision: str | None = None
    reason: str | None = None
    hook_specific_output: dict[str, Any] | None = None


HOOK_RUN: Final = ServerRequest(
    "hook/run",
    HookRunParams,
    HookRunResponse,
    "Asks a client that announced `capabilities.hooks` what its hook says about an event.",
    extension=True,
)
