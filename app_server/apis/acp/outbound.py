"""One session as the conversation shows it to its client: events become lines, questions become requests.

What is paced is sent later by `flush`; `listener` is called when turns begin and end, and when that is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from app_server.apis.acp import approvals
from app_server.apis.acp.client import AcpClient
from app_server.apis.acp.fold import SessionFold, SessionNews
from app_server.apis.acp.updates import LinePacer, SessionUpdates, Speaker
from app_server.conversations.adapter import ClientQuestion, ConversationStatus
from app_server.core.rollout.turn_fold import ItemIds
from protocol.acp.prompt import CANCEL_REQUEST
from protocol.engine.events import SessionEvent, TurnEnded, TurnStarted
from protocol.events.commands import ApplyPatchApprovalRequestEvent, ExecApprovalRequestEvent
from protocol.events.tools import ElicitationRequestEvent, McpListToolsResponseEvent
from protocol.jsonrpc import dump_notification


class SessionListener(Protocol):
    def turn_started(self, turn_id: str) -> None: ...

    def turn_ending(self) -> Sequence[bytes]:
        """Return updates that are sent as the last ones of the turn."""
        ...

    def turn_ended(self, turn_id: str, ended: TurnEnded) -> None: ...

    def answered(self, operation_id: str, answer: McpListToolsResponseEvent) -> None: ...

    def flush_at(self, due: float) -> None:
        """Learn that `flush` is needed then."""
        ...


class SessionAdapter:
    needs_identity = True

    def __init__(
        self,
        session_id: str,
        client: AcpClient,
        listener: SessionListener,
        clock: Callable[[], float],
        ids: ItemIds,
    ) -> None:
        """`clock` gives seconds; `ids` are those that stored items of the session have."""
        self._session_id, self._listener = session_id, listener
        self._pacer = LinePacer(session_id, clock)
        self._updates = SessionUpdates(self._pacer, client)
        self.news = SessionNews(self._updates, ids)
        self._fold = SessionFold(self._updates, self.news, ids)

    # --- what a live conversation asks of an API
    def lines(self, event: SessionEvent, *, subscribed: bool, raw: bool) -> Sequence[bytes]:
        inner, turn_id = event.event, event.turn_id
        self._fold.take(event)
        if isinstance(inner, TurnStarted) and turn_id is not None:
            self._listener.turn_started(turn_id)
        elif isinstance(inner, TurnEnded) and turn_id is not None:
            self._updates.finish()
            for update in self._listener.turn_ending():
                self._pacer.add(update)
            self._listener.turn_ended(turn_id, inner)
        elif isinstance(inner, McpListToolsResponseEvent):
            self._listener.answered(event.operation_id, inner)
        lines = self._taken()
        return lines if subscribed else ()

    def question(self, event: SessionEvent) -> ClientQuestion | None:
        match event.event:
            case ExecApprovalRequestEvent(call_id=id) | ApplyPatchApprovalRequestEvent(call_id=id):
                call = self._fold.call_asked_about(event.turn_id, id)
            case ElicitationRequestEvent(server_name=server):
                call = self._fold.call_of_server(server)
            case _:
                return None
        return approvals.question(self._session_id, event, call)

    def question_closed(self, request_id: int, *, answered: bool) -> Sequence[bytes]:
        if answered:
            return ()
        return (dump_notification(CANCEL_REQUEST.method, b'{"requestId":%d}' % request_id),)

    def status_changed(self, status: ConversationStatus) -> Sequence[bytes]:
        return ()

    def continues_elsewhere(self) -> None:
        """Do nothing: the end of a session is not shown."""

    # --- lines of its own
    def send(self, update: bytes) -> list[bytes]:
        """Return one update as a line, behind the text that waits."""
        self._pacer.add(update)
        return self._pacer.taken()

    def send_message(self, message_id: str, text: str) -> list[bytes]:
        """Return a whole message of the agent that no model wrote."""
        self._pacer.whole_text(Speaker.AGENT, message_id, text)
        return self._pacer.taken()

    def flush(self) -> list[bytes]:
        """Return the lines that have become due."""
        self._updates.flush()
        return self._taken()

    def _taken(self) -> list[bytes]:
        if (due := self._updates.due) is not None:
            self._listener.flush_at(due)
        return self._pacer.taken()
