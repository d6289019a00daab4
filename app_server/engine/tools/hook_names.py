"""Calls of the model in the words of hooks: names and inputs as scripts of Claude Code expect them; and the way back,
from another input to a call. Pure.

A command is `Bash` with its line, and with its folder if that is not the turn's. A patch is `apply_patch` (or `Edit`,
`Write`) with its text, even within a command, and with its paths as they are from the turn's folder: a guard of files
sees the same path wherever the patch is applied. Every other tool has its own name and arguments.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Final

from app_server.engine.approvals.shell.quote import join
from app_server.engine.support.real_path import within
from app_server.engine.tools.client_tool import DynamicTool
from app_server.engine.tools.shell_tools import MARKS, command_of
from app_server.engine.tools.tool_base import (
    SHELL_TOOLS,
    HookedCall,
    Tool,
    ToolCall,
    ToolContext,
    ToolFailure,
)
from app_server.engine.tools.tool_schemas import PatchArguments, parse_arguments, parse_json
from app_server.engine.workspace.patch.shell_forms import PatchCall, find_patch
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace

BASH: Final = "Bash"
PATCH: Final = "apply_patch"
PATCH_NAMES: Final = (PATCH, "Edit", "Write")
_SHELL_OPTIONS: Final = ("-c", "-lc")
_FILE_LINE: Final = r"^(\*\*\* (?:(?:Add|Update|Delete) File|Move to): *)(.*\S)"


class CallRewriteFailed(Exception):
    """The call cannot be made with the input that a hook wants; the text says why."""


def described(call: ToolCall, tool: Tool, turn: ToolContext) -> HookedCall:
    """Return the call in the words of hooks. Arguments that cannot be read are described as they are."""
    if call.name == PATCH:
        return HookedCall(PATCH, PATCH_NAMES, {"command": _patch_text(call)}, call.call_id)
    if call.name in SHELL_TOOLS and (line := _command_line(call, turn)) is not None:
        if (patch := _patch_in(call, turn)) is not None:
            return HookedCall(PATCH, PATCH_NAMES, {"command": patch}, call.call_id)
        folder = command_of(call, turn).cwd
        place = {} if folder == os.path.normpath(turn.settings.cwd) else {"workdir": folder}
        return HookedCall(BASH, (BASH,), {"command": line, **place}, call.call_id)
    name = call.name
    if (served := turn.mcp.tools().get(name)) is not None:
        name = f"mcp__{served.server}__{served.tool}"
    elif isinstance(tool, DynamicTool):
        name = tool.bare_name
    return HookedCall(name, (name,), _arguments(call), call.call_id)


def rewritten(call: ToolCall, wanted: Mapping[str, Json], tool: Tool, turn: ToolContext) -> ToolCall:
    """Return the call with another input. Raises CallRewriteFailed."""
    before = described(call, tool, turn)
    if before.name not in (BASH, PATCH):
        return replace(call, arguments=json.dumps(wanted))
    command = wanted.get("command")
    if not isinstance(command, str):
        raise CallRewriteFailed("its hook answered `updatedInput` without a text `command`")
    if call.name == PATCH:
        if call.custom:
            return replace(call, arguments=command)
        return replace(call, arguments=json.dumps({**_object(call), "input": command}))
    changed = _with_patch(call, before, command) if before.name == PATCH else _with_line(call, command, turn)
    if described(changed, tool, turn).input != {**_place_of(before), **wanted}:
        raise CallRewriteFailed("the `updatedInput` of its hook does not fit into the call")
    return changed


def _place_of(hooked: HookedCall) -> Mapping[str, Json]:
    """Return the folder of a command, which another input need not repeat, and cannot change."""
    place = hooked.input.get("workdir") if isinstance(hooked.input, dict) else None
    return {} if place is None else {"workdir": place}


def _with_line(call: ToolCall, line: str, turn: ToolContext) -> ToolCall:
    arguments = _object(call)
    match call.name:
        case "exec_command":
            changed: dict[str, Json] = {**arguments, "cmd": line}
        case "shell_command":
            changed = {**arguments, "command": line}
        case _:
            match arguments.get("command"):
                case [str(shell), str(option), str()] if option in _SHELL_OPTIONS:
                    words = [shell, option, line]
                case _:
                    words = [turn.commands.shell_path, "-lc", line]
            changed = {**arguments, "command": words}
    return replace(call, arguments=json.dumps(changed))


def _with_patch(call: ToolCall, before: HookedCall, patch: str) -> ToolCall:
    old = before.input["command"]
    arguments = {name: _replaced(value, old, patch) for name, value in _object(call).items()}
    return replace(call, arguments=json.dumps(arguments))


def _replaced(value: Json, old: str, new: str) -> Json:
    if isinstance(value, list):
        return [_replaced(each, old, new) for each in value]
    return value.replace(old.strip(), new.strip()) if isinstance(value, str) else value


def _command_line(call: ToolCall, turn: ToolContext) -> str | None:
    """Return the line that the model wrote, or its arguments as a line; None if the arguments cannot be read."""
    try:
        command = command_of(call, turn)
    except ToolFailure:
        return None
    if call.name == "exec_command":
        return command.line
    match command.argv:
        case (_, option, line) if option in _SHELL_OPTIONS:
            return line
        case _:
            return join(command.argv)


def _patch_in(call: ToolCall, turn: ToolContext) -> str | None:
    command = command_of(call, turn)
    if not any(mark in word for word in command.argv for mark in MARKS):
        return None
    found = find_patch(command.argv)
    if not isinstance(found, PatchCall):
        return None
    folder = os.path.normpath(os.path.join(command.cwd, found.workdir or ""))
    return _seen_from(os.path.normpath(turn.settings.cwd), folder, found.patch)


def _seen_from(cwd: str, folder: str, patch: str) -> str:
    """Return a patch of a folder with its relative paths as they are from the turn's folder."""
    if folder == cwd:
        return patch
    prefix = os.path.relpath(folder, cwd) if within(folder, cwd) else folder

    def path(match: re.Match[str]) -> str:
        return f"{match[1]}{os.path.normpath(os.path.join(prefix, match[2]))}"

    return re.sub(_FILE_LINE, path, patch, flags=re.MULTILINE)


def _patch_text(call: ToolCall) -> str:
    if call.custom:
        return call.arguments
    try:
        return parse_arguments(call.arguments, PatchArguments).input
    except ToolFailure:
        return call.arguments


def _object(call: ToolCall) -> dict[str, Json]:
    value = _arguments(call)
    return value if isinstance(value, dict) else {}


def _arguments(call: ToolCall) -> Json:
    try:
        value = parse_json(call.arguments)
    except ToolFailure:
        return {"input": call.arguments}
    return {} if value is None else value
