"""The tools of a turn, chosen by configuration and model, in the order of the model's tool list.

A tool has a name, a description for the model, and a module that serves its calls. The module is loaded with the first
call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from app_server.engine.config.config_values import Config
from app_server.engine.config.model_rows import ModelRow, PatchToolKind, ShellToolKind
from app_server.engine.context.sizes import PromptSize
from app_server.engine.context.text_for_model import estimate_tokens
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.model.prompt import FreeformTool, FunctionTool, LocalShellTool, ToolSpec, WebSearchTool
from app_server.engine.tools import (
    client_tool,
    file_tools,
    mcp_tools,
    patch_tool,
    shell_tools,
    tool_schemas,
    user_tools,
)
from app_server.engine.tools.tool_base import Tool, ToolCall, ToolContext, ToolFailure, ToolOutput
from app_server.engine.tools.tool_schemas import ToolArguments, parameters
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.policy import TurnMode


class ToolModule(Protocol):
    """A module that serves the calls of some tools."""

    @property
    def invoke(self) -> Callable[[ToolCall, ToolContext], Awaitable[ToolOutput]]: ...


ALWAYS, NEVER = "always", "never"
TERMINAL, LINE, VECTOR, PROVIDER = "a terminal", "a line", "a vector", "the provider's"
"""Kinds of tools that run commands. A model is offered one of them."""


def _switches(config: Config, model: ModelRow) -> frozenset[str]:
    """Return the switches that are on: the enabled features, the tools that the model's row lists, the kind of shell
    tool and of patch tool. The user's features take precedence over the row.
    """
    features, more = config.features, {ALWAYS}
    if features.enabled("unified_exec"):
        more.add(TERMINAL)
    elif features.enabled("shell_command_tool"):
        more.add(LINE)
    else:
        more.add(PROVIDER if model.shell_tool is ShellToolKind.LOCAL_SHELL else VECTOR)
    if model.patch_tool is not None:
        more.add(model.patch_tool)
    elif features.enabled("apply_patch_freeform"):
        more.add(PatchToolKind.FREEFORM)
    return features.names | frozenset(model.extra_tools or ()) | more


class BuiltinTool(Struct, frozen=True):
    """A tool of this server: its name, its description for the model, and the module that serves its calls."""

    name: str
    module: ToolModule | None
    """Module that serves the calls, which is loaded with the first one. None if the provider serves them."""
    told: type[ToolArguments] | ToolSpec
    """Class of its arguments; or the complete description for the model, if the arguments are not checked here."""
    switch: str = ALWAYS
    """Switch that offers the tool: the model's tool list contains the tool if the switch is on."""
    accepted: bool = False
    """Whether calls are also served if the tool is not offered: some models call it from training."""
    parallel: bool = False
    in_reviews: bool = True
    """Whether reviewers are offered the tool."""
    replaceable: bool = False
    """Whether a client may bring a tool of the same name, which then takes its place: this one only reads."""

    def spec(self) -> ToolSpec:
        """Return the description for the model."""
        if isinstance(self.told, type):
            return FunctionTool(self.name, self.told.told, parameters(self.told))
        return self.told

    async def invoke(self, call: ToolCall, turn: ToolContext) -> ToolOutput:
        """Serve a call."""
        if self.module is None:
            raise ToolFailure(f"{self.name} is run by the provider and cannot be called as a function")
        return await self.module.invoke(call, turn)


GRAMMAR = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
FREEFORM_PATCH: Final = FreeformTool(
    "apply_patch",
    f"{tool_schemas.PatchArguments.told} The input is the patch itself, not JSON.",
    {"type": "grammar", "syntax": "lark", "definition": GRAMMAR},
)
"""The patch tool for models that were trained on the format of patches."""

ASKING: Final = BuiltinTool(
    "request_user_input", user_tools, tool_schemas.UserInputArguments, NEVER, accepted=True
)
"""The tool that asks the user. It is offered in plan mode, or if a feature enables it. Otherwise a call is answered
with an error that says so.
"""

PLAN: Final = BuiltinTool("update_plan", user_tools, tool_schemas.PlanArguments)

TINY_SHELL: Final = BuiltinTool("shell_command", shell_tools, tool_schemas.TinyShellArguments)
"""The only tool of models whose context window has no room for more."""

RESOURCE_TOOLS: Final = ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource")

SHELL_KINDS: Final = frozenset({TERMINAL, LINE, VECTOR, PROVIDER})

GOAL_TOOLS: Final = (
    BuiltinTool("get_goal", user_tools, tool_schemas.NoArguments, parallel=True),
    BuiltinTool("create_goal", user_tools, tool_schemas.NewGoal),
    BuiltinTool("update_goal", user_tools, tool_schemas.GoalReport),
)
"""Tools for goals. They are offered in turns of APIs that have goals, if there is a goal or the user wishes for
goals.
"""

TOOLS: Final = (
    BuiltinTool("exec_command", shell_tools, tool_schemas.ExecCommandArguments, TERMINAL),
    BuiltinTool("write_stdin", shell_tools, tool_schemas.WriteStdinArguments, TERMINAL),
    BuiltinTool("shell_command", shell_tools, tool_schemas.ShellCommandArguments, LINE, True),
    BuiltinTool("local_shell", shell_tools, LocalShellTool(), PROVIDER, True),
    BuiltinTool("shell", shell_tools, tool_schemas.ShellArguments, VECTOR, True),
    BuiltinTool("container.exec", shell_tools, tool_schemas.ShellArguments, NEVER, True),
    # The conversation API has these also without servers, as codex 0.58.
    BuiltinTool("list_mcp_resources", mcp_tools, tool_schemas.ListingArguments, parallel=True),
    BuiltinTool("list_mcp_resource_templates", mcp_tools, tool_schemas.TemplateArguments, parallel=True),
    BuiltinTool("read_mcp_resource", mcp_tools, tool_schemas.ReadingArguments, parallel=True),
    PLAN,
    BuiltinTool("apply_patch", patch_tool, FREEFORM_PATCH, PatchToolKind.FREEFORM),
    BuiltinTool("apply_patch", patch_tool, tool_schemas.PatchArguments, PatchToolKind.FUNCTION),
    BuiltinTool(
        "grep_files",
        file_tools,
        tool_schemas.GrepFilesArguments,
        "grep_files",
        parallel=True,
        replaceable=True,
    ),
    BuiltinTool(
        "read_file", file_tools, tool_schemas.ReadFileArguments, "read_file", parallel=True, replaceable=True
    ),
    BuiltinTool(
        "list_dir", file_tools, tool_schemas.ListDirArguments, "list_dir", parallel=True, replaceable=True
    ),
    BuiltinTool(
        "web_search",
        None,
        WebSearchTool(),
        "web_search_request",
        parallel=True,
        in_reviews=False,
        replaceable=True,
    ),
    BuiltinTool(
        "view_image",
        file_tools,
        tool_schemas.ViewImageArguments,
        "view_image_tool",
        parallel=True,
        in_reviews=False,
        replaceable=True,
    ),
    ASKING,
)
"""All other built-in tools, in the order of the tool list. A new tool needs one line here."""

BUILTIN_NAMES: Final = frozenset(tool.name for tool in (*TOOLS, *GOAL_TOOLS))
"""Names that MCP tools cannot take, whether or not the turn offers the built-in tool."""

RESERVED_NAMES: Final = BUILTIN_NAMES - {tool.name for tool in TOOLS if tool.replaceable}
"""Names that a client's tools cannot take."""


class ToolOffer(Struct, frozen=True, kw_only=True):
    """Conditions of a turn, beside settings and model, that decide which tools are offered."""

    size: PromptSize = PromptSize.FULL
    review: bool = False
    """Whether the tools are those of a reviewer."""
    goals: bool = False
    """Whether there is a goal or the user wishes for goals."""
    resources: bool = True
    """Whether there may be resources of MCP servers."""
    mcp_tokens: int | None = None
    """Maximum size of the descriptions of MCP tools, in tokens. None if there is no limit."""
    asks: bool = False
    """Whether the tool that asks the user is offered in every mode, so that a change of mode does not change the
    tools.
    """
    before: tuple[Tool, ...] = ()
    """Tools of the previous request, whose order is preserved."""


EVERYTHING: Final = ToolOffer()
"""Offer without restrictions: settings and model alone decide."""


class ToolSet(Struct, frozen=True, dict=True):
    """The tools of a turn."""

    offered: tuple[Tool, ...]
    accepted: tuple[Tool, ...]
    """Tools that are run if the model calls them, even if they are not offered."""
    mcp_tools: int = 0
    """Number of MCP tools that exist."""
    mcp_omitted: int = 0
    """Number of MCP tools that did not fit and are not offered."""

    @cached_property
    def specs(self) -> Sequence[ToolSpec]:
        return tuple(tool.spec() for tool in self.offered)

    @cached_property
    def by_name(self) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in (*self.accepted, *self.offered)}


def build_tools(
    config: Config,
    model: ModelRow,
    mcp: McpManager | None,
    *,
    offer: ToolOffer = EVERYTHING,
    client_tools: Sequence[ClientTool] = (),
    mode: TurnMode = TurnMode.DEFAULT,
) -> ToolSet:
    """Choose the tools of a turn. An MCP tool never replaces a built-in tool. A client's tool may replace one that only
    reads.
    """
    brought = client_tool.dynamic_tools(client_tools) if client_tools else []
    replaced = {tool.name for tool in brought}
    tools: list[Tool] = [tool for tool in _builtin_tools(config, model, offer) if tool.name not in replaced]
    if offer.asks or mode is TurnMode.PLAN or config.features.enabled(tool_schemas.ASKS_IN_DEFAULT_MODE):
        tools.append(ASKING)
    tools += brought
    known = {tool.name for tool in offer.before}
    servers = sorted(_mcp_tools(mcp), key=lambda tool: tool.name not in known)
    fitting = _fitting(servers, offer.mcp_tokens)
    accepted: list[Tool] = [tool for tool in TOOLS if tool.accepted]
    if client_tools:
        accepted += client_tool.without_namespaces(client_tools, BUILTIN_NAMES)
    offered = _continued(offer.before, (*tools, *fitting))
    return ToolSet(offered, tuple(accepted), len(servers), len(servers) - len(fitting))


def _continued(before: Sequence[Tool], now: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools of the previous request in their order, followed by new ones. A built-in tool stays unchanged.
    An MCP or client tool that no longer exists is removed; a changed one replaces its old version in the same position.
    """
    new = {tool.name: tool for tool in now}
    kept: list[Tool] = []
    for tool in before:
        changed = new.pop(tool.name, None)
        if tool.name in BUILTIN_NAMES:
            kept.append(tool)
        elif changed is not None:
            kept.append(changed)
    return (*kept, *new.values())


def _builtin_tools(config: Config, model: ModelRow, offer: ToolOffer) -> list[BuiltinTool]:
    """Return the built-in tools that fit the size of the prompt and are usable."""
    if offer.size is PromptSize.TINY:
        return [TINY_SHELL]
    switches = _switches(config, model)
    tools = [tool for tool in TOOLS if tool.switch in switches and (tool.in_reviews or not offer.review)]
    if offer.size is PromptSize.SMALL:
        wished = config.features.names | (SHELL_KINDS & switches)
        tools = [
            tool for tool in tools if tool.switch in wished or tool.name in ("apply_patch", *RESOURCE_TOOLS)
        ]
        if not (model.input_modalities and model.sees_images):
            tools = [tool for tool in tools if tool.name != "view_image"]
        if config.features.enabled(PLAN.name):
            tools.append(PLAN)
    if not offer.resources:
        tools = [tool for tool in tools if tool.name not in RESOURCE_TOOLS]
    return [*tools, *GOAL_TOOLS] if offer.goals else tools


def _mcp_tools(mcp: McpManager | None) -> list[BuiltinTool]:
    if mcp is None:
        return []
    return [
        BuiltinTool(name, mcp_tools, FunctionTool(name, offered.description, offered.input_schema))
        for name, offered in mcp.tools().items()
        if name not in BUILTIN_NAMES
    ]


def _fitting(tools: Sequence[BuiltinTool], tokens: int | None) -> Sequence[BuiltinTool]:
    """Return the longest prefix of the tools whose descriptions fit into `tokens` together."""
    if tokens is None:
        return tools
    left = tokens
    for n, tool in enumerate(tools):
        left -= spec_tokens(tool.spec())
        if left < 0:
            return tools[:n]
    return tools


def spec_tokens(spec: ToolSpec) -> int:
    """Return the estimated size of a tool's description for the model, in tokens."""
    return estimate_tokens(msgspec.json.encode(spec).decode())
