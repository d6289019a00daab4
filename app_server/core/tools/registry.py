"""Which tools a turn has, in the order in which the model is shown them: by configuration and model family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from app_server.core.config.types import Config
from app_server.core.mcp.mcp_manager import McpManager
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

Condition = Callable[[Config, ModelFamily], bool]


def _always(config: Config, family: ModelFamily) -> bool:
    return True


def _never(config: Config, family: ModelFamily) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Entry:
    """One of our tools, and when a turn has it."""

    tool: Tool
    offered: Condition = _always
    """Whether the model is shown it."""
    answered: bool = False
    """Run where the model calls it though it was not offered: models call it from habit."""


class Shell(Enum):
    """The ways to run commands. A model is shown one of them."""

    TERMINAL = "terminal"
    LINE = "line"
    VECTOR = "vector"
    PROVIDER = "provider"


def _shell(config: Config, family: ModelFamily) -> Shell:
    """The user's features go before the family's habit."""
    if config.features.enabled("unified_exec"):
        return Shell.TERMINAL
    if config.features.enabled("shell_command_tool"):
        return Shell.LINE
    return Shell.PROVIDER if family.shell_tool is ShellToolKind.LOCAL_SHELL else Shell.VECTOR


def _patch(config: Config, family: ModelFamily) -> PatchToolKind | None:
    if family.patch_tool is not None:
        return family.patch_tool
    if config.features.enabled("apply_patch_freeform"):
        return PatchToolKind.FREEFORM
    return PatchToolKind.FUNCTION if config.include_apply_patch_tool else None


def _where_shell_is(shell: Shell) -> Condition:
    return lambda config, family: _shell(config, family) is shell


def _where_patch_is(kind: PatchToolKind) -> Condition:
    return lambda config, family: _patch(config, family) is kind


def _where_named(name: str) -> Condition:
    """Families ask for it, or a feature of the tool's name is on."""
    return lambda config, family: name in config.features.names | family.extra_tools


ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(ExecCommandTool(), _where_shell_is(Shell.TERMINAL)),
    Entry(WriteStdinTool(), _where_shell_is(Shell.TERMINAL)),
    Entry(ShellCommandTool(), _where_shell_is(Shell.LINE), answered=True),
    Entry(ShellTool("local_shell", provider_side=True), _where_shell_is(Shell.PROVIDER), answered=True),
    Entry(ShellTool(), _where_shell_is(Shell.VECTOR), answered=True),
    Entry(ShellTool("container.exec"), _never, answered=True),
    *(Entry(tool) for tool in RESOURCE_TOOLS),
    Entry(PlanTool()),
    Entry(ApplyPatchTool(freeform=True), _where_patch_is(PatchToolKind.FREEFORM)),
    Entry(ApplyPatchTool(freeform=False), _where_patch_is(PatchToolKind.FUNCTION)),
    Entry(GrepFilesTool(), _where_named("grep_files")),
    Entry(ReadFileTool(), _where_named("read_file")),
    Entry(ListDirTool(), _where_named("list_dir")),
    Entry(WebSearch(), lambda config, family: config.web_search),
    Entry(ViewImageTool(), lambda config, family: config.view_image),
)
"""Every tool of ours, in the order in which the model is shown them. A new one is a line here and nothing else."""

BUILTIN_NAMES: Final = frozenset(entry.tool.name for entry in ENTRIES)
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
    tools = [entry.tool for entry in ENTRIES if entry.offered(config, family)]
    if mcp is not None:
        tools += [tool for tool in mcp_tools(mcp) if tool.name not in BUILTIN_NAMES]
    return ToolSet(tuple(tools), tuple(entry.tool for entry in ENTRIES if entry.answered))
