"""What `app-server exec` prints: the final message alone on stdout and what happens on stderr, or all notifications as
lines of JSON.
"""

from __future__ import annotations

import json
from typing import TextIO, TypeAlias

from app_server.client.command_line import printable
from app_server.client.events import RawNotification, ServerEvent, method_of
from app_server.client.turn_handle import TurnResult
from protocol.policy import kebab
from protocol.structs import Json, Struct
from protocol.v2 import items as wire
from protocol.v2.item_events import ItemCompletedNotification, ItemStartedNotification
from protocol.v2.server import ErrorNotification
from protocol.v2.thread_open import OpenedThread

OUTPUT_LINES = 10
"""Of a command's output so many lines are shown; the model has all of them."""


class JsonReport:
    """`{"method", "params"}`, as the thread API has them; their shapes are in schema/v2."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout

    def opened(self, thread: OpenedThread) -> None:
        self._write("thread/started", {"thread": thread.thread.to_value()})

    def event(self, event: ServerEvent) -> None:
        match event:
            case RawNotification():
                self._write(event.method, event.params)
            case Struct() if (method := method_of(type(event))) is not None:
                self._write(method, event.to_value())
            case _:
                pass  # deltas that were left out; the items are whole

    def warning(self, text: str, event: ServerEvent) -> None:
        self.event(event)

    def ended(self, result: TurnResult[None]) -> None:
        """Print nothing: `turn/completed` was the last line."""

    def problem(self, text: str) -> None:
        self._write("error", {"error": {"message": text}, "willRetry": False})

    def _write(self, method: str, params: Json) -> None:
        self._stdout.write(json.dumps({"method": method, "params": params}, separators=(",", ":")) + "\n")
        self._stdout.flush()


class TextReport:
    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        self._stdout, self._stderr = stdout, stderr

    def opened(self, thread: OpenedThread) -> None:
        rights = f"sandbox {kebab(thread.sandbox.type)}, approvals {thread.approval_policy}"
        self._print_line(f"thread {thread.thread.id}: {thread.model} in {thread.cwd}, {rights}")

    def event(self, event: ServerEvent) -> None:
        match event:
            case ItemStartedNotification(item=wire.CommandExecutionThreadItem() as item):
                self._print_line(f"$ {item.command}")
            case ItemCompletedNotification(item=item):
                self._item(item)
            case ErrorNotification(error=error, will_retry=True):
                self._print_line(f"retrying: {error.message}")
            case _:
                pass

    def warning(self, text: str, event: ServerEvent) -> None:
        self._print_line(f"warning: {text}")

    def ended(self, result: TurnResult[None]) -> None:
        if result.error is not None:
            self._print_line(f"error: {result.error.message}")
        elif not result.completed:
            self._print_line(f"the turn was {result.status}")
        if result.usage is not None:
            self._print_line(f"{result.usage.total_tokens} tokens")
        if result.final_message is not None:
            message = printable(result.final_message) if self._stdout.isatty() else result.final_message
            self._stdout.write(message.rstrip("\n") + "\n")
            self._stdout.flush()

    def problem(self, text: str) -> None:
        self._print_line(f"error: {text}")

    def _item(self, item: wire.ThreadItem) -> None:
        match item:
            case wire.CommandExecutionThreadItem():
                lines = (item.aggregated_output or "").splitlines()
                for line in lines[-OUTPUT_LINES:]:
                    self._print_line(f"  {line}")
                self._print_line(
                    f"  {item.status}" + ("" if item.exit_code is None else f", exit {item.exit_code}")
                )
            case wire.FileChangeThreadItem():
                for change in item.changes:
                    self._print_line(f"{change.kind.type} {change.path}: {item.status}")
            case wire.McpToolCallThreadItem():
                self._print_line(f"{item.server}.{item.tool}: {item.status}")
            case wire.AgentMessageThreadItem() if item.phase is not None:
                self._print_line(item.text)
            case _:
                pass

    def _print_line(self, line: str) -> None:
        print(printable(line), file=self._stderr)


TurnReport: TypeAlias = JsonReport | TextReport
