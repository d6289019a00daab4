"""Conversion of items of the engine into tool calls: their kind, title, locations and content. Pure.

A call looks the same while it is live and when it is replayed from a stored conversation.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from app_server.engine.approvals.shell import quote
from app_server.engine.approvals.shell.shell_script import script_of
from app_server.engine.storage.encode import capped
from app_server.server.apis.acp.formatting import (
    CALL_TITLE,
    changed_places,
    diffs_of,
    fenced,
    one_line,
    plain_output,
)
from app_server_protocol import mcp
from app_server_protocol.acp.tool_calls import (
    ContentOfCall,
    ToolCallContent,
    ToolCallLocation,
    ToolCallStatus,
    ToolKind,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items as engine
from app_server_protocol.engine.item_values import (
    AddFileChange,
    DeleteFileChange,
    FileChange,
    ListFilesCommand,
    ParsedCommand,
    ReadCommand,
    SearchCommand,
    UpdateFileChange,
)
from app_server_protocol.engine.items import CommandSource, ItemStatus

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
"""Characters that make a word of a command something else than the path of a file, because the shell
interprets them.
"""

MOST_RAW: Final = 64 * 1024
"""Maximum length of an argument that a client is shown as the raw input, in characters."""


class ToolCallView(Struct, kw_only=True):
    """The current state of a tool call. Its id is unique in the session."""

    id: str
    title: str
    kind: ToolKind
    status: ToolCallStatus = ToolCallStatus.PENDING
    name: str | None = None
    raw_input: Json = None
    raw_output: Json = None
    locations: tuple[ToolCallLocation, ...] = ()
    output: str = ""
    """Final output of a command."""
    notes: tuple[ToolCallContent, ...] = ()
    """Further content of the call: diffs, blocks, texts."""
    cwd: str | None = None
    """Working directory of a command."""
    exit_code: int | None = None

    @property
    def runs_command(self) -> bool:
        """Whether the call is a command, which may print output before it ends."""
        return self.cwd is not None

    @property
    def content(self) -> tuple[ToolCallContent, ...]:
        """Return all content of the call that a client is shown."""
        return (*output_content(self.output), *self.notes)

    def fields(
        self, content: tuple[ToolCallContent, ...], status: ToolCallStatus | None = None
    ) -> dict[str, Json]:
        """Return the call as arguments for `SessionToolCallFields`."""
        return {
            "tool_call_id": self.id,
            "title": self.title,
            "name": self.name,
            "kind": self.kind,
            "status": status,
            "locations": self.locations or None,
            "raw_input": self.raw_input,
            "content": content or None,
        }


def text_content(text: str) -> ContentOfCall:
    """Return a text as content of a call."""
    return ContentOfCall(content={"type": "text", "text": text})


def output_content(output: str) -> tuple[ContentOfCall, ...]:
    """Return plain output as content of a call: one block, or none for blank output."""
    return (text_content(fenced(output, "console")),) if output.strip() else ()


def begun(item: Item, id: str) -> ToolCallView:
    """Return the call as it is announced: pending if the user may be asked about it, else in progress."""
    call = _begun(item, id)
    if not isinstance(item, engine.CommandExecution | engine.FileChange):
        call.status = ToolCallStatus.IN_PROGRESS
    return call


def _begun(item: Item, id: str) -> ToolCallView:
    match item:
        case engine.CommandExecution():
            return ToolCallView(
                id=id,
                title=command_title(item.command, item.line),
                kind=command_kind(item.parsed),
                name=_TOOLS[item.source],
                raw_input={"command": list(item.command), "cwd": item.cwd},
                locations=_read_places(item.parsed, item.cwd),
                cwd=item.cwd,
            )
        case engine.FileChange():
            return ToolCallView(
                id=id,
                title=_edit_title(item.changes),
                kind=_edit_kind(item.changes),
                name="apply_patch",
                raw_input={"files": list(item.changes)},
                locations=changed_places(item.changes),
                notes=diffs_of(item.changes, item.texts),
            )
        case engine.McpToolCall(invocation=called):
            title = one_line(f"{called.server}: {called.tool}", CALL_TITLE)
            raw = _raw({"server": called.server, "tool": called.tool, "arguments": called.arguments})
            return ToolCallView(id=id, title=title, kind=ToolKind.OTHER, name=called.tool, raw_input=raw)
        case engine.DynamicToolCall():
            raw = _raw({"tool": item.tool, "arguments": item.arguments})
            title = one_line(item.tool, CALL_TITLE)
            return ToolCallView(id=id, title=title, kind=ToolKind.OTHER, name=item.tool, raw_input=raw)
        case engine.WebSearch():
            return ToolCallView(id=id, title=_search_title(item), kind=ToolKind.FETCH, name="web_search")
        case engine.ImageView():
            places = (ToolCallLocation(path=item.path),) if os.path.isabs(item.path) else ()
            title = f"View {one_line(os.path.basename(item.path), CALL_TITLE)}"
            return ToolCallView(id=id, title=title, kind=ToolKind.READ, name="view_image", locations=places)
        case engine.EnteredReview():
            return ToolCallView(
                id=id, title=one_line(f"Review: {item.hint}", CALL_TITLE), kind=ToolKind.THINK
            )


def end(call: ToolCallView, item: Item, *, cut: bool = False) -> None:
    """Bring the call to its end, with the outcome of the item. `cut` is True if the item was interrupted before its own
    end.
    """
    match item:
        case engine.CommandExecution():
            call.status = _STATUS[item.status]
            call.exit_code = item.exit_code
            call.output = plain_output(capped(item.output))
            call.notes = (text_content(f"Exit code: {item.exit_code}"),) if item.exit_code else ()
            if item.exit_code is not None:
                call.raw_output = {"exit_code": item.exit_code}
        case engine.FileChange():
            call.status = _STATUS[item.status]
            problem = item.stderr.strip()
            if item.status is not ItemStatus.COMPLETED and problem:
                call.notes += (text_content(capped(plain_output(problem), WHOLE_MESSAGE)),)
        case engine.McpToolCall():
            call.status = _STATUS[item.status]
            call.notes, call.raw_output = _mcp_result(item)
        case engine.DynamicToolCall():
            call.status = _STATUS[item.status]
            blocks = (block for block in item.content or () if isinstance(block, dict))
            call.notes = tuple(ContentOfCall(content=block) for block in blocks)
        case engine.WebSearch():
            call.title = _search_title(item)
            call.status = ToolCallStatus.COMPLETED
        case engine.ImageView() | engine.EnteredReview():
            call.status = ToolCallStatus.COMPLETED
    if cut or call.status is not ToolCallStatus.COMPLETED:
        call.status = ToolCallStatus.FAILED


WHOLE_MESSAGE: Final = 8 * 1024


def command_title(argv: Sequence[str], line: str | None) -> str:
    """Return the command line without the shell around it."""
    return one_line(line or script_of(argv) or quote.join(argv), CALL_TITLE) or "(empty command)"


def command_kind(parsed: Sequence[ParsedCommand]) -> ToolKind:
    if parsed and all(isinstance(each, ReadCommand) for each in parsed):
        return ToolKind.READ
    if parsed and all(isinstance(each, ReadCommand | ListFilesCommand | SearchCommand) for each in parsed):
        return ToolKind.SEARCH
    return ToolKind.EXECUTE


def _read_places(parsed: Sequence[ParsedCommand], cwd: str) -> tuple[ToolCallLocation, ...]:
    paths = [each.path for each in parsed if isinstance(each, ReadCommand)]
    named = [path for path in paths if _NOT_A_PATH.isdisjoint(path)]
    return tuple(ToolCallLocation(path=os.path.normpath(os.path.join(cwd, path))) for path in named)


def _mcp_result(item: engine.McpToolCall) -> tuple[tuple[ContentOfCall, ...], Json]:
    match item.result:
        case None:
            return (), None
        case mcp.OkResult(ok=result):
            blocks = tuple(block.to_value() for block in result.content)
            known = [block for block in blocks if _is_known_block(block)]
            raw: Json = {"content": list(blocks)}
            if result.structured_content is not None:
                raw["structuredContent"] = result.structured_content
            return tuple(ContentOfCall(content=block) for block in known), _raw(raw)
        case mcp.ErrResult(err=text):
            return (text_content(capped(text, WHOLE_MESSAGE)),), None


def _is_known_block(block: Json) -> bool:
    """Return whether the block is of a kind that a client has to understand: servers may send blocks of any shape."""
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
    """Return the value; None if it is very long, because clients keep it."""
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
