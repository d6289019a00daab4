"""The handshake of the Agent Client Protocol, and logging in and out."""

from typing import Final

from pydantic import ConfigDict, Field, StrictInt

from protocol import names
from protocol.base import Json, WireModel
from protocol.structs import WireStruct
from protocol.table import ClientRequest


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


INITIALIZE: Final = ClientRequest(
    names.INITIALIZE,
    AgentInitializeRequest,
    AgentInitializeResponse,
    "The first request: version and capabilities of both sides, and ways to log in.",
)
AUTHENTICATE: Final = ClientRequest(
    "authenticate",
    AuthenticateRequest,
    AuthenticateResponse,
    "Logs in by one of the announced methods; answered when that is done.",
)
LOGOUT: Final = ClientRequest("logout", LogoutRequest, LogoutResponse, "Deletes the stored login.")
