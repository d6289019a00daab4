"""The updates of `session/update`, one shape for each kind. Those of tool calls come from `tool_calls`; pieces of texts
are written without a shape.
"""

from typing import Literal

from app_server_protocol.acp.sessions import SessionConfigOption
from app_server_protocol.acp.tool_calls import SessionToolCall, SessionToolCallUpdate
from app_server_protocol.encoding import Json
from app_server_protocol.outgoing import WireStruct, always_written


class MessageChunk(WireStruct):
    """A content block of a message, or of a thought."""

    session_update: Literal["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"]
    message_id: str
    content: Json


class NoticeUpdate(WireStruct, omit_defaults=True):
    """A notice for the user that no model wrote."""

    session_update: Literal["notice"] = always_written("notice")
    severity: Literal["info", "warning", "error"]
    title: str
    description: str | None = None


class PlanEntry(WireStruct):
    content: str
    priority: Literal["high", "medium", "low"]
    status: str


class PlanUpdate(WireStruct):
    """The whole plan."""

    session_update: Literal["plan"] = always_written("plan")
    entries: tuple[PlanEntry, ...]


class UsageUpdate(WireStruct):
    """Tokens in the context, and the size of the context window in tokens."""

    session_update: Literal["usage_update"] = always_written("usage_update")
    used: int
    size: int


class CompactionUpdate(WireStruct):
    session_update: Literal["compaction_update"] = always_written("compaction_update")
    compaction_id: str
    status: str


class AvailableCommandsUpdate(WireStruct):
    """The slash commands of a session."""

    session_update: Literal["available_commands_update"] = always_written("available_commands_update")
    available_commands: tuple[Json, ...]


class SessionInfoUpdate(WireStruct, omit_defaults=True):
    session_update: Literal["session_info_update"] = always_written("session_info_update")
    title: str | None = None


class ConfigOptionUpdate(WireStruct):
    """All options of a session with their current values."""

    session_update: Literal["config_option_update"] = always_written("config_option_update")
    config_options: tuple[SessionConfigOption, ...]


class CurrentModeUpdate(WireStruct):
    session_update: Literal["current_mode_update"] = always_written("current_mode_update")
    current_mode_id: str


SessionUpdate = (
    MessageChunk
    | NoticeUpdate
    | PlanUpdate
    | UsageUpdate
    | CompactionUpdate
    | AvailableCommandsUpdate
    | SessionInfoUpdate
    | ConfigOptionUpdate
    | CurrentModeUpdate
    | SessionToolCall
    | SessionToolCallUpdate
)
