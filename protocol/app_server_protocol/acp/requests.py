"""All requests of a client but new sessions and prompts: the handshake, login and logout; loading, listing and copying
stored sessions, closing and deleting sessions, titles, modes and options.
"""

from typing import Final

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr

from app_server_protocol import jsonrpc
from app_server_protocol.acp.sessions import (
    NewSessionRequest,
    NewSessionResponse,
    SessionConfigOption,
    SessionModeState,
)
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.ids import PathText
from app_server_protocol.method_table import ClientRequest, NoFields, NoResult
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.wire_fields import CleanText


class AgentInitializeRequest(WireModel):
    """Handshake of a client. Its capabilities are read from the extra fields: unknown or odd ones count as absent."""

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


INITIALIZE: Final = ClientRequest(
    jsonrpc.INITIALIZE,
    AgentInitializeRequest,
    AgentInitializeResponse,
    "The first request: version and capabilities of both sides, and ways to log in.",
)
AUTHENTICATE: Final = ClientRequest(
    "authenticate",
    AuthenticateRequest,
    NoResult,
    "Logs in by one of the announced methods; answered when that is done.",
)
LOGOUT: Final = ClientRequest("logout", NoFields, NoResult, "Deletes the stored login.")


class OfSession(WireModel):
    """Requests about the same session are served one after another, but for prompts: a later one joins the first."""

    ordered_by = "sessionId"
    ordered_for_all = True
    session_id: str


class StoredSessionRequest(NewSessionRequest, OfSession):
    pass


class OpenedSession(WireStruct):
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


class SetSessionTitleRequest(OfSession):
    title: CleanText


class SetSessionTitleResponse(WireStruct):
    title: str


class SetSessionModeRequest(OfSession):
    mode_id: str


class SetSessionConfigOptionRequest(OfSession):
    config_id: str
    value: StrictStr | StrictBool


class SetSessionConfigOptionResponse(WireStruct):
    config_options: tuple[SessionConfigOption, ...]


LOAD_SESSION: Final = ClientRequest(
    "session/load",
    StoredSessionRequest,
    OpenedSession,
    "Opens a stored session and sends it again, as updates before the answer.",
)
RESUME_SESSION: Final = ClientRequest(
    "session/resume", StoredSessionRequest, OpenedSession, "Opens a stored session without sending it again."
)
FORK_SESSION: Final = ClientRequest(
    "session/fork",
    StoredSessionRequest,
    NewSessionResponse,
    "Opens a copy of a session, up to its last finished turn, without sending it again.",
)
SET_TITLE: Final = ClientRequest(
    "session/set_title",
    SetSessionTitleRequest,
    SetSessionTitleResponse,
    "Names a session, whether it is open or not; the answer has the title as it was stored.",
)
LIST_SESSIONS: Final = ClientRequest(
    "session/list",
    ListSessionsRequest,
    ListSessionsResponse,
    "Stored sessions, the one that changed last first, by pages.",
)
CLOSE_SESSION: Final = ClientRequest(
    "session/close", OfSession, NoResult, "Ends a session, with the turn that runs; it stays stored."
)
DELETE_SESSION: Final = ClientRequest(
    "session/delete", OfSession, NoResult, "Takes a session out of the list. Succeeds where there is none."
)
SET_MODE: Final = ClientRequest(
    "session/set_mode", SetSessionModeRequest, NoResult, "Sets the mode; older clients know this way only."
)
SET_CONFIG_OPTION: Final = ClientRequest(
    "session/set_config_option",
    SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
    "Sets an option; the answer has all of them.",
)
