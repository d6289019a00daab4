"""Tool calls as clients show them, and requests for permission. The answers of clients are parsed by hand: their shapes
here are documentation.
"""

from enum import StrEnum
from typing import Final, Literal

import msgspec

from app_server_protocol.encoding import Json
from app_server_protocol.method_table import NoResult, ServerRequest
from app_server_protocol.outgoing import WireStruct, always_written


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


class ContentOfCall(WireStruct):
    type: Literal["content"] = "content"
    content: Json


class DiffOfCall(WireStruct):
    """`old_text` None: the file is new."""

    type: Literal["diff"] = "diff"
    path: str
    old_text: str | None = None
    new_text: str


class TerminalOfCall(WireStruct):
    type: Literal["terminal"] = "terminal"
    terminal_id: str


ToolCallContent = ContentOfCall | DiffOfCall | TerminalOfCall


class ToolCallLocation(WireStruct, omit_defaults=True):
    path: str
    line: int | None = None


class SessionToolCallFields(WireStruct, omit_defaults=True):
    """Fields of a call that begins, or those that changed; lists replace the ones before."""

    tool_call_id: str
    title: str | None = None
    name: str | None = None
    kind: ToolKind | None = None
    status: ToolCallStatus | None = None
    content: tuple[ToolCallContent, ...] | None = None
    locations: tuple[ToolCallLocation, ...] | None = None
    raw_input: Json = None
    raw_output: Json = None
    meta: Json = msgspec.field(default=None, name="_meta")


class SessionToolCall(SessionToolCallFields, omit_defaults=True):
    session_update: Literal["tool_call"] = always_written("tool_call")


class SessionToolCallUpdate(SessionToolCallFields, omit_defaults=True):
    session_update: Literal["tool_call_update"] = always_written("tool_call_update")


class PermissionOption(WireStruct):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class RequestPermissionRequest(WireStruct):
    session_id: str
    tool_call: SessionToolCallFields
    options: tuple[PermissionOption, ...]


class RequestPermissionResponse(WireStruct):
    """Read by hand: whatever is not plainly a yes is a no."""

    outcome: Json


class CreateElicitationRequest(WireStruct, omit_defaults=True):
    """A form of an MCP server."""

    session_id: str
    tool_call_id: str | None = None
    mode: Literal["form"] = always_written("form")
    message: str
    requested_schema: Json


class CreateElicitationResponse(WireStruct):
    action: str
    content: Json = None


class ReadTextFileRequest(WireStruct):
    session_id: str
    path: str


class ReadTextFileResponse(WireStruct):
    content: str


class WriteTextFileRequest(WireStruct):
    session_id: str
    path: str
    content: str


REQUEST_PERMISSION: Final = ServerRequest(
    "session/request_permission",
    RequestPermissionRequest,
    RequestPermissionResponse,
    "May a command run, or files change?",
)
CREATE_ELICITATION: Final = ServerRequest(
    "elicitation/create",
    CreateElicitationRequest,
    CreateElicitationResponse,
    "An MCP server asks the user.",
)
READ_TEXT_FILE: Final = ServerRequest(
    "fs/read_text_file",
    ReadTextFileRequest,
    ReadTextFileResponse,
    "The text of a file as the editor has it, with what is not saved.",
)
WRITE_TEXT_FILE: Final = ServerRequest(
    "fs/write_text_file", WriteTextFileRequest, NoResult, "Puts a text into the editor, and saves it."
)
