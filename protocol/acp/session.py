"""The connection and its sessions: the handshake, opening, listing and ending sessions, their modes and options.
What `session/update` sends is written as plain data, but for tool calls.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, Field, StrictBool, StrictInt, StrictStr, Tag
from typing_extensions import TypeAliasType

from protocol.base import Json, WireModel, tag_of
from protocol.ids import PathText
from protocol.structs import WireStruct, shown


class NameAndValue(WireModel):
    """An environment variable or an HTTP header."""

    name: str
    value: str


class HttpMcpServer(WireModel):
    type: Literal["http"]
    name: str
    url: str
    headers: tuple[NameAndValue, ...] = ()


class SseMcpServer(WireModel):
    """An older transport, which is not supported."""

    type: Literal["sse"]
    name: str


class StdioMcpServer(WireModel):
    """The only kind without a type."""

    name: str
    command: PathText
    args: tuple[str, ...] = ()
    env: tuple[NameAndValue, ...] = ()


def _server_tag(raw: Json) -> str:
    kind = tag_of(raw)
    return kind if kind in ("http", "sse") else "stdio"


SessionMcpServer = TypeAliasType(
    "SessionMcpServer",
    Annotated[
        Annotated[HttpMcpServer, Tag("http")]
        | Annotated[SseMcpServer, Tag("sse")]
        | Annotated[StdioMcpServer, Tag("stdio")],
        Discriminator(_server_tag),
    ],
)


class SessionMode(WireStruct, omit_defaults=True):
    id: str
    name: str
    description: str | None = None


class SessionModeState(WireStruct):
    current_mode_id: str
    available_modes: tuple[SessionMode, ...]


class ConfigOptionValue(WireStruct, omit_defaults=True):
    value: str
    name: str
    description: str | None = None


class SessionConfigOption(WireStruct, omit_defaults=True):
    """One choice out of several; `category` is where clients show it."""

    type: Literal["select"] = shown("select")
    id: str
    name: str
    description: str | None = None
    category: str | None = None
    current_value: str
    options: tuple[ConfigOptionValue, ...]


class NewSessionRequest(WireModel):
    cwd: PathText
    mcp_servers: tuple[SessionMcpServer, ...] = ()
    additional_directories: tuple[PathText, ...] | None = None


class NewSessionResponse(WireStruct):
    session_id: str
    modes: SessionModeState
    config_options: tuple[SessionConfigOption, ...]


class LoadSessionRequest(NewSessionRequest):
    session_id: str


class LoadSessionResponse(WireStruct):
    modes: SessionModeState
    config_options: tuple[SessionConfigOption, ...]


class ResumeSessionRequest(NewSessionRequest):
    session_id: str


class ResumeSessionResponse(WireStruct):
    modes: SessionModeState
    config_options: tuple[SessionConfigOption, ...]


class ListSessionsRequest(WireModel):
    cwd: PathText | None = None
    cursor: str | None = None


class SessionInfo(WireStruct, omit_defaults=True):
    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None


class ListSessionsResponse(WireStruct, omit_defaults=True):
    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = None


class CloseSessionRequest(WireModel):
    session_id: str


class CloseSessionResponse(WireStruct):
    pass


class DeleteSessionRequest(WireModel):
    session_id: str


class DeleteSessionResponse(WireStruct):
    pass


class SetSessionModeRequest(WireModel):
    session_id: str
    mode_id: str


class SetSessionModeResponse(WireStruct):
    pass


class SetSessionConfigOptionRequest(WireModel):
    session_id: str
    config_id: str
    value: StrictStr | StrictBool


class SetSessionConfigOptionResponse(WireStruct):
    config_options: tuple[SessionConfigOption, ...]


class AgentInitializeRequest(WireModel):
    """What the client can do is read from the extra fields: unknown or odd capabilities count as absent."""

    model_config = ConfigDict(extra="allow")
    protocol_version: StrictInt = Field(ge=0, lt=1 << 16)


class AgentInitializeResponse(WireModel):
    """Built by hand, for it is also needed before models are loaded."""

    model_config = ConfigDict(extra="allow")
    protocol_version: int
    agent_capabilities: Json
    auth_methods: Json
    agent_info: Json


class AuthenticateRequest(WireModel):
    method_id: str


class AuthenticateResponse(WireStruct):
    pass


class LogoutRequest(WireModel):
    pass


class LogoutResponse(WireStruct):
    pass
