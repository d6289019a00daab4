"""What `session/update` sends, besides tool calls and the pieces of messages, which are written by hand."""

from typing import Literal

from protocol.acp.session import SessionConfigOption
from protocol.structs import WireStruct, shown


class PlanEntry(WireStruct):
    content: str
    priority: Literal["high", "medium", "low"] = "medium"
    status: Literal["pending", "in_progress", "completed"]


class PlanOfSession(WireStruct):
    session_update: Literal["plan"] = "plan"
    entries: tuple[PlanEntry, ...]


class CommandInput(WireStruct):
    hint: str


class AvailableCommand(WireStruct, omit_defaults=True):
    name: str
    description: str
    input: CommandInput | None = None


class AvailableCommandsUpdate(WireStruct):
    session_update: Literal["available_commands_update"] = "available_commands_update"
    available_commands: tuple[AvailableCommand, ...]


class CurrentModeUpdate(WireStruct):
    session_update: Literal["current_mode_update"] = "current_mode_update"
    current_mode_id: str


class ConfigOptionUpdate(WireStruct):
    session_update: Literal["config_option_update"] = "config_option_update"
    config_options: tuple[SessionConfigOption, ...]


class SessionInfoUpdate(WireStruct):
    session_update: Literal["session_info_update"] = "session_info_update"
    title: str


class UsageUpdate(WireStruct):
    session_update: Literal["usage_update"] = "usage_update"
    used: int
    size: int


class SessionNotice(WireStruct, omit_defaults=True):
    session_update: Literal["notice"] = shown("notice")
    severity: Literal["info", "warning", "error"]
    title: str
    description: str | None = None


class CompactionUpdate(WireStruct):
    session_update: Literal["compaction_update"] = "compaction_update"
    compaction_id: str
    status: Literal["in_progress", "completed", "failed", "cancelled"]
