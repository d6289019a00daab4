"""What MCP servers offer and answer, in the shapes of this API. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import ValidationError

from app_server.core.config.types import McpHttpTransport, McpServerConfig
from app_server.core.mcp.client_access import ConnectionState, ServerStatus
from protocol import mcp as engine
from protocol.base import Json
from protocol.structs import read
from protocol.v2.mcp import (
    BlobResourceContent,
    ListedTool,
    McpAuthStatus,
    McpServerConnectionStatus,
    McpServerInfo,
    McpServerStatus,
    McpServerToolCallResponse,
    Resource,
    ResourceContent,
    ResourceTemplate,
    TextResourceContent,
)

STATES = {
    ConnectionState.STARTING: McpServerConnectionStatus.STARTING,
    ConnectionState.CONNECTED: McpServerConnectionStatus.CONNECTED,
    ConnectionState.LOGIN_REQUIRED: McpServerConnectionStatus.AUTHENTICATION_REQUIRED,
    ConnectionState.FAILED: McpServerConnectionStatus.FAILED,
    ConnectionState.DISABLED: McpServerConnectionStatus.DISABLED,
}
AUTH = {
    engine.McpAuthStatus.UNSUPPORTED: McpAuthStatus.UNSUPPORTED,
    engine.McpAuthStatus.NOT_LOGGED_IN: McpAuthStatus.NOT_LOGGED_IN,
    engine.McpAuthStatus.BEARER_TOKEN: McpAuthStatus.BEARER_TOKEN,
    engine.McpAuthStatus.O_AUTH: McpAuthStatus.O_AUTH,
}


def shown_server(status: ServerStatus, *, of_thread: bool) -> McpServerStatus:
    """A connection that was only made to look has no state of its own."""
    return McpServerStatus(
        name=status.config.name,
        runtime_status=STATES[status.state] if of_thread else None,
        http_origin=_origin(status.config),
        server_info=_info(status.introduction.info),
        server_capabilities=status.introduction.capabilities,
        tools={tool.tool: read(ListedTool, tool.definition.to_value()) for tool in status.tools},
        tools_error=status.error,
        resources=tuple(read(Resource, each.to_value()) for each in status.resources),
        resource_templates=tuple(read(ResourceTemplate, each.to_value()) for each in status.templates),
        auth_status=AUTH[status.auth],
    )


def shown_result(result: engine.CallToolResult) -> McpServerToolCallResponse:
    return McpServerToolCallResponse(
        content=tuple(block.to_value() for block in result.content),
        structured_content=result.structured_content,
        is_error=result.is_error,
    )


def shown_content(content: engine.TextResourceContents | engine.BlobResourceContents) -> ResourceContent:
    match content:
        case engine.TextResourceContents():
            return TextResourceContent(uri=content.uri, mime_type=content.mime_type, text=content.text)
        case engine.BlobResourceContents():
            return BlobResourceContent(uri=content.uri, mime_type=content.mime_type, blob=content.blob)


def _info(raw: Json) -> McpServerInfo | None:
    try:
        return read(McpServerInfo, raw)
    except ValidationError:
        return None


def _origin(config: McpServerConfig) -> str | None:
    """Of the address: a path or a query may hold a credential."""
    if not isinstance(config.transport, McpHttpTransport):
        return None
    try:
        address = urlsplit(config.transport.url)
        port = "" if address.port is None else f":{address.port}"
    except ValueError:
        return None
    return f"{address.scheme}://{address.hostname}{port}" if address.hostname else None
