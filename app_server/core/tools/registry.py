"""Which tools a turn has, in the order in which the model is shown them: by configuration and model family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app_server.core.config.types import Config
from app_server.core.mcp.manager import McpManager
from app_server.core.model.families import ModelFamily, PatchToolKind, ShellToolKind
from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.builtin.apply_patch import ApplyPatchTool
from app_server.core.tools.builtin.exec_command import ExecCommandTool
from app_server.core.tools.builtin.grep_files import GrepFilesTool
from app_server.core.tools.builtin.list_dir import ListDirTool
from app_server.core.tools.builtin.mcp_call import mcp_tools
from app_server.core.tools.builtin.mcp_resources import RESOURCE_TOOLS
from app_server.core.tools.builtin.plan import PlanTool
from app_server.core.tools.builtin.read_file import ReadFileTool
from app_server.core.tools.builtin.shell import ShellTool
from app_server.core.tools.builtin.shell_command import ShellCommandTool
from app_server.core.tools.builtin.view_image import ViewImageTool
from app_server.core.tools.builtin.web_search import WebSearch
from app_server.core.tools.builtin.write_stdin import WriteStdinTool
from app_server.core.tools.contract import Tool
from protocol.records import dataclass

SHELLS: Final[tuple[Tool, ...]] = (
    ShellTool(),
    ShellTool("container.exec"),
    ShellTool("local_shell"),
    ShellCommandTool(),
)
"""Names that models call from habit, whichever of them they were offered: all are answered."""

FILE_TOOLS: Final[tuple[Tool, ...]] = (GrepFilesTool(), ReadFileTool(), ListDirTool())
"""Offered to families that ask for them, and where a feature of the tool's name is on."""

BUILTIN_NAMES: Final = frozenset(
    {
        "exec_command",
        "write_stdin",
        "update_plan",
        "apply_patch",
        "web_search",
        "view_image",
        *(tool.name for tool in (*SHELLS, *FILE_TOOLS, *RESOURCE_TOOLS)),
    }
)
"""Names that are ours, whether or not a turn has the tool."""


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of one turn."""

    offered: tuple[Tool, ...]
    answered: tuple[Tool, ...]
    """Not offered, but run where the model calls them all the same."""

    def specs(self) -> list[ToolSpec]:
        return [tool.spec() for tool in self.offered]

    def by_name(self) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in (*self.answered, *self.offered)}


def build_tools(config: Config, family: ModelFamily, mcp: McpManager | None) -> ToolSet:
    """A server's tool never takes the place of one of ours."""
    tools: list[Tool] = [*_shell_tools(config, family), *RESOURCE_TOOLS, PlanTool()]
    if (patch := _patch_tool(config, family)) is not None:
        tools.append(patch)
    asked = config.features.names | family.extra_tools
    tools += [tool for tool in FILE_TOOLS if tool.name in asked]
    if config.web_search:
        tools.append(WebSearch())
    if config.view_image:
        tools.append(ViewImageTool())
    if mcp is not None:
        tools += [tool for tool in mcp_tools(mcp) if tool.name not in BUILTIN_NAMES]
    return ToolSet(tuple(tools), SHELLS)


def _shell_tools(config: Config, family: ModelFamily) -> tuple[Tool, ...]:
    """The one way to run commands that the model is shown; the user's features go before the family's habit."""
    if config.features.enabled("unified_exec"):
        return ExecCommandTool(), WriteStdinTool()
    if config.features.enabled("shell_command_tool"):
        return (ShellCommandTool(),)
    if family.shell_tool is ShellToolKind.LOCAL_SHELL:
        return (ShellTool("local_shell", provider_side=True),)
    return (ShellTool(),)


def _patch_tool(config: Config, family: ModelFamily) -> ApplyPatchTool | None:
    if family.patch_tool is not None:
        return ApplyPatchTool(freeform=family.patch_tool is PatchToolKind.FREEFORM)
    if config.features.enabled("apply_patch_freeform"):
        return ApplyPatchTool(freeform=True)
    return ApplyPatchTool(freeform=False) if config.include_apply_patch_tool else None
