"""MCP servers: their state, their tools and resources, calls of a client, logins."""

from enum import StrEnum

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import Json, WireModel, is_none, omit_none
from protocol.fields import Count
from protocol.v2.fields import Integer


class McpAuthStatus(StrEnum):
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"
    NOT_LOGGED_IN = "notLoggedIn"
    BEARER_TOKEN = "bearerToken"
    O_AUTH = "oAuth"


class ListedTool(WireModel):
    name: str
    title: str | None = omit_none()
    description: str | None = omit_none()
    input_schema: Json
    output_schema: Json = omit_none()
    annotations: Json = omit_none()
    icons: tuple[Json, ...] | None = omit_none()
    meta: Json = Field(default=None, alias="_meta", exclude_if=is_none)


class Resource(WireModel):
    annotations: Json = omit_none()
    description: str | None = omit_none()
    mime_type: str | None = omit_none()
    name: str
    size: int | None = omit_none()
    title: str | None = omit_none()
    uri: str
    icons: tuple[Json, ...] | None = omit_none()
    meta: Json = Field(default=None, alias="_meta", exclude_if=is_none)


class ResourceTemplate(WireModel):
    annotations: Json = omit_none()
    uri_template: str
    name: str
    title: str | None = omit_none()
    description: str | None = omit_none()
    mime_type: str | None = omit_none()


class TextResourceContent(WireModel):
    meta: Json = Field(default=None, alias="_meta", exclude_if=is_none)
    mime_type: str | None = omit_none()
    text: str
    uri: str


class BlobResourceContent(WireModel):
    meta: Json = Field(default=None, alias="_meta", exclude_if=is_none)
    blob: str
    mime_type: str | None = omit_none()
    uri: str


ResourceContent = TypeAliasType("ResourceContent", TextResourceContent | BlobResourceContent)


class McpServerInfo(WireModel):
    name: str
    title: str | None = None
    version: str
    description: str | None = None
    icons: tuple[Json, ...] | None = None
    website_url: str | None = None


class McpServerConnectionStatus(StrEnum):
    NOT_STARTED = "notStarted"
    STARTING = "starting"
    CONNECTED = "connected"
    AUTHENTICATION_REQUIRED = "authenticationRequired"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DISABLED = "disabled"


class McpServerStatusDetail(StrEnum):
    FULL = "full"
    TOOLS_AND_AUTH_ONLY = "toolsAndAuthOnly"


class McpServerStatus(WireModel):
    """A server with all that it offers."""

    name: str
    runtime_status: McpServerConnectionStatus | None = None
    plugin_id: str | None = None
    http_origin: str | None = None
    server_info: McpServerInfo | None = None
    server_capabilities: Json = None
    tool_list_meta: Json = None
    tools: dict[str, ListedTool]
    tools_error: str | None = None
    resources: tuple[Resource, ...]
    resource_templates: tuple[ResourceTemplate, ...]
    auth_status: McpAuthStatus


class ListMcpServerStatusParams(WireModel):
    cursor: str | None = None
    limit: Count | None = None
    detail: McpServerStatusDetail | None = None
    thread_id: str | None = None
    server_name: str | None = None


class ListMcpServerStatusResponse(WireModel):
    data: tuple[McpServerStatus, ...]
    next_cursor: str | None = None


class McpServerToolCallParams(WireModel):
    thread_id: str
    server: str
    tool: str
    arguments: Json = None
    meta: Json = Field(default=None, alias="_meta")


class McpServerToolCallResponse(WireModel):
    """The result as the server gave it."""

    content: tuple[Json, ...]
    structured_content: Json = omit_none()
    is_error: bool | None = omit_none()
    meta: Json = Field(default=None, alias="_meta", exclude_if=is_none)


class McpResourceReadParams(WireModel):
    meta: dict[str, Json] | None = Field(default=None, alias="_meta")
    thread_id: str | None = None
    origin_call_id: str | None = None
    server: str
    uri: str


class McpResourceReadResponse(WireModel):
    contents: tuple[ResourceContent, ...]
    origin_call_id: str | None = None


class McpServerRefreshResponse(WireModel):
    pass


class McpServerOauthLoginParams(WireModel):
    name: str
    thread_id: str | None = None
    scopes: tuple[str, ...] | None = None
    timeout_secs: Integer | None = None


class McpServerOauthLoginResponse(WireModel):
    authorization_url: str
    login_id: str | None = omit_none()


class McpServerOauthLoginCompletedNotification(WireModel):
    name: str
    thread_id: str | None = None
    login_id: str | None = omit_none()
    success: bool
    error: str | None = None


class McpServerStartupState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


class McpServerStartupFailureReason(StrEnum):
    REAUTHENTICATION_REQUIRED = "reauthenticationRequired"


class McpServerStatusUpdatedNotification(WireModel):
    """A server of a thread starts, is ready or failed."""

    thread_id: str | None = None
    name: str
    status: McpServerStartupState
    error: str | None = None
    failure_reason: McpServerStartupFailureReason | None = None
