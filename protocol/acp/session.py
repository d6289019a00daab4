"""Sessions: opening, listing and ending them, their modes and options."""

from typing import Annotated, Literal

from pydantic import Discriminator, StrictBool, StrictStr, Tag
from typing_extensions import TypeAliasType

from protocol.base import Json, WireModel, omit_none, tag_of
from protocol.paths import PathText


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


class SessionMode(WireModel):
    id: str
    name: str
    description: str | None = omit_none()


class SessionModeState(WireModel):
    current_mode_id: str
    available_modes: tuple[SessionMode, ...]


class ConfigOptionValue(WireModel):
    value: str
    name: str
    description: str | None = omit_none()


class SessionConfigOption(WireModel):
    """One choice out of several; `category` is where clients show it."""

    type: Literal["select"] = "select"
    id: str
    name: str
    description: str | None = omit_none()
    category: str | None = omit_none()
    current_value: str
    options: tuple[ConfigOptionValue, ...]


class NewSessionRequest(WireModel):
    cwd: PathText
    mcp_servers: tuple[SessionMcpServer, ...] = ()
    additional_directories: tuple[PathText, ...] | None = None


class NewSessionResponse(WireModel):
    session_id: str
    modes: SessionModeState
    config_options: tuple[SessionConfigOption, ...]


class LoadSessionRequest(NewSessionRequest):
    session_id: str


class LoadSessionResponse(WireModel):
    modes: SessionModeState
    config_options: tuple[SessionConfigOption, ...]


class ResumeSessionRequest(NewSessionRequest):
    session_id: str


class ResumeSessionResponse(WireModel):
    modes: SessionModeState
    config_options: tuple[SessionConfigOption, ...]


class ListSessionsRequest(WireModel):
    cwd: PathText | None = None
    cursor: str | None = None


class SessionInfo(WireModel):
    session_id: str
    cwd: str
    title: str | None = omit_none()
    updated_at: str | None = omit_none()


class ListSessionsResponse(WireModel):
    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = omit_none()


class CloseSessionRequest(WireModel):
    session_id: str


class CloseSessionResponse(WireModel):
    pass


class DeleteSessionRequest(WireModel):
    session_id: str


class DeleteSessionResponse(WireModel):
    pass


class SetSessionModeRequest(WireModel):
    session_id: str
    mode_id: str


class SetSessionModeResponse(WireModel):
    pass


class SetSessionConfigOptionRequest(WireModel):
    session_id: str
    config_id: str
    value: StrictStr | StrictBool


class SetSessionConfigOptionResponse(WireModel):
    config_options: tuple[SessionConfigOption, ...]
