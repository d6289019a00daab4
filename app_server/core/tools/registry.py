"""Which tools a turn has, in the order in which the model is shown them: by configuration and model family."""

from __future__ import annotations

from app_server.core.config.types import Config
from app_server.core.mcp.manager import McpManager
from app_server.core.model.families import ModelFamily, PatchToolKind, ShellToolKind
from app_server.core.tools.builtin.apply_patch import ApplyPatchTool
from app_server.core.tools.builtin.mcp_call import mcp_tools
from app_server.core.tools.builtin.mcp_resources import RESOURCE_TOOLS
from app_server.core.tools.builtin.plan import PlanTool
from app_server.core.tools.builtin.shell import ShellTool
from app_server.core.tools.builtin.view_image import ViewImageTool
from app_server.core.tools.builtin.web_search import WebSearch
from app_server.core.tools.contract import Tool

BUILTIN_NAMES = frozenset(
    {
        "shell",
        "local_shell",
        "container.exec",
        "exec_command",
        "write_stdin",
        "update_plan",
        "apply_patch",
        "web_search",
        "view_image",
        "read_file",
        "list_dir",
        "grep_files",
        *(tool.name for tool in RESOURCE_TOOLS),
    }
)
"""Names that are ours, whether or not a turn has the tool."""


def build_tools(config: Config, family: ModelFamily, mcp: McpManager | None) -> dict[str, Tool]:
    """By name. A server's tool never takes the place of one of ours."""
    shell = (
        ShellTool("local_shell", provider_side=True)
        if family.shell_tool is ShellToolKind.LOCAL_SHELL
        else ShellTool()
    )
    tools: list[Tool] = [shell, *RESOURCE_TOOLS, PlanTool()]
    if (patch := _patch_tool(config, family)) is not None:
        tools.append(patch)
    if config.web_search:
        tools.append(WebSearch())
    if config.view_image:
        tools.append(ViewImageTool())
    by_name = {tool.name: tool for tool in tools}
    if mcp is not None:
        for tool in mcp_tools(mcp):
            by_name.setdefault(tool.name, tool)
    return by_name


def _patch_tool(config: Config, family: ModelFamily) -> ApplyPatchTool | None:
    if family.patch_tool is not None:
        return ApplyPatchTool(freeform=family.patch_tool is PatchToolKind.FREEFORM)
    if config.features.enabled("apply_patch_freeform"):
        return ApplyPatchTool(freeform=True)
    return ApplyPatchTool(freeform=False) if config.include_apply_patch_tool else None
