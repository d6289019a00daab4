"""MCP servers that a client names for a session, beside those of the configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import assert_never

from app_server.core.config.types import McpHttpTransport, McpServerConfig, McpStdioTransport
from protocol.acp.session import HttpMcpServer, NameAndValue, SessionMcpServer, SseMcpServer, StdioMcpServer
from protocol.paths import is_unicode

MOST_SERVERS = 100
LONGEST_NAME = 60


class UnsupportedServer(ValueError):
    """The argument says what was expected."""


def merged_servers(
    configured: Mapping[str, McpServerConfig], given: Sequence[SessionMcpServer]
) -> Mapping[str, McpServerConfig]:
    """The client's take the place of configured ones of the same name. Raises UnsupportedServer."""
    if len(given) > MOST_SERVERS:
        raise UnsupportedServer(f"at most {MOST_SERVERS} MCP servers are supported")
    servers = {_name(each.name): each for each in given}
    if len(servers) < len(given):
        raise UnsupportedServer("two MCP servers have the same name")
    made = {name: _server(name, each) for name, each in servers.items()}
    return MappingProxyType({**configured, **made})


def _server(name: str, given: SessionMcpServer) -> McpServerConfig:
    match given:
        case StdioMcpServer():
            env = _table(given.env)
            _require_text(given.command, *given.args, *env, *env.values())
            return McpServerConfig(
                name=name, transport=McpStdioTransport(command=given.command, args=given.args, env=env)
            )
        case HttpMcpServer():
            if not given.url.startswith(("http://", "https://")):
                raise UnsupportedServer(f"the MCP server {name} has no http or https address")
            headers = _table(given.headers)
            if not all(_is_header(key, value) for key, value in headers.items()):
                raise UnsupportedServer(f"the MCP server {name} has a header that cannot be sent")
            return McpServerConfig(name=name, transport=McpHttpTransport(url=given.url, http_headers=headers))
        case SseMcpServer():
            raise UnsupportedServer(f"the MCP server {name} uses SSE, which is not supported; use http")
        case _:
            assert_never(given)


def _name(given: str) -> str:
    """Fit for the names of tools."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", given).strip("_")[:LONGEST_NAME]
    if not name:
        raise UnsupportedServer("an MCP server has no usable name")
    return name


def _table(pairs: Sequence[NameAndValue]) -> Mapping[str, str]:
    return MappingProxyType({pair.name: pair.value for pair in pairs})


def _require_text(*values: str) -> None:
    for value in values:
        if "\0" in value or not is_unicode(value):
            raise UnsupportedServer("an MCP server has an argument that is no text")


def _is_header(name: str, value: str) -> bool:
    plain = value.isascii() and not any(c in value for c in "\r\n\0")
    return bool(re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name)) and plain
