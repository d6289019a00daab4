"""Prepares servers' tools for the model: filters and names them, checks schemas, and limits the total size. Pure.

A tool's name for the model is `mcp__server__tool`. One invalid name would make every request of the conversation fail,
and a duplicate name would call the wrong tool. So names consist of `[a-zA-Z0-9_-]`, have at most 64 characters, are
unique, and are never in `taken`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import to_json

from app_server.engine.config.mcp_server_settings import McpServerConfig
from app_server.engine.mcp.input_schemas import InvalidSchema, normalize_schema
from app_server.engine.mcp.mcp_era import InvalidMark, MirroredParameter, mirrored_parameters
from app_server.engine.mcp.mcp_errors import (
    MAX_DEFINITION_BYTES,
    MAX_DESCRIPTION_CHARS,
    MAX_TOOLS,
    MAX_TOOLS_PER_SERVER,
)
from app_server.engine.mcp.results import known_fields
from app_server_protocol.encoding import Json
from app_server_protocol.mcp import (
    McpAuthStatus,
    McpToolDefinition,
    Resource,
    ResourceTemplate,
    ToolInputSchema,
)
from app_server_protocol.values import Redacted

PREFIX = "mcp"
DELIMITER = "__"
MAX_LENGTH = 64
SERVER_NAME = re.compile(r"^[a-zA-Z0-9_-]+$")
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_LENGTH = 40


def qualify(tools: Iterable[tuple[str, str]], taken: Collection[str] = ()) -> dict[str, tuple[str, str]]:
    """Return pairs (server, tool) by qualified name, in order. Duplicate tools of a server and tools without a name are
    omitted.
    """
    named: dict[str, tuple[str, str]] = {}
    seen: set[tuple[str, str]] = set()
    for pair in tools:
        if pair in seen or not pair[1].strip():
            continue
        seen.add(pair)
        name = _qualified(*pair)
        if name in named or name in taken:
            name = _with_digest(name, "\0".join(pair))
        if name not in named and name not in taken:
            named[name] = pair
    return named


def _qualified(server: str, tool: str) -> str:
    raw = DELIMITER.join((PREFIX, server, tool))
    fit = _UNFIT.sub("_", raw)
    return fit if len(fit) <= MAX_LENGTH else _with_digest(fit, raw)


def _with_digest(name: str, raw: str) -> str:
    digest = hashlib.sha1(raw.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return name[: MAX_LENGTH - _DIGEST_LENGTH] + digest


class ServerTool(Redacted, frozen=True):
    """One validated tool of a server."""

    HIDDEN = ("input_schema", "definition")

    server: str
    tool: str
    description: str
    input_schema: Mapping[str, Json]
    definition: McpToolDefinition
    """The server's own definition, for lists that a client requests."""
    mirrored: tuple[MirroredParameter, ...] = ()
    """Parameters whose values headers of a call repeat."""

    @property
    def size(self) -> int:
        return len(self.description) + len(to_json(self.input_schema)) + len(self.tool)


class McpTool(ServerTool, frozen=True, kw_only=True):
    """One tool for the model."""

    name: str
    digest: str
    """Digest of name, description and schema. An approval of the tool becomes invalid if the tool changes."""


class ServerIntroduction(Struct, frozen=True):
    """The server's information about itself, from the handshake or from `server/discover`."""

    info: Json = None
    capabilities: Json = None
    revision: str | None = None
    """Revision of MCP that is spoken with the server."""
    declared: frozenset[str] = frozenset()
    """Names of the capabilities, also if these are too long to be shown."""


class ConnectionState(StrEnum):
    STARTING = "starting"
    CONNECTED = "connected"
    LOGIN_REQUIRED = "login_required"
    FAILED = "failed"
    DISABLED = "disabled"


class ServerStatus(Struct, frozen=True):
    """State of one configured server, and its offers as far as the server has reported them."""

    config: McpServerConfig
    state: ConnectionState
    auth: McpAuthStatus
    introduction: ServerIntroduction = ServerIntroduction()
    tools: tuple[ServerTool, ...] = ()
    error: str | None = None
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()


def server_tools(
    config: McpServerConfig, listed: Iterable[Json], *, mirrors: bool = False
) -> tuple[tuple[ServerTool, ...], tuple[str, ...]]:
    """Return the tools of one server that its settings allow, and messages about omitted ones. With `mirrors`, headers
    repeat the parameters that the tools mark.
    """
    kept: list[ServerTool] = []
    notices: list[str] = []
    for raw in listed:
        name = raw.get("name") if isinstance(raw, dict) else None
        if not isinstance(name, str) or not name.strip():
            notices.append(f"A tool of MCP server `{config.name}` has no name and is left out.")
            continue
        if not allowed(config, name):
            continue
        if len(kept) == MAX_TOOLS_PER_SERVER:
            notices.append(
                f"MCP server `{config.name}` offers more than {MAX_TOOLS_PER_SERVER} tools; "
                "the rest is left out."
            )
            break
        try:
            kept.append(_tool(config.name, name, raw, mirrors=mirrors))
        except (InvalidSchema, InvalidMark) as error:
            notices.append(
                f"Tool `{name[:64]}` of MCP server `{config.name}` is left out, its schema is unfit: {error}."
            )
    return tuple(kept), tuple(notices[:20])


def allowed(config: McpServerConfig, tool: str) -> bool:
    """Return whether `enabled_tools` selects a tool and `disabled_tools` does not remove it."""
    return (
        config.enabled_tools is None or tool in config.enabled_tools
    ) and tool not in config.disabled_tools


def model_tools(
    offered: Iterable[ServerTool], taken: Collection[str]
) -> tuple[dict[str, McpTool], tuple[str, ...]]:
    """Return all tools by qualified name, sorted, within the limits; and messages about omitted ones."""
    found: dict[tuple[str, str], ServerTool] = {}
    size, left = 0, 0
    for tool in offered:
        if (tool.server, tool.tool) in found:
            continue
        if len(found) == MAX_TOOLS or size + tool.size > MAX_DEFINITION_BYTES:
            left += 1
            continue
        size += tool.size
        found[tool.server, tool.tool] = tool
    named = qualify(found, taken)
    tools = {name: _named(name, found[named[name]]) for name in sorted(named)}
    notice = (
        f"{left} tools of MCP servers are left out: together they are too many or too long for the model."
    )
    return tools, (notice,) if left else ()


def _named(name: str, tool: ServerTool) -> McpTool:
    digest = hashlib.sha256(
        to_json([tool.server, tool.tool, tool.description, tool.input_schema])
    ).hexdigest()
    return McpTool(
        tool.server, tool.tool, tool.description, tool.input_schema, tool.definition, name=name, digest=digest
    )


def _tool(server: str, name: str, raw: dict[str, Json], *, mirrors: bool) -> ServerTool:
    mirrored = mirrored_parameters(raw.get("inputSchema")) if mirrors else ()
    schema = normalize_schema(raw.get("inputSchema"))
    text = raw.get("description")
    description = text if isinstance(text, str) else ""
    if len(description) > MAX_DESCRIPTION_CHARS:
        description = description[:MAX_DESCRIPTION_CHARS] + " [cut]"
    try:
        definition = McpToolDefinition.model_validate(
            known_fields(McpToolDefinition, raw) | {"description": description or None}
        )
    except ValidationError:
        definition = McpToolDefinition(
            name=name, description=description or None, input_schema=ToolInputSchema.model_validate(schema)
        )
    return ServerTool(server, name, description, schema, definition, mirrored)
