"""What `session/update` sends, besides tool calls and the pieces of messages, which are written by hand."""

from typing import Literal

from protocol.acp.session import SessionConfigOption
from protocol.base import WireModel, omit_none


class PlanEntry(WireModel):
    content: str
    priority: Literal["high", "medium", "low"] = "medium"
    status: Literal["pending", "in_progress", "completed"]


class PlanOfSession(WireModel):
    session_update: Literal["plan"] = "plan"
    entries: tuple[PlanEntry, ...]


class CommandInput(WireModel):
    hint: str


class AvailableCommand(WireModel):
    name: str
    description: str
    input: CommandInput | None = omit_none()


class AvailableCommandsUpdate(WireModel):
    session_update: Literal["available_commands_update"] = "available_commands_update"
    available_commands: tuple[AvailableCommand, ...]


class CurrentModeUpdate(WireModel):
    session_update: Literal["current_mode_update"] = "current_mode_update"
    current_mode_id: str


class ConfigOptionUpdate(WireModel):
    session_update: Literal["config_option_update"] = "config_option_update"
    config_options: tuple[SessionConfigOption, ...]


class SessionInfoUpdate(WireModel):
    session_update: Literal["session_info_update"] = "session_info_update"
    title: str


class UsageUpdate(WireModel):
    session_update: Literal["usage_update"] = "usage_update"
    used: int
    size: int


class SessionNotice(WireModel):
    session_update: Literal["notice"] = "notice"
    severity: Literal["info", "warning", "error"]
    title: str
    description: str | None = omit_none()


class CompactionUpdate(WireModel):
    session_update: Literal["compaction_update"] = "compaction_update"
    compaction_id: str
    status: Literal["in_progress", "completed", "failed", "cancelled"]
