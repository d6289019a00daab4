"""MCP servers: their state, their tools and resources, calls of a client, logins."""

from enum import StrEnum
from typing import Final, Literal

import msgspec
from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.method_table import ClientRequest, NoParams, NoResult, ServerNotification
from app_server_protocol.outgoing import WireStruct, always_written
from app_server_protocol.v2.fields import AboutThread, ByPages, Integer


class McpAuthStatus(StrEnum):
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"
    NOT_LOGGED_IN = "notLoggedIn"
    BEARER_TOKEN = "bearerToken"
    O_AUTH = "oAuth"


class ListedTool(WireStruct, omit_defaults=True):
    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Json
    output_schema: Json = None
    annotations: Json = None
    icons: tuple[Json, ...] | None = None
    meta: Json = msgspec.field(default=None, name="_meta")


class Resource(WireStruct, omit_defaults=True):
    annotations: Json = None
    description: str | None = None
    mime_type: str | None = None
    name: str
    size: int | None = None
    title: str | None = None
    uri: str
    icons: tuple[Json, ...] | None = None
    meta: Json = msgspec.field(default=None, name="_meta")


class ResourceTemplate(WireStruct, omit_defaults=True):
    annotations: Json = None
    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None


class TextResourceContent(WireStruct, omit_defaults=True):
    meta: Json = msgspec.field(default=None, name="_meta")
    mime_type: str | None = None
    text: str
    uri: str


class BlobResourceContent(WireStruct, omit_defaults=True):
    meta: Json = msgspec.field(default=None, name="_meta")
    blob: str
    mime_type: str | None = None
    uri: str


ResourceContent = TypeAliasType("ResourceContent", TextResourceContent | BlobResourceContent)


class McpServerInfo(WireStruct):
    name: str
    title: str | None = None
    version: str
    description: str | None = None
    icons: tuple[Json, ...] | None = None
    website_url: str | None = None


McpServerConnectionStatus = TypeAliasType(
    "McpServerConnectionStatus",
    Literal[
        "notStarted", "starting", "connected", "authenticationRequired", "failed", "cancelled", "disabled"
    ],
)


McpServerStatusDetail = TypeAliasType("McpServerStatusDetail", Literal["full", "toolsAndAuthOnly"])


class McpServerStatus(WireStruct):
    """A server with all that it offers."""

    name: str
    runtime_status: McpServerConnectionStatus | None = None
    plugin_id: str | None = None
    http_origin: str | None = None
    protocol_version: str | None = None
    server_info: McpServerInfo | None = None
    server_capabilities: Json = None
    tool_list_meta: Json = None
    tools: dict[str, ListedTool]
    tools_error: str | None = None
    resources: tuple[Resource, ...]
    resource_templates: tuple[ResourceTemplate, ...]
    auth_status: McpAuthStatus
    environment_id: str | None = None


class ListMcpServerStatusParams(ByPages):
    detail: McpServerStatusDetail | None = None
    thread_id: str | None = None
    server_name: str | None = None
    environment_id: str | None = None


class ListMcpServerStatusResponse(WireStruct):
    data: tuple[McpServerStatus, ...]
    next_cursor: str | None = None


class McpServerToolCallParams(AboutThread):
    server: str
    tool: str
    environment_id: str | None = None
    arguments: Json = None
    meta: Json = Field(default=None, alias="_meta")


class McpServerToolCallResponse(WireStruct, omit_defaults=True):
    """The result as the server gave it."""

    content: tuple[Json, ...]
    structured_content: Json = None
    is_error: bool | None = None
    meta: Json = msgspec.field(default=None, name="_meta")


class McpResourceReadParams(WireModel):
    meta: dict[str, Json] | None = Field(default=None, alias="_meta")
    thread_id: str | None = None
    origin_call_id: str | None = None
    server: str
    uri: str
    environment_id: str | None = None


class McpResourceReadResponse(WireStruct):
    contents: tuple[ResourceContent, ...]
    origin_call_id: str | None = None


class McpServerOauthLoginParams(WireModel):
    name: str
    thread_id: str | None = None
    environment_id: str | None = None
    scopes: tuple[str, ...] | None = None
    timeout_secs: Integer | None = None


class McpServerOauthLoginResponse(WireStruct, omit_defaults=True):
    authorization_url: str
    login_id: str | None = None


class McpServerOauthLoginCompletedNotification(WireStruct, omit_defaults=True):
    name: str
    thread_id: str | None = always_written(None)
    login_id: str | None = None
    success: bool
    error: str | None = always_written(None)


MCP_SERVER_STATUS_LIST: Final = ClientRequest(
    "mcpServerStatus/list",
    ListMcpServerStatusParams,
    ListMcpServerStatusResponse,
    "The MCP servers and what they offer, by pages.",
)
MCP_SERVER_TOOL_CALL: Final = ClientRequest(
    "mcpServer/tool/call",
    McpServerToolCallParams,
    McpServerToolCallResponse,
    "Calls a tool for the client, not for the model.",
)
MCP_SERVER_RESOURCE_READ: Final = ClientRequest(
    "mcpServer/resource/read",
    McpResourceReadParams,
    McpResourceReadResponse,
    "Reads a resource of a server.",
)
MCP_SERVER_OAUTH_LOGIN: Final = ClientRequest(
    "mcpServer/oauth/login",
    McpServerOauthLoginParams,
    McpServerOauthLoginResponse,
    "Begins a login at a server.",
)
CONFIG_MCP_SERVER_RELOAD: Final = ClientRequest(
    "config/mcpServer/reload",
    NoParams,
    NoResult,
    "Reads the configuration again and starts the servers of open threads anew.",
)
MCP_SERVER_OAUTH_LOGIN_COMPLETED: Final = ServerNotification(
    "mcpServer/oauthLogin/completed",
    McpServerOauthLoginCompletedNotification,
    "A login at a server ended.",
)
