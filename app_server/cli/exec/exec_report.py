"""The output of `app-server exec`, in three formats.

It is the final message alone on stdout and progress on stderr; or all notifications as lines of JSON; or events in the
format of codex (`exec_events`). On a terminal the message is shown as it arrives. A command has one line: it begins
with the command, and its exit status and duration are added at the end. If other output was printed in between, the
whole line is printed again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TextIO, TypeAlias

from app_server.cli.exec.exec_events import EventReport
from app_server.client.command_line import STEP_MARKS, EarlyWarnings, printable
from app_server.client.events import RawNotification, ServerEvent, hook_warning, method_of
from app_server.client.prices import ModelPrice
from app_server.client.turn_handle import TurnResult
from app_server_protocol.encoding import Json
from app_server_protocol.outgoing import Struct
from app_server_protocol.policy import kebab
from app_server_protocol.v2 import items as wire
from app_server_protocol.v2.hook_runs import HookCompletedNotification
from app_server_protocol.v2.items import (
    AgentMessageDeltaNotification,
    ItemCompletedNotification,
    ItemStartedNotification,
)
from app_server_protocol.v2.server import ErrorNotification
from app_server_protocol.v2.thread import TokenUsageBreakdown
from app_server_protocol.v2.thread_open import OpenedThread
from app_server_protocol.v2.turn import TurnPlanUpdatedNotification

OUTPUT_LINES = 10
"""Maximum number of lines that are shown of a command's output; the model receives all of them."""


class NotificationReport:
    """Report of `--notifications`: lines with `{"method", "params"}`, as in the thread API; their shapes are in
    schema/v2.
    """

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
                pass  # dropped deltas; the items are complete

    def warning(self, text: str, event: ServerEvent) -> None:
        self.event(event)

    def not_opened(self, reason: str) -> None:
        """Write nothing: warnings were written when they arrived."""

    def retrying(self, why: str) -> None:
        self._write("error", {"error": {"message": why}, "willRetry": True})

    def ended(self, result: TurnResult[None], problems: Sequence[str]) -> None:
        """Write the problems outside of the turn, whose `turn/completed` was the last line."""
        for text in problems:
            self._write("error", {"error": {"message": text}, "willRetry": False})

    def copied(self, thread: OpenedThread) -> None:
        """Write nothing: `thread/started` was the only line."""

    def _write(self, method: str, params: Json) -> None:
        self._stdout.write(json.dumps({"method": method, "params": params}, separators=(",", ":")) + "\n")
        self._stdout.flush()


class TextReport:
    """Report with lines for people and for the logs of CI."""

    def __init__(
        self, stdout: TextIO, stderr: TextIO, prices: Mapping[str, ModelPrice] | None = None
    ) -> None:
        self._stdout, self._stderr, self._prices = stdout, stderr, prices or {}
        self._live = next((stream for stream in (stderr, stdout) if stream.isatty()), None)
        self._model = ""
        self._unfinished: str | None = None
        """Id of the item whose line is not ended yet. None if there is none."""
        self._message: wire.AgentMessageThreadItem | None = None
        """The last message. It is not known yet whether it is the final one."""
        self._warnings = EarlyWarnings(lambda text: self._line(f"warning: {text}"))
        self._streamed: set[str] = set()
        """Ids of messages that were shown as they arrived."""

    def opened(self, thread: OpenedThread) -> None:
        self._warnings.release()
        self._model = thread.model
        rights = f"sandbox {kebab(thread.sandbox.type)}, approvals {thread.approval_policy}"
        self._line(f"thread {thread.thread.id}: {thread.model} in {thread.cwd}, {rights}")

    def event(self, event: ServerEvent) -> None:
        match event:
            case AgentMessageDeltaNotification(item_id=id, delta=delta):
                self._stream(id, delta)
            case ItemStartedNotification(item=wire.CommandExecutionThreadItem() as item):
                self._begin_line(item.id, f"$ {item.command}")
            case ItemCompletedNotification(item=item):
                self._item(item)
            case TurnPlanUpdatedNotification(plan=plan):
                self._line("plan:")
                for step in plan:
                    self._line(f"  {STEP_MARKS[step.status]} {step.step}")
            case ErrorNotification(error=error, will_retry=True):
                self.retrying(error.message)
            case HookCompletedNotification(run=run) if (text := hook_warning(run)) is not None:
                self._line(f"warning: {text}")
            case _:
                pass

    def warning(self, text: str, event: ServerEvent) -> None:
        self._warnings.add(text)

    def not_opened(self, reason: str) -> None:
        self._warnings.release(reason)

    def retrying(self, why: str) -> None:
        self._line(f"retrying: {why}")

    def ended(self, result: TurnResult[None], problems: Sequence[str]) -> None:
        final = result.final_message
        if self._message is not None and self._message.text == final:
            shown = self._message.id in self._streamed and self._stdout.isatty()
            self._message = None
        else:
            shown = False
        if result.error is not None:
            self._line(f"error: {result.error.message}")
        elif not result.completed:
            self._line(f"the turn was {result.status}")
        if result.usage is not None:
            self._line(self._spent(result.usage))
        if final is not None and not shown:
            self._end_line()
            message = printable(final) if self._stdout.isatty() else final
            self._stdout.write(message.rstrip("\n") + "\n")
            self._stdout.flush()
        for text in problems:
            self._line(f"error: {text}")

    def copied(self, thread: OpenedThread) -> None:
        """Print the id of a thread that was copied without a turn."""
        self._stdout.write(f"{thread.thread.id}\n")
        self._stdout.flush()

    def _item(self, item: wire.ThreadItem) -> None:
        match item:
            case wire.CommandExecutionThreadItem():
                self._command(item)
            case wire.FileChangeThreadItem():
                for change in item.changes:
                    self._line(f"{change.kind.type} {change.path}: {item.status}")
            case wire.McpToolCallThreadItem():
                why = f": {item.error.message}" if item.error is not None else ""
                self._line(f"{item.server}.{item.tool}: {item.status}{why}{_took(item.duration_ms)}")
            case wire.AgentMessageThreadItem():
                self._earlier_message()
                self._message = item
            case _:
                pass

    def _command(self, item: wire.CommandExecutionThreadItem) -> None:
        """End the line of a command, and show the last lines of its output below it."""
        ended = item.status if item.exit_code is None else f"exit {item.exit_code}"
        rest = f" -> {ended}{_took(item.duration_ms)}"
        if self._unfinished == item.id:
            self._stderr.write(rest)
            self._end_line()
        else:
            self._line(f"$ {item.command}{rest}")
        for line in (item.aggregated_output or "").splitlines()[-OUTPUT_LINES:]:
            self._line(f"  {line}")

    def _spent(self, usage: TokenUsageBreakdown) -> str:
        cached = f" ({usage.cached_input_tokens} cached)" if usage.cached_input_tokens else ""
        price = self._prices.get(self._model)
        cost = "" if price is None else f", cost {price.cost(usage):.4f}"
        return (
            f"{usage.total_tokens} tokens: {usage.input_tokens} in{cached}, {usage.output_tokens} out{cost}"
        )

    # --- lines
    def _stream(self, item_id: str, delta: str) -> None:
        """Show a piece of a message on the terminal."""
        if self._live is None:
            return
        if self._unfinished != item_id:
            self._end_line()
            self._earlier_message()
        self._live.write(printable(delta))
        self._live.flush()
        self._streamed.add(item_id)
        self._unfinished = item_id

    def _earlier_message(self) -> None:
        """Print the last message so far, which is not the final one, unless it was shown as it arrived."""
        message, self._message = self._message, None
        if message is not None and message.id not in self._streamed:
            self._line(message.text.strip("\n"))

    def _begin_line(self, item_id: str, text: str) -> None:
        self._end_line()
        self._earlier_message()
        self._stderr.write(printable(text))
        self._stderr.flush()
        self._unfinished = item_id

    def _end_line(self) -> None:
        if self._unfinished is not None:
            stream = self._live if self._unfinished in self._streamed else self._stderr
            print(file=stream, flush=True)
            self._unfinished = None

    def _line(self, text: str) -> None:
        self._end_line()
        self._earlier_message()
        print(printable(text), file=self._stderr)


def _took(milliseconds: int | None) -> str:
    """Return the duration as text; empty if it is not known."""
    if milliseconds is None:
        return ""
    return f" in {milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f" in {milliseconds} ms"


TurnReport: TypeAlias = EventReport | NotificationReport | TextReport
