"""Starts the configured MCP servers, as a conversation would, and reports which of them started and their tools."""

from __future__ import annotations

import anyio

from app_server.core.config.types import McpHttpTransport
from app_server.core.mcp.mcp_manager import McpManager
from protocol.checks import Check, broken, ok

SHOWN_TOOLS = 5


async def check_mcp_servers(manager: McpManager) -> list[Check]:
    """A check per configured server. Each server has the startup limit of its settings. Ends all of them."""
    async with anyio.create_task_group() as group:
        group.start_soon(manager.run_servers)
        await manager.ready()
        checks = [_check(manager, name) for name in manager.configs]
        await manager.close()
    return checks


def _check(manager: McpManager, name: str) -> Check:
    title, server = f"mcp server {name}", manager.servers.get(name)
    if server is None:
        return ok(title, "disabled")
    if server.failure is not None:
        http = isinstance(server.config.transport, McpHttpTransport)
        what = "its `url` and its token" if http else "its `command`, `args` and `env`"
        return broken(
            title, server.failure.message, f"correct {what} in [mcp_servers.{name}], or set `enabled = false`"
        )
    if not server.running:
        limit = f"{server.config.startup_timeout_sec:g}"
        return broken(title, f"has not started within {limit} seconds", "raise its `startup_timeout_sec`")
    tools = [tool.tool for tool in server.tools]
    more = f" and {len(tools) - SHOWN_TOOLS} more" if len(tools) > SHOWN_TOOLS else ""
    listed = f": {', '.join(tools[:SHOWN_TOOLS])}{more}" if tools else ""
    return ok(title, f"started, {len(tools)} tools{listed}")
