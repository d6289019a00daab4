"""The tools of a turn, in the order of the model's tool list: by configuration and model family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from app_server.core.config.types import Config
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.families import ModelFamily, PatchToolKind, ShellToolKind
from app_server.core.model.prompt import ToolSpec, WebSearchTool
from app_server.core.tools.builtin.apply_patch import ApplyPatchTool
from app_server.core.tools.builtin.exec_command import ExecCommandTool, WriteStdinTool
from app_server.core.tools.builtin.goals import GOAL_TOOLS
from app_server.core.tools.builtin.mcp import RESOURCE_TOOLS, mcp_tools
from app_server.core.tools.builtin.reading import GrepFilesTool, ListDirTool, ReadFileTool, ViewImageTool
from app_server.core.tools.builtin.shell import ShellCommandTool, ShellTool
from app_server.core.tools.builtin.user import PlanTool, RequestUserInputTool
from app_server.core.tools.client_tool import dynamic_tools, without_namespaces
from app_server.core.tools.contract import Tool, ToolCall, ToolFailure, ToolOutput, ToolTurn
from protocol.engine.questions import ClientTool
from protocol.policy import TurnMode


class ProviderWebSearch:
    name = "web_search"
    parallel = True

    def spec(self) -> ToolSpec:
        return WebSearchTool()

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        raise ToolFailure("web_search is run by the provider and cannot be called as a function")


Condition = Callable[[Config, ModelFamily], bool]


def _always(config: Config, family: ModelFamily) -> bool:
    return True


def _never(config: Config, family: ModelFamily) -> bool:
    return False


class Entry(Struct, frozen=True):
    """A built-in tool, and the condition for it."""

    tool: Tool
    offered: Condition = _always
    """Whether the model's tool list has it."""
    accepted: bool = False
    """Also run if it is not offered: some models call it from training."""


class Shell(Enum):
    """The tools that run commands. A model is offered one of them."""

    TERMINAL = "terminal"
    LINE = "line"
    VECTOR = "vector"
    PROVIDER = "provider"


def _shell(config: Config, family: ModelFamily) -> Shell:
    """The user's features take precedence over the family's default."""
    if config.features.enabled("unified_exec"):
        return Shell.TERMINAL
    if config.features.enabled("shell_command_tool"):
        return Shell.LINE
    return Shell.PROVIDER if family.shell_tool is ShellToolKind.LOCAL_SHELL else Shell.VECTOR


def _patch(config: Config, family: ModelFamily) -> PatchToolKind | None:
    if family.patch_tool is not None:
        return family.patch_tool
    return PatchToolKind.FREEFORM if config.features.enabled("apply_patch_freeform") else None


def _where_shell_is(shell: Shell) -> Condition:
    return lambda config, family: _shell(config, family) is shell


def _where_patch_is(kind: PatchToolKind) -> Condition:
    return lambda config, family: _patch(config, family) is kind


def _where_named(name: str) -> Condition:
    """For families that list it, or if a feature of the tool's name is enabled."""
    return lambda config, family: name in config.features.names | family.extra_tools


def _where_switched(feature: str) -> Condition:
    return lambda config, family: config.features.enabled(feature)


REQUEST_USER_INPUT: Final = RequestUserInputTool()
"""Offered in plan mode only. Otherwise a call is answered with that."""

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(ExecCommandTool(), _where_shell_is(Shell.TERMINAL)),
    Entry(WriteStdinTool(), _where_shell_is(Shell.TERMINAL)),
    Entry(ShellCommandTool(), _where_shell_is(Shell.LINE), accepted=True),
    Entry(ShellTool("local_shell", provider_side=True), _where_shell_is(Shell.PROVIDER), accepted=True),
    Entry(ShellTool(), _where_shell_is(Shell.VECTOR), accepted=True),
    Entry(ShellTool("container.exec"), _never, accepted=True),
    *(Entry(tool) for tool in RESOURCE_TOOLS),
    Entry(PlanTool()),
    Entry(ApplyPatchTool(freeform=True), _where_patch_is(PatchToolKind.FREEFORM)),
    Entry(ApplyPatchTool(freeform=False), _where_patch_is(PatchToolKind.FUNCTION)),
    Entry(GrepFilesTool(), _where_named("grep_files")),
    Entry(ReadFileTool(), _where_named("read_file")),
    Entry(ListDirTool(), _where_named("list_dir")),
    Entry(ProviderWebSearch(), _where_switched("web_search_request")),
    Entry(ViewImageTool(), _where_switched("view_image_tool")),
    Entry(REQUEST_USER_INPUT, _never, accepted=True),
)
"""Every built-in tool, in the order of the tool list. A new tool needs one line here."""

BUILTIN_NAMES: Final = frozenset(tool.name for tool in (*(entry.tool for entry in ENTRIES), *GOAL_TOOLS))
"""Names that MCP tools cannot take, whether or not a turn has the tool."""

RESERVED_NAMES: Final = BUILTIN_NAMES - {"grep_files", "read_file", "list_dir", "web_search", "view_image"}
"""Names that tools of a client cannot take."""


class ToolSet(Struct, frozen=True):
    """The tools of one turn."""

    offered: tuple[Tool, ...]
    accepted: tuple[Tool, ...]
    """Not necessarily offered, but run if the model calls them."""

    def specs(self) -> list[ToolSpec]:
        return [tool.spec() for tool in self.offered]

    def by_name(self) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in (*self.accepted, *self.offered)}


def build_tools(
    config: Config,
    family: ModelFamily,
    mcp: McpManager | None,
    *,
    goals: bool = False,
    client_tools: Sequence[ClientTool] = (),
    mode: TurnMode = TurnMode.DEFAULT,
) -> ToolSet:
    """An MCP tool never replaces a built-in one. A client's tool may replace one that only reads. `goals`: the turn is
    of an API that knows goals, in a conversation that is stored.
    """
    brought = dynamic_tools(client_tools)
    replaced = {tool.name for tool in brought}
    tools = [entry.tool for entry in ENTRIES if entry.offered(config, family)]
    if goals:
        tools += GOAL_TOOLS
    if mode is TurnMode.PLAN:
        tools.append(REQUEST_USER_INPUT)
    tools = [*(tool for tool in tools if tool.name not in replaced), *brought]
    if mcp is not None:
        tools += [tool for tool in mcp_tools(mcp) if tool.name not in BUILTIN_NAMES]
    accepted = [entry.tool for entry in ENTRIES if entry.accepted]
    accepted += without_namespaces(client_tools, BUILTIN_NAMES)
    return ToolSet(tuple(tools), tuple(accepted))
