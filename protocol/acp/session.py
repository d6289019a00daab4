"""New sessions, with the MCP servers that a client names for them, and the modes and options of a session. What
`session/update` sends is written as plain data, but for tool calls.
"""

from typing import Annotated, Final, Literal

from pydantic import Discriminator, Tag
from typing_extensions import TypeAliasType

from protocol.base import WireModel, tag_of
from protocol.ids import PathText
from protocol.structs import Json, WireStruct, shown
from protocol.table import ClientRequest


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


NEW_SESSION: Final = ClientRequest(
    "session/new", NewSessionRequest, NewSessionResponse, "Opens a session in a folder."
)
