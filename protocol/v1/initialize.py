"""The handshake."""

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict

from protocol.base import Json, WireModel
from protocol.fields import Flag
from protocol.structs import WireStruct


def _object_or_none(value: Json) -> Json:
    return value if isinstance(value, dict) else None


class ClientInfo(WireModel):
    """Who the client is; name and version go into the user agent."""

    name: str
    title: str | None = None
    version: str


class ClientCapabilities(WireModel):
    """What a client can do beyond the conversation API; nothing of it is sent to clients that do not
    say so. What is unknown or of another shape is ignored."""

    model_config = ConfigDict(extra="allow")
    elicitation: Annotated[Flag, BeforeValidator(lambda value: value is True)] = False
    """Answers `elicitationRequest`."""


class InitializeParams(WireModel):
    client_info: ClientInfo
    capabilities: Annotated[ClientCapabilities | None, BeforeValidator(_object_or_none)] = None


class ServerCapabilities(WireStruct):
    """What this server offers beyond the conversation API, by name."""

    extensions: tuple[str, ...] = ()


class InitializeResponse(WireStruct, omit_defaults=True):
    """The user agent of the server's requests; capabilities only for a client that sent its own."""

    user_agent: str
    capabilities: ServerCapabilities | None = None


class WideInitializeResponse(InitializeResponse):
    """What clients are answered that announce capabilities: those of newer APIs need it."""

    codex_home: str
    platform_family: str
    platform_os: str


class GetUserAgentResponse(WireStruct):
    user_agent: str


class UserInfoResponse(WireStruct):
    alleged_user_email: str | None = None
