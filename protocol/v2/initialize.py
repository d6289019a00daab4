"""The handshake: who the client is, what it can take, and which notifications it does not want."""

from protocol.base import WireModel
from protocol.fields import Flag
from protocol.structs import WireStruct
from protocol.v2.fields import AbsolutePathBuf


class ClientInfo(WireModel):
    """Who the client is; name and version go into the user agent."""

    name: str
    title: str | None = None
    version: str


class InitializeCapabilities(WireModel):
    """What a client can take. Unknown names among the notifications are fine; they match whole names only."""

    experimental_api: Flag = False
    opt_out_notification_methods: tuple[str, ...] | None = None


class InitializeParams(WireModel):
    client_info: ClientInfo
    capabilities: InitializeCapabilities | None = None


class InitializeResponse(WireStruct):
    """Who the server is, and where its home is."""

    user_agent: str
    codex_home: AbsolutePathBuf
    platform_family: str
    platform_os: str
