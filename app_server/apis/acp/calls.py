"""Items of the engine as tool calls: their kind, title, places and content. Pure.

A call looks the same while it is live and when it is sent again from a stored conversation.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from app_server.apis.acp.changes import (
    CALL_TITLE,
    BlockPart,
    FilePlace,
    OutputPart,
    Part,
    ShownCall,
    TextPart,
    changed_places,
    diff_parts,
    one_line,
    plain_output,
)
from app_server.core.rollout.stored_events import capped
from app_server.core.shell import quote
from app_server.core.shell.script import script_of
from protocol.acp.tool_calls import ToolCallStatus, ToolKind
from protocol.base import Json
from protocol.engine import items as engine
from protocol.engine.items import CommandSource, ItemStatus
from protocol.events.commands import (
    AddFileChange,
    DeleteFileChange,
    FileChange,
    ListFilesCommand,
    ParsedCommand,
    ReadCommand,
    SearchCommand,
    UpdateFileChange,
)
from protocol.mcp import ErrResult, OkResult

Item = (
    engine.CommandExecution
    | engine.FileChange
    | engine.McpToolCall
    | engine.DynamicToolCall
    | engine.WebSearch
    | engine.ImageView
    | engine.EnteredReview
)
"""Items that are shown as tool calls."""

_TOOLS: Final[Mapping[CommandSource, str | None]] = {
    CommandSource.AGENT: "shell",
    CommandSource.TERMINAL: "exec_command",
    CommandSource.PROVIDER: "local_shell",
    CommandSource.USER_SHELL: None,
}
_STATUS: Final = {
    ItemStatus.IN_PROGRESS: ToolCallStatus.IN_PROGRESS,
    ItemStatus.COMPLETED: ToolCallStatus.COMPLETED,
    ItemStatus.FAILED: ToolCallStatus.FAILED,
    ItemStatus.DECLINED: ToolCallStatus.FAILED,
}
_NOT_A_PATH: Final = frozenset("~$*?[`\0")
"""Characters at which a word of a command is something else than the path of a file, for the shell."""

MOST_RAW: Final = 64 * 1024
"""Characters of an argument that a client is shown as the raw input."""


def begun(item: Item, id: str) -> ShownCall:
    """The call as it is announced."""
    match item:
        case engine.CommandExecution():
            return ShownCall(
                id=id,
                title=command_title(item.command, item.line),
                kind=command_kind(item.parsed),
                name=_TOOLS[item.source],
                raw_input={"command": list(item.command), "cwd": item.cwd},
                places=_read_places(item.parsed, item.cwd),
                cwd=item.cwd,
            )
        case engine.FileChange():
            return ShownCall(
                id=id,
                title=_edit_title(item.changes),
                kind=_edit_kind(item.changes),
                name="apply_patch",
                raw_input={"files": list(item.changes)},
                places=changed_places(item.changes, item.texts),
                parts=diff_parts(item.changes, item.texts),
            )
        case engine.McpToolCall(invocation=called):
            title = one_line(f"{called.server}: {called.tool}", CALL_TITLE)
            raw = _raw({"server": called.server, "tool": called.tool, "arguments": called.arguments})
            return ShownCall(id=id, title=title, kind=ToolKind.OTHER, name=called.tool, raw_input=raw)
        case engine.DynamicToolCall():
            raw = _raw({"tool": item.tool, "arguments": item.arguments})
            title = one_line(item.tool, CALL_TITLE)
            return ShownCall(id=id, title=title, kind=ToolKind.OTHER, name=item.tool, raw_input=raw)
        case engine.WebSearch():
            return ShownCall(id=id, title=_search_title(item), kind=ToolKind.FETCH, name="web_search")
        case engine.ImageView():
            places = (FilePlace(item.path),) if os.path.isabs(item.path) else ()
            title = f"View {one_line(os.path.basename(item.path), CALL_TITLE)}"
            return ShownCall(id=id, title=title, kind=ToolKind.READ, name="view_image", places=places)
        case engine.EnteredReview():
            return ShownCall(id=id, title=one_line(f"Review: {item.hint}", CALL_TITLE), kind=ToolKind.THINK)
        case _:
            assert_never(item)


def starts_at_once(item: Item) -> bool:
    """Whether it runs from its begin on: nobody is asked about it."""
    return not isinstance(item, engine.CommandExecution | engine.FileChange)


def end(call: ShownCall, item: Item, *, cut: bool = False) -> None:
    """Bring the call to its end, as the item says. `cut`: it did not come to its own."""
    match item:
        case engine.CommandExecution():
            call.status = _STATUS[item.status]
            call.exit_code = item.exit_code
            call.parts = _output(item)
            if item.exit_code is not None:
                call.raw_output = {"exit_code": item.exit_code}
        case engine.FileChange():
            call.status = _STATUS[item.status]
            problem = item.stderr.strip()
            if item.status is not ItemStatus.COMPLETED and problem:
                call.parts = (*call.parts, TextPart(capped(plain_output(problem), WHOLE_MESSAGE)))
        case engine.McpToolCall():
            call.status = _STATUS[item.status]
            call.parts, call.raw_output = _mcp_result(item)
        case engine.DynamicToolCall():
            call.status = _STATUS[item.status]
            call.parts = tuple(BlockPart(block) for block in item.content or () if isinstance(block, dict))
        case engine.WebSearch():
            call.title = _search_title(item)
            call.status = ToolCallStatus.COMPLETED
        case engine.ImageView() | engine.EnteredReview():
            call.status = ToolCallStatus.COMPLETED
        case _:
            assert_never(item)
    if cut or not call.is_over:
        call.status = ToolCallStatus.FAILED


WHOLE_MESSAGE: Final = 8 * 1024


def command_title(argv: Sequence[str], line: str | None) -> str:
    """The command line without the shell around it."""
    return one_line(line or script_of(argv) or quote.join(argv), CALL_TITLE) or "(empty command)"


def command_kind(parsed: Sequence[ParsedCommand]) -> ToolKind:
    if parsed and all(isinstance(each, ReadCommand) for each in parsed):
        return ToolKind.READ
    if parsed and all(isinstance(each, ReadCommand | ListFilesCommand | SearchCommand) for each in parsed):
        return ToolKind.SEARCH
    return ToolKind.EXECUTE


def _read_places(parsed: Sequence[ParsedCommand], cwd: str) -> tuple[FilePlace, ...]:
    paths = [each.path for each in parsed if isinstance(each, ReadCommand)]
    return tuple(
        FilePlace(os.path.normpath(os.path.join(cwd, path))) for path in paths if _NOT_A_PATH.isdisjoint(path)
    )


def _output(item: engine.CommandExecution) -> tuple[Part, ...]:
    text = plain_output(capped(item.output))
    parts: list[Part] = [OutputPart(text)] if text.strip() else []
    if item.exit_code:
        parts.append(TextPart(f"Exit code: {item.exit_code}"))
    return tuple(parts)


def _mcp_result(item: engine.McpToolCall) -> tuple[tuple[Part, ...], Json]:
    match item.result:
        case OkResult(ok=result):
            blocks = tuple(block.to_value() for block in result.content)
            known = [block for block in blocks if _is_known_block(block)]
            raw: Json = {"content": list(blocks)}
            if result.structured_content is not None:
                raw["structuredContent"] = result.structured_content
            return tuple(BlockPart(block) for block in known), _raw(raw)
        case ErrResult(err=text):
            return (TextPart(capped(text, WHOLE_MESSAGE)),), None
        case None:
            return (), None
        case _:
            assert_never(item.result)


def _is_known_block(block: Json) -> bool:
    """Whether a client has to understand it: servers may send what they like."""
    match block:
        case {"type": "text", "text": str()}:
            return True
        case {"type": "image" | "audio", "data": str(), "mimeType": str()}:
            return True
        case {"type": "resource_link", "uri": str(), "name": str()}:
            return True
        case {"type": "resource", "resource": {"uri": str(), "text": str()} | {"uri": str(), "blob": str()}}:
            return True
        case _:
            return False


def _raw(value: Json) -> Json:
    """The value, unless it is very long: clients keep it."""
    return value if len(repr(value)) <= MOST_RAW else None


def _search_title(item: engine.WebSearch) -> str:
    return one_line(item.query, CALL_TITLE) or "Search the web"


def _edit_title(changes: Mapping[str, FileChange]) -> str:
    kind = _edit_kind(changes)
    verb = {ToolKind.DELETE: "Delete", ToolKind.MOVE: "Move"}.get(kind, "Edit")
    if len(changes) != 1:
        return f"{verb} {len(changes)} files"
    path, change = next(iter(changes.items()))
    title = f"{verb} {os.path.basename(path)}"
    if isinstance(change, UpdateFileChange) and change.move_path:
        title += f" to {os.path.basename(change.move_path)}"
    return one_line(title, CALL_TITLE)


def _edit_kind(changes: Mapping[str, FileChange]) -> ToolKind:
    kinds = {_change_kind(change) for change in changes.values()}
    return kinds.pop() if len(kinds) == 1 else ToolKind.EDIT


def _change_kind(change: FileChange) -> ToolKind:
    match change:
        case AddFileChange():
            return ToolKind.EDIT
        case DeleteFileChange():
            return ToolKind.DELETE
        case UpdateFileChange(move_path=str(), unified_diff=diff) if not diff.strip():
            return ToolKind.MOVE
        case UpdateFileChange():
            return ToolKind.EDIT
        case _:
            assert_never(change)
