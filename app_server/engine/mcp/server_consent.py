"""The decision whether a call of the model needs the user's approval, by a server's settings and its tools' hints.
Pure.

In MCP an absent hint has its cautious value: the tool may write, destroy and reach the open world.
"""

from __future__ import annotations

from app_server.engine.config.mcp_server_settings import McpApproval, McpServerConfig
from app_server.engine.mcp.tool_catalog import McpTool
from app_server_protocol.encoding import Json
from app_server_protocol.mcp import ToolAnnotations


def needs_approval(config: McpServerConfig, tool: McpTool) -> bool:
    """Return whether a call of the tool needs the user's approval."""
    match _mode(config, tool):
        case McpApproval.APPROVE:
            return False
        case McpApproval.PROMPT:
            return True
        case McpApproval.WRITES:
            return read_only_hint(tool) is not True
        case McpApproval.AUTO:
            return may_do_harm(tool.definition.annotations)


def approvals_last(config: McpServerConfig, tool: McpTool) -> bool:
    """Return whether an approval of the tool may hold for later calls: not if the settings name the calls that need
    one.
    """
    return _mode(config, tool) is McpApproval.AUTO


def may_do_harm(hints: ToolAnnotations | None) -> bool:
    """Return whether a tool with these hints may do more than add to a closed world."""
    if hints is None:
        return True
    if hints.read_only_hint is True:
        return False
    return hints.destructive_hint is not False or hints.open_world_hint is not False


def is_silent(config: McpServerConfig, tool: McpTool) -> bool:
    """Return whether a tool needs approval only because its server gives no hints about it."""
    hints = tool.definition.annotations
    given = () if hints is None else (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint)
    return _mode(config, tool) is McpApproval.AUTO and all(hint is None for hint in given)


def _mode(config: McpServerConfig, tool: McpTool) -> McpApproval:
    return config.tool_approvals.get(tool.tool, config.approval)


def read_only_hint(tool: McpTool) -> bool | None:
    """Return the server's hint that the tool only reads; None if it gives none."""
    hints = tool.definition.annotations
    return None if hints is None else hints.read_only_hint


def annotations_of(tool: McpTool) -> Json:
    """Return the hints of a tool as its server gave them; None if it gave none."""
    hints = tool.definition.annotations
    return None if hints is None else hints.to_value()
