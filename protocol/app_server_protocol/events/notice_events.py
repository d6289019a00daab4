"""Errors, warnings and other news that belong to no item; and the answers to operations that only look something up,
each with the id of its operation.
"""

from typing import Literal

from app_server_protocol.engine.notices import CustomPrompt, HistoryEntry
from app_server_protocol.outgoing import EngineStruct, always_written


class ErrorEvent(EngineStruct):
    """Something failed. Within a turn it is followed by the end of the turn; outside of one it stands
    alone."""

    type: Literal["error"] = "error"
    message: str


class WarningEvent(EngineStruct):
    """Something the user should know; work goes on."""

    type: Literal["warning"] = "warning"
    message: str


class DeprecationNoticeEvent(EngineStruct, omit_defaults=True):
    """A setting in use will go away. After the session was configured, before its first turn."""

    type: Literal["deprecation_notice"] = always_written("deprecation_notice")
    summary: str
    details: str | None = None


class BackgroundEventEvent(EngineStruct):
    """A line of progress, at any time."""

    type: Literal["background_event"] = "background_event"
    message: str


class StreamErrorEvent(EngineStruct):
    """The model's stream broke and is tried again. Deltas of the broken attempt are void; the items
    begin anew."""

    type: Literal["stream_error"] = "stream_error"
    message: str


class UndoStartedEvent(EngineStruct, omit_defaults=True):
    """The working tree is being put back. After `task_started`, unless a turn runs: then the undo is refused."""

    type: Literal["undo_started"] = always_written("undo_started")
    message: str | None = None


class UndoCompletedEvent(EngineStruct, omit_defaults=True):
    """The working tree was put back, or not; `message` names the files that were kept. Exactly one for each
    `undo_started`."""

    type: Literal["undo_completed"] = always_written("undo_completed")
    success: bool
    message: str | None = None


class ShutdownCompleteEvent(EngineStruct):
    """The conversation is closed and stored. The last event of the conversation."""

    type: Literal["shutdown_complete"] = "shutdown_complete"


class GetHistoryEntryResponseEvent(EngineStruct, omit_defaults=True):
    """Answer to `get_history_entry_request`; the entry is left out if there is none at that place."""

    type: Literal["get_history_entry_response"] = always_written("get_history_entry_response")
    offset: int
    log_id: int
    entry: HistoryEntry | None = None


class ListCustomPromptsResponseEvent(EngineStruct):
    """Answer to `list_custom_prompts`."""

    type: Literal["list_custom_prompts_response"] = "list_custom_prompts_response"
    custom_prompts: tuple[CustomPrompt, ...]
