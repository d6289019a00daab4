"""Reads all items of a stored conversation in their order, from files of this server and of other programs. Calls that
are stored only in the model's history become items, too.

Also reads the last plan and the last count of tokens, which belong to no item. The file is read in one pass. What a
crash left over in the journal is read as if it stood at the end of the file.

Files of other programs, and files of conversations that no client followed by items, have calls in the history alone.
The effect of such a call is read from its arguments and its output. A call without an output failed.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from pydantic import ValidationError

from app_server.engine.approvals.shell.summaries import parse_command
from app_server.engine.storage.codex_compat import with_whole_name
from app_server.engine.storage.decode import TurnReader
from app_server.engine.storage.encode import kept_item
from app_server.engine.storage.journal import NOTHING, leftover_of
from app_server.engine.storage.line_reader import usage_in
from app_server.engine.storage.record import StoredRecord, parse_object, read_record, text_of
from app_server.engine.storage.reverts import counting_lines
from app_server.engine.storage.rollout_reader import with_outputs
from app_server.engine.storage.segments import opened_whole
from app_server.engine.storage.turn_fold import ItemIds
from app_server.engine.workspace.patch import parse
from app_server.engine.workspace.patch.shell_forms import PatchCall, find_patch
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items
from app_server_protocol.engine.events import EndedItem, ItemCompleted, SessionEvent, TurnRenamed
from app_server_protocol.engine.item_values import AddFileChange, DeleteFileChange, UpdateFileChange
from app_server_protocol.engine.item_values import FileChange as ChangedFile
from app_server_protocol.engine.notices import PlanUpdated
from app_server_protocol.engine.token_usage import TokenUsageInfo
from app_server_protocol.events.tools import PlanUpdateEvent
from app_server_protocol.mcp import CallToolResult, ErrResult, McpInvocation, OkResult, TextContent
from app_server_protocol.parse import read
from app_server_protocol.rollout import stored_line
from app_server_protocol.values import replace


class StoredItems(Struct, frozen=True):
    items: tuple[EndedItem, ...]
    """All items, with ids that are unique in the conversation."""
    plan: PlanUpdated | None = None
    usage: TokenUsageInfo | None = None


class _ItemCollector(Struct):
    reader: TurnReader
    cwd: str = "/"
    ended: list[EndedItem] = msgspec.field(default_factory=list)
    calls: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Indexes in `ended` of the calls in the history, by call id. Call ids may repeat."""
    outputs: dict[str, list[Json]] = msgspec.field(default_factory=dict)
    stored: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of calls that are stored as items, by call id. The item may be stored before or after the entry in the
    history.
    """
    plan: Json = None
    counts: list[StoredRecord] = msgspec.field(default_factory=list)

    def take_line(self, number: int, line: bytes) -> None:
        record = read_record(line)
        if record is not None:
            self._take(number, record)

    def _take(self, number: int, record: StoredRecord) -> None:
        match record.kind:
            case "response_item":
                if record.name in CALLS or record.name in OUTPUTS:
                    self._history(with_whole_name(record).value() or {})
                return
            case "session_meta" | "turn_context":
                cwd = (record.value() or {}).get("cwd")
                self.cwd = cwd if isinstance(cwd, str) and os.path.isabs(cwd) else self.cwd
            case "event_msg" if record.name == "token_count":
                self.counts.append(record)
            case _:
                pass
        self._events(self.reader.take(number, record))

    def _history(self, payload: Mapping[str, Json]) -> None:
        kind, id = payload.get("type"), payload.get("call_id")
        if kind in OUTPUTS and isinstance(id, str):
            self.outputs.setdefault(id, []).append(payload.get("output"))
        elif kind in CALLS:
            if payload.get("name") == PLAN_TOOL:
                self.plan = payload.get("arguments")
            item = item_of_call(payload, self.cwd)
            if item is not None:
                self.calls.setdefault(item.id, []).append(len(self.ended))
                self.ended.append(EndedItem(item, None, None))

    def _events(self, events: Iterable[SessionEvent | TurnRenamed]) -> None:
        for event in events:
            if isinstance(event, SessionEvent) and isinstance(event.event, ItemCompleted):
                done = event.event
                item = done.item
                call_id = search_id(item.query) if isinstance(item, items.WebSearch) else item.id
                self.stored[call_id] += 1
                times = (done.started_at_ms or None, done.at_ms or None)
                self.ended.append(EndedItem(kept_item(item), *times, cut=done.cut))

    def finish(self) -> StoredItems:
        self._events(self.reader.finish())
        outputs: dict[int, Json] = {}
        for id, places in self.calls.items():
            given = self.outputs.get(id, [])
            outputs |= {place: given[n] if n < len(given) else None for n, place in enumerate(places)}
        # The first calls of an id are those of its items, and an item says more than its call.
        dropped = {place for id, places in self.calls.items() for place in places[: self.stored[id]]}
        ids, kept = ItemIds(), list[EndedItem]()
        for n, each in enumerate(self.ended):
            if n in dropped:
                continue
            item, cut = each.item, each.cut
            if n in outputs:  # its id stays free for the items that clients follow
                item = kept_item(ended_item(item, outputs[n]))
                cut = outputs[n] is None and not isinstance(item, items.WebSearch)
                item = replace(item, id=f"stored {item.id}")
            kept.append(replace(each, item=replace(item, id=ids.reserve(item.id)), cut=cut))
        return StoredItems(tuple(kept), _plan(self.plan), usage_in(self.counts))


def read_stored_items(path: Path, conversation_id: str, *, is_open: bool = False) -> StoredItems:
    """Return all items of a conversation, with what a crash left over in the journal. `is_open`: the conversation goes
    on, so its journal is not read. Blocks. Raises `RolloutUnreadable`.
    """
    with opened_whole(path) as fd:
        collector, end = _ItemCollector(TurnReader(conversation_id)), 0
        for raw in counting_lines(fd):
            end = raw.number + 1
            collector.take_line(raw.number, raw.data)
        leftover = NOTHING if is_open else leftover_of(path)
        calls = (stored_line("", item) for item in with_outputs(leftover.items, ()))
        for number, line in enumerate((*calls, *leftover.lines()), end):
            collector.take_line(number, line)
        return collector.finish()


def _plan(arguments: Json) -> PlanUpdated | None:
    raw = parse_object(arguments.encode("utf-8", "replace")) if isinstance(arguments, str) else None
    try:
        stored = None if raw is None else read(PlanUpdateEvent, raw)
    except ValidationError:
        return None
    return None if stored is None else PlanUpdated(stored.explanation, stored.plan)


CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
PLAN_TOOL: Final = "update_plan"

_EXIT: Final = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,6})$", re.MULTILINE)
_BODY: Final = re.compile(r"^Output:\n", re.MULTILINE)
_MCP_NAMES: Final = (re.compile(r"mcp__(.+?)__(.+)"), re.compile(r"(.+?)__(.+)"))


def item_of_call(payload: Mapping[str, Json], cwd: str) -> items.Item | None:
    """Return the item of a call as it began, with the id of the call; None if the call is not shown as an item."""
    if payload.get("type") == "web_search_call":
        action = payload.get("action")
        query = (text_of(action, "query") if isinstance(action, dict) else None) or ""
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


def search_id(query: str) -> str:
    """Return an id for a web search, made from its query: web searches are stored without their ids."""
    return f"search {query}"


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
