"""The lines of `app-server exec --json`: events in the format of `codex exec --json`, which the SDKs of codex and many
scripts read.

A thread starts once, a turn starts and ends once, and an item has one id from its start to its completion. Messages and
reasoning are written when they are complete. Warnings are items of the type `error`; the turn continues after them.
`ExecEvents` converts notifications of the thread API and is pure; `EventReport` writes the events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from app_server.client.command_line import EarlyWarnings
from app_server.client.events import ServerEvent
from app_server.client.turn_handle import TurnResult
from app_server_protocol.encoding import Json
from app_server_protocol.v2 import items as wire
from app_server_protocol.v2.items import ItemCompletedNotification, ItemStartedNotification
from app_server_protocol.v2.server import ErrorNotification
from app_server_protocol.v2.thread import TokenUsageBreakdown
from app_server_protocol.v2.thread_open import OpenedThread
from app_server_protocol.v2.turn import (
    TurnPlanStepStatus,
    TurnPlanUpdatedNotification,
    TurnStartedNotification,
)

STATUSES: Final = {
    "inProgress": "in_progress",
    "completed": "completed",
    "failed": "failed",
    "declined": "failed",
}
"""Statuses of items, by those of the thread API. The SDKs do not know declined items."""

STARTED, UPDATED, COMPLETED = "item.started", "item.updated", "item.completed"

NO_USAGE: Final = TokenUsageBreakdown(**dict.fromkeys(TokenUsageBreakdown.__struct_fields__, 0))


class ExecEvents:
    """Converts the events of one thread and its one turn."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        """Ids of items in these events, by their ids in the thread API."""
        self._count = 0
        self._plan: Json = None
        """The to-do list of the turn. None if there is none."""

    def started(self, thread_id: str) -> Json:
        return {"type": "thread.started", "thread_id": thread_id}

    def warning(self, text: str) -> Json:
        return {"type": COMPLETED, "item": {"id": self._new_id(), "type": "error", "message": text}}

    def error(self, message: str) -> Json:
        return {"type": "error", "message": message}

    def of(self, event: ServerEvent) -> Iterator[Json]:
        """Yield the events for a notification. There are none for deltas and for notifications that the format does not
        have.
        """
        match event:
            case TurnStartedNotification():
                yield {"type": "turn.started"}
            case ItemStartedNotification(item=item):
                if is_watched(item) and (fields := fields_of(item)) is not None:
                    yield {"type": STARTED, "item": {"id": self._id(item.id), **fields}}
            case ItemCompletedNotification(item=item):
                if (fields := fields_of(item)) is not None:
                    yield {"type": COMPLETED, "item": {"id": self._id(item.id), **fields}}
            case TurnPlanUpdatedNotification():
                yield self._planned(event)
            case ErrorNotification(error=error):
                yield self.error(error.message)
            case _:
                pass

    def ended(self, usage: TokenUsageBreakdown | None, failure: str | None) -> Iterator[Json]:
        """Yield the end of the turn. `failure` is the reason why it did not complete; None if it completed."""
        if self._plan is not None:
            yield {"type": COMPLETED, "item": self._plan}
        if failure is not None:
            yield {"type": "turn.failed", "error": {"message": failure}}
        else:
            yield {"type": "turn.completed", "usage": usage_fields(usage or NO_USAGE)}

    def _planned(self, event: TurnPlanUpdatedNotification) -> Json:
        steps = [
            {"text": each.step, "completed": each.status is TurnPlanStepStatus.COMPLETED}
            for each in event.plan
        ]
        kind = STARTED if self._plan is None else UPDATED
        id = self._new_id() if self._plan is None else self._plan["id"]
        self._plan = {"id": id, "type": "todo_list", "items": steps}
        return {"type": kind, "item": self._plan}

    def _id(self, id: str) -> str:
        if id not in self._ids:
            self._ids[id] = self._new_id()
        return self._ids[id]

    def _new_id(self) -> str:
        self._count += 1
        return f"item_{self._count - 1}"


def is_watched(item: wire.ThreadItem) -> bool:
    """Return whether the start of an item is reported. Other items are reported when they are complete."""
    return isinstance(
        item,
        wire.CommandExecutionThreadItem
        | wire.FileChangeThreadItem
        | wire.McpToolCallThreadItem
        | wire.WebSearchThreadItem,
    )


def fields_of(item: wire.ThreadItem) -> Json:
    """Return the fields of an item without its id; None if the format has no such item, or if the item is empty."""
    match item:
        case wire.AgentMessageThreadItem():
            return {"type": "agent_message", "text": item.text}
        case wire.ReasoningThreadItem():
            text = "\n\n".join(item.summary or item.content)
            return {"type": "reasoning", "text": text} if text.strip() else None
        case wire.CommandExecutionThreadItem():
            return {
                "type": "command_execution",
                "command": item.command,
                "aggregated_output": item.aggregated_output or "",
                "exit_code": item.exit_code,
                "status": STATUSES[item.status],
            }
        case wire.FileChangeThreadItem():
            return {
                "type": "file_change",
                "changes": [{"path": each.path, "kind": each.kind.type} for each in item.changes],
                "status": STATUSES[item.status],
            }
        case wire.McpToolCallThreadItem():
            return _tool_call(item)
        case wire.WebSearchThreadItem():
            action = {"type": "other"} if item.action is None else item.action.to_value()
            return {"type": "web_search", "query": item.query, "action": action}
        case _:
            return None


def _tool_call(item: wire.McpToolCallThreadItem) -> Json:
    result: Json = None
    if item.result is not None:
        result = {"content": item.result.content, "structured_content": item.result.structured_content}
        if item.result.meta is not None:
            result["_meta"] = item.result.meta
    return {
        "type": "mcp_tool_call",
        "server": item.server,
        "tool": item.tool,
        "arguments": item.arguments,
        "result": result,
        "error": None if item.error is None else {"message": item.error.message},
        "status": STATUSES[item.status],
    }


def usage_fields(usage: TokenUsageBreakdown) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_input_tokens": usage.cache_write_input_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_output_tokens": usage.reasoning_output_tokens,
    }


class EventReport:
    """Writes the events. The thread's start is the first one; warnings that arrive before it are written after it."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout
        self._events = ExecEvents()
        self._warnings = EarlyWarnings(lambda text: self._write(self._events.warning(text)))

    def opened(self, thread: OpenedThread) -> None:
        self._write(self._events.started(thread.thread.id))
        self._warnings.release()

    def event(self, event: ServerEvent) -> None:
        for each in self._events.of(event):
            self._write(each)

    def warning(self, text: str, event: ServerEvent) -> None:
        self._warnings.add(text)

    def not_opened(self, reason: str) -> None:
        self._warnings.release(reason)

    def retrying(self, why: str) -> None:
        self._write(self._events.error(why))

    def ended(self, result: TurnResult[None], problems: Sequence[str]) -> None:
        """Write the end of the turn. The turn counts as failed if there is a problem."""
        reasons = [result.error.message] if result.error else []
        if not reasons and not problems and not result.completed:
            reasons = [f"the turn was {result.status}"]
        failure = "; ".join([*reasons, *problems]) or None
        for each in self._events.ended(result.usage, failure):
            self._write(each)

    def copied(self, thread: OpenedThread) -> None:
        """Write nothing: `thread.started` was the only line."""

    def _write(self, event: Json) -> None:
        self._stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
        self._stdout.flush()
