"""Makes the items of tool calls from entries of the model's history, for files that have nothing else about the calls.

The effect of a call is read from its arguments and its output. A call without an output failed. Pure.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from app_server.engine.approvals.shell.summaries import parse_command
from app_server.engine.storage.codex_compat import with_whole_name
from app_server.engine.storage.record import StoredRecord, parse_object, text_of
from app_server.engine.storage.stored_item_lines import search_id, search_query
from app_server.engine.workspace.patch import parse
from app_server.engine.workspace.patch.shell_forms import PatchCall, find_patch
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items
from app_server_protocol.engine.item_values import AddFileChange, DeleteFileChange, UpdateFileChange
from app_server_protocol.engine.item_values import FileChange as ChangedFile
from app_server_protocol.mcp import CallToolResult, ErrResult, McpInvocation, OkResult, TextContent
from app_server_protocol.values import replace

_EXIT: Final = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,6})$", re.MULTILINE)
_BODY: Final = re.compile(r"^Output:\n", re.MULTILINE)
_MCP_NAMES: Final = (re.compile(r"mcp__(.+?)__(.+)"), re.compile(r"(.+?)__(.+)"))


def item_of_record(record: StoredRecord, cwd: str) -> items.Item | None:
    """Return the item of a stored call as it began; None if the call is not shown as an item, or if it is damaged."""
    return item_of_call(with_whole_name(record).value() or {}, cwd)


def item_of_call(payload: Mapping[str, Json], cwd: str) -> items.Item | None:
    """Return the item of a call as it began, with the id of the call; None if the call is not shown as an item."""
    if payload.get("type") == "web_search_call":
        query = search_query(payload)
        return items.WebSearch(search_id(query), query)
    id = text_of(payload, "call_id")
    if not id:
        return None
    match payload.get("type"):
        case "local_shell_call":
            action = payload.get("action")
            return _local_shell(id, action if isinstance(action, dict) else {}, cwd)
        case "custom_tool_call" if payload.get("name") == "apply_patch":
            return _patch(id, text_of(payload, "input") or "", cwd)
        case "function_call":
            arguments = parse_object((text_of(payload, "arguments") or "").encode("utf-8", "replace"))
            return _function(id, text_of(payload, "name") or "", arguments or {}, cwd)
        case _:
            return None


def ended_item(item: items.Item, output: Json) -> items.Item:
    """Return the item as it ended. `output` is what the model was sent; None if there is no output."""
    text = _output_text(output)
    match item:
        case items.CommandExecution():
            code, printed = _result(text)
            status = items.ItemStatus.COMPLETED if code == 0 else items.ItemStatus.FAILED
            return replace(item, status=status, exit_code=code, output=printed)
        case items.FileChange():
            code, printed = _result(text)
            done = code == 0 or (code is None and printed.startswith("Success"))
            stderr = "" if done else printed
            status = items.ItemStatus.COMPLETED if done else items.ItemStatus.FAILED
            return replace(item, status=status, stdout=printed, stderr=stderr)
        case items.McpToolCall():
            if text is None:
                return replace(item, status=items.ItemStatus.FAILED, result=ErrResult(err="interrupted"))
            return replace(item, status=items.ItemStatus.COMPLETED, result=OkResult(ok=_mcp_result(text)))
        case _:
            return item


def _function(id: str, name: str, arguments: Mapping[str, Json], cwd: str) -> items.Item | None:
    match name, arguments:
        case (("shell" | "container.exec"), {"command": list() as command}):
            return _command(id, _words(command), _folder(arguments, cwd), items.CommandSource.AGENT)
        case "shell_command", {"command": str(line)}:
            return _command(id, ("sh", "-c", line), _folder(arguments, cwd), items.CommandSource.AGENT)
        case "exec_command", {"cmd": str(line)}:
            return _command(id, ("sh", "-c", line), _folder(arguments, cwd), items.CommandSource.TERMINAL)
        case "apply_patch", {"input": str(text)}:
            return _patch(id, text, cwd)
        case "view_image", {"path": str(path)}:
            return items.ImageView(id, os.path.join(cwd, path))
        case _:
            return _mcp_call(id, name, dict(arguments))


def _mcp_call(id: str, name: str, arguments: Json) -> items.Item | None:
    for pattern in _MCP_NAMES:
        match = pattern.fullmatch(name)
        if match is not None:
            invocation = McpInvocation(server=match[1], tool=match[2], arguments=arguments)
            return items.McpToolCall(id=id, invocation=invocation)
    return None


def _local_shell(id: str, action: Mapping[str, Json], cwd: str) -> items.Item | None:
    command = action.get("command")
    if not isinstance(command, list):
        return None
    folder = os.path.join(cwd, text_of(action, "working_directory") or "")
    return _command(id, _words(command), os.path.normpath(folder), items.CommandSource.PROVIDER)


def _command(id: str, command: tuple[str, ...], cwd: str, source: items.CommandSource) -> items.Item | None:
    found = find_patch(command)
    if isinstance(found, PatchCall):
        return _patch(id, found.patch, os.path.join(cwd, found.workdir or ""))
    return items.CommandExecution(
        id=id, command=command, cwd=cwd, parsed=tuple(parse_command(command)), source=source
    )


def _patch(id: str, text: str, cwd: str) -> items.Item | None:
    try:
        operations = parse.parse_patch(text).operations
    except parse.PatchError:
        return None
    changes = dict(_change(operation, cwd) for operation in operations)
    return items.FileChange(id=id, changes=changes)


def _change(operation: parse.FileOperation, cwd: str) -> tuple[str, ChangedFile]:
    path = _absolute(operation.path, cwd)
    match operation:
        case parse.AddFile():
            return path, AddFileChange(content=operation.content)
        case parse.DeleteFile():
            return path, DeleteFileChange(content="")
        case parse.UpdateFile():
            hunks = [
                "@@\n" + "".join(f"{line.mark}{line.text}\n" for line in hunk.lines)
                for hunk in operation.hunks
            ]
            target = _absolute(operation.move_to, cwd) if operation.move_to else None
            return path, UpdateFileChange(unified_diff="".join(hunks), move_path=target)


def _absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, path))


def _folder(arguments: Mapping[str, Json], cwd: str) -> str:
    return _absolute(text_of(arguments, "workdir") or "", cwd)


def _words(command: Sequence[Json]) -> tuple[str, ...]:
    return tuple(word for word in command if isinstance(word, str))


def _result(text: str | None) -> tuple[int | None, str]:
    """Return the exit code and the output; the exit code is None if the text for the model does not say it."""
    if text is None:
        return None, ""
    try:
        parsed = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        parsed = None
    match parsed:
        case {"output": str(output), "metadata": {"exit_code": int(code)}}:
            return code, output
        case _:
            pass
    status, body = _EXIT.search(text), _BODY.search(text)
    return (int(status[1]) if status else None), (text[body.end() :] if body else text)


def _mcp_result(text: str) -> CallToolResult:
    try:
        parsed = json.loads(text) if text.startswith(("{", "[")) else None
        if isinstance(parsed, dict) and isinstance(parsed.get("content"), list):
            return CallToolResult.model_validate(parsed)
        if isinstance(parsed, list):
            return CallToolResult.model_validate({"content": parsed})
    except (ValueError, RecursionError):
        pass
    return CallToolResult(content=(TextContent(text=text),))


def _output_text(output: Json) -> str | None:
    match output:
        case str():
            return output
        case {"content": str(text)}:
            return text
        case list():
            return "\n".join(
                str(part["text"]) for part in output if isinstance(part, dict) and "text" in part
            )
        case _:
            return None
