"""One turn from an editor's view: shows each event, answers approval requests, and records both.

`expectations` checks the record.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import anyio
import msgspec
from msgspec import Struct

from app_server.client import approval_requests
from app_server.client.answering import ApprovalAnswer
from app_server.client.event_stream import TurnStream
from app_server.client.events import ThreadEvent
from app_server.client.turn_handle import TurnResult
from app_server.demo.screen import DemoStopped, Person, Screen
from protocol.v2 import item_events
from protocol.v2 import items as wire
from protocol.v2.item_parts import PatchApplyStatus
from protocol.v2.server import ErrorNotification, WarningNotification
from protocol.v2.thread import ThreadTokenUsage, ThreadTokenUsageUpdatedNotification
from protocol.v2.turn import TurnDiffUpdatedNotification

LIMIT = 60.0
"""Seconds that a turn may take between two approvals; the person may take longer."""

Before = Callable[[approval_requests.ApprovalRequest], None]
"""Called while an approval request is open."""


class PlayedTurn(Struct):
    """Record of a turn."""

    deltas: list[str] = msgspec.field(default_factory=list)
    asked: dict[str, approval_requests.ApprovalRequest] = msgspec.field(default_factory=dict)
    """The approval requests by item."""
    approved: dict[str, bool] = msgspec.field(default_factory=dict)
    ended: dict[str, wire.ThreadItem] = msgspec.field(default_factory=dict)
    """How items ended, by their ids."""
    diff: str = ""
    usage: ThreadTokenUsage | None = None
    result: TurnResult[None] | None = None

    @property
    def messages(self) -> list[str]:
        return [item.text for item in self.ended.values() if isinstance(item, wire.AgentMessageThreadItem)]

    def command(self, id: str) -> wire.CommandExecutionThreadItem | None:
        item = self.ended.get(id)
        return item if isinstance(item, wire.CommandExecutionThreadItem) else None

    def patch(self, id: str) -> wire.FileChangeThreadItem | None:
        item = self.ended.get(id)
        return item if isinstance(item, wire.FileChangeThreadItem) else None


class TurnRecorder:
    """Records one turn until its end."""

    def __init__(self, screen: Screen, person: Person, before_answer: Before) -> None:
        self._screen, self._person, self._before_answer = screen, person, before_answer
        self._seen = PlayedTurn()
        self._stream: TurnStream | None = None
        self._limit = anyio.CancelScope()

    async def record(self, stream: TurnStream) -> PlayedTurn:
        """Raises DemoStopped if the turn does not complete or takes too long."""
        self._stream = stream
        with anyio.move_on_after(LIMIT) as self._limit:
            async for event in stream:
                self._show(event)
            self._seen.result = result = await stream.result()
            if not result.completed:
                reason = result.error.message if result.error else "no reason was given"
                raise DemoStopped(f"the turn was {result.status}: {reason}")
            return self._seen
        raise DemoStopped(f"the turn did not end within {LIMIT:g} s")

    async def decide(self, request: approval_requests.ApprovalRequest) -> ApprovalAnswer:
        """Handle the turn's approval requests."""
        if self._stream is not None:
            await self._stream.read_up()  # so that the question comes after what led to it
        match request:
            case approval_requests.CommandApprovalRequest():
                question = "May this command run?"
            case approval_requests.PatchApprovalRequest():
                for change in request.changes:
                    self._screen.note("patch", change.path)
                    self._screen.diff(change.diff)
                question = "May this change be made?"
            case _:
                raise DemoStopped(
                    f"the server sent a {type(request).__name__}, which the demo does not support"
                )
        self._before_answer(request)
        yes = await self._person.decide(question)
        item = request.params.item_id
        self._seen.asked[item], self._seen.approved[item] = request, yes
        self._limit.deadline = anyio.current_time() + LIMIT
        return yes

    def _show(self, event: ThreadEvent) -> None:
        seen, screen = self._seen, self._screen
        match event:
            case item_events.AgentMessageDeltaNotification(delta=text):
                seen.deltas.append(text)
                screen.word(text)
            case item_events.ItemStartedNotification(item=wire.CommandExecutionThreadItem(command=command)):
                screen.command(shlex.split(command))
            case item_events.ItemCompletedNotification(item=item):
                seen.ended[item.id] = item
                self._item(item)
            case TurnDiffUpdatedNotification(diff=diff):
                seen.diff = diff
            case ThreadTokenUsageUpdatedNotification(token_usage=usage):
                seen.usage = usage
            case WarningNotification(message=text):
                screen.warning(text)
            case ErrorNotification(error=error):
                screen.warning(error.message)
            case _:
                pass

    def _item(self, item: wire.ThreadItem) -> None:
        match item:
            case wire.CommandExecutionThreadItem():
                ending = "was not run" if item.exit_code is None else f"exit code {item.exit_code}"
                self._screen.output(item.aggregated_output or "", ending)
            case wire.FileChangeThreadItem():
                applied = item.status is PatchApplyStatus.COMPLETED
                self._screen.output("", "applied" if applied else "not applied")
            case _:
                pass
