"""The handshake."""

from pydantic import ConfigDict

from protocol.base import WireModel, omit_none
from protocol.fields import Flag


class ClientInfo(WireModel):
    """Who the client is; name and version go into the user agent."""

    name: str
    title: str | None = None
    version: str


class ClientCapabilities(WireModel):
    """What a client can do beyond the conversation API; nothing of it is sent to clients that do not
    say so."""

    model_config = ConfigDict(extra="allow")
    elicitation: Flag = False
    """Answers `elicitationRequest`."""


class InitializeParams(WireModel):
    client_info: ClientInfo
    capabilities: ClientCapabilities | None = None


class ServerCapabilities(WireModel):
    """What this server offers beyond the conversation API, by name."""

    extensions: tuple[str, ...] = ()


class InitializeResponse(WireModel):
    """The user agent of the server's requests; capabilities only for a client that sent its own."""

    user_agent: str
    capabilities: ServerCapabilities | None = omit_none()


class WideInitializeResponse(InitializeResponse):
    """What clients are answered that announce capabilities: those of newer APIs need it."""

    codex_home: str
    platform_family: str
    platform_os: str


class GetUserAgentResponse(WireModel):
    user_agent: str


class UserInfoResponse(WireModel):
    alleged_user_email: str | None = None
