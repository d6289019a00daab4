"""Tool calls as clients show them, and the request for permission to go on with one."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from protocol.base import Json, WireModel, is_none, omit_none


class ToolKind(StrEnum):
    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    MOVE = "move"
    SEARCH = "search"
    EXECUTE = "execute"
    THINK = "think"
    FETCH = "fetch"
    OTHER = "other"


class ToolCallStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


class ContentOfCall(WireModel):
    type: Literal["content"] = "content"
    content: Json


class DiffOfCall(WireModel):
    """`old_text` None: the file is new."""

    type: Literal["diff"] = "diff"
    path: str
    old_text: str | None = None
    new_text: str


class TerminalOfCall(WireModel):
    type: Literal["terminal"] = "terminal"
    terminal_id: str


ToolCallContent = ContentOfCall | DiffOfCall | TerminalOfCall


class ToolCallLocation(WireModel):
    path: str
    line: int | None = omit_none()


class SessionToolCallFields(WireModel):
    """Of a call that begins, or those that changed; lists replace the ones before."""

    tool_call_id: str
    title: str | None = omit_none()
    name: str | None = omit_none()
    kind: ToolKind | None = omit_none()
    status: ToolCallStatus | None = omit_none()
    content: tuple[ToolCallContent, ...] | None = omit_none()
    locations: tuple[ToolCallLocation, ...] | None = omit_none()
    raw_input: Json = omit_none()
    raw_output: Json = omit_none()
    meta: Json = Field(default=None, alias="_meta", exclude_if=is_none)


class SessionToolCall(SessionToolCallFields):
    session_update: Literal["tool_call"] = "tool_call"


class SessionToolCallUpdate(SessionToolCallFields):
    session_update: Literal["tool_call_update"] = "tool_call_update"


class PermissionOption(WireModel):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class RequestPermissionRequest(WireModel):
    session_id: str
    tool_call: SessionToolCallFields
    options: tuple[PermissionOption, ...]


class RequestPermissionResponse(WireModel):
    """Read by hand: whatever is not plainly a yes is a no."""

    outcome: Json


class CreateElicitationRequest(WireModel):
    """A form of an MCP server."""

    session_id: str
    tool_call_id: str | None = omit_none()
    mode: Literal["form"] = "form"
    message: str
    requested_schema: Json


class CreateElicitationResponse(WireModel):
    action: str
    content: Json = None


class ReadTextFileRequest(WireModel):
    session_id: str
    path: str


class ReadTextFileResponse(WireModel):
    content: str


class WriteTextFileRequest(WireModel):
    session_id: str
    path: str
    content: str


class WriteTextFileResponse(WireModel):
    pass
