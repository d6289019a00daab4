"""Errors, warnings and other news that belong to no item."""

from typing import Literal

from protocol.base import EngineModel, omit_none


class ErrorEvent(EngineModel):
    """Something failed. Within a turn it is followed by the end of the turn; outside of one it stands
    alone."""

    type: Literal["error"] = "error"
    message: str


class WarningEvent(EngineModel):
    """Something the user should know; work goes on."""

    type: Literal["warning"] = "warning"
    message: str


class DeprecationNoticeEvent(EngineModel):
    """A setting in use will go away. After the session was configured, before its first turn."""

    type: Literal["deprecation_notice"] = "deprecation_notice"
    summary: str
    details: str | None = omit_none()


class BackgroundEventEvent(EngineModel):
    """A line of progress, at any time."""

    type: Literal["background_event"] = "background_event"
    message: str


class StreamErrorEvent(EngineModel):
    """The model's stream broke and is tried again. Deltas of the broken attempt are void; the items
    begin anew."""

    type: Literal["stream_error"] = "stream_error"
    message: str


class UndoStartedEvent(EngineModel):
    """The working tree is being put back. After `task_started`."""

    type: Literal["undo_started"] = "undo_started"
    message: str | None = omit_none()


class UndoCompletedEvent(EngineModel):
    """The working tree was put back, or not. Exactly one for each `undo_started`."""

    type: Literal["undo_completed"] = "undo_completed"
    success: bool
    message: str | None = omit_none()


class ShutdownCompleteEvent(EngineModel):
    """The conversation is closed and stored. The last event of the conversation."""

    type: Literal["shutdown_complete"] = "shutdown_complete"
