"""Conversion of the events of one session into messages for its client; questions become requests. Paced messages are
sent later by `flush`.

Stored turns become the same messages as when they were live, by the same reducer: each tool call is sent once, in its
final state; questions and queued notices are not sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from app_server.server.apis.acp import permission_requests
from app_server.server.apis.acp.acp_client import AcpClient
from app_server.server.apis.acp.event_reducer import SessionNotices, SessionReducer, call_of, context_use
from app_server.server.apis.acp.updates import SessionUpdates, Speaker
from app_server.server.conversations.adapter import (
    ConversationStatus,
    Message,
    OutboundMessage,
    OutboundRequest,
)
from app_server.server.conversations.live_turn import LiveTurn
from app_server_protocol.acp.sessions import CANCEL_REQUEST
from app_server_protocol.acp.updates import SessionUpdate
from app_server_protocol.engine.events import EndedItem, ItemCompleted, ItemStarted, SessionEvent, TurnEnded
from app_server_protocol.engine.items import UserMessage
from app_server_protocol.engine.notices import PlanUpdated
from app_server_protocol.engine.questions import (
    CommandApprovalQuestion,
    ElicitationQuestion,
    McpCallQuestion,
    PatchApprovalQuestion,
    Question,
    ToolCallQuestion,
    UserInputQuestion,
)
from app_server_protocol.engine.token_usage import TokenUsageInfo
from app_server_protocol.event_items import ImageInput, LocalImageInput, MentionInput, SkillInput, TextInput
from app_server_protocol.jsonrpc import dump_notification


class SessionAdapter:
    needs_identity = True
    outlasts_clients = runs_tools = False

    def __init__(
        self,
        session_id: str,
        client: AcpClient,
        *,
        observe: Callable[[SessionEvent], Iterable[SessionUpdate]],
        flush_at: Callable[[float], None],
        clock: Callable[[], float],
        is_foreign: Callable[[str | None], bool] = lambda turn_id: False,
    ) -> None:
        """Begin without messages. `observe` receives each event, and returns updates to be sent after it. `flush_at`
        receives the time, by `clock` in seconds, at which `flush` is needed. The user's messages are shown in a turn
        that `is_foreign`.
        """
        self._session_id, self._observe, self._flush_at = session_id, observe, flush_at
        self._is_foreign = is_foreign
        self._updates = SessionUpdates(session_id, client, clock)
        self.notices = SessionNotices(self._updates)
        self._reducer = SessionReducer(self._updates, self.notices)

    # --- the adapter of a live conversation
    def messages(self, event: SessionEvent, live: LiveTurn, *, raw: bool) -> Sequence[Message]:
        self._reducer.take(event, live)
        match event.event:
            case ItemCompleted(item=UserMessage() as said) if self._is_foreign(event.turn_id):
                user_message(said, self._updates)
            case _:
                pass
        if isinstance(event.event, TurnEnded):
            self._updates.finish()
        for update in self._observe(event):
            self._updates.add(update)
        return self._taken()

    def snapshot(self, live: LiveTurn) -> Sequence[Message]:
        self._reducer.joined(live)
        return self._taken()

    def question(self, asking: Question, turn_id: str | None, live: LiveTurn) -> OutboundRequest | None:
        match asking:
            case (
                CommandApprovalQuestion(call_id=id)
                | PatchApprovalQuestion(call_id=id)
                | McpCallQuestion(call_id=id)
            ):
                item = live.latest(turn_id, id)
                call = None if item is None else call_of(item)
            case ElicitationQuestion():
                call = None
            case ToolCallQuestion() | UserInputQuestion():
                return None
        return permission_requests.question(self._session_id, asking, call)

    def question_closed(
        self, request_id: int, *, answered: bool, elsewhere: bool = False
    ) -> Sequence[OutboundMessage]:
        if answered:
            return ()
        return (OutboundMessage(dump_notification(CANCEL_REQUEST.method, b'{"requestId":%d}' % request_id)),)

    def status_changed(self, status: ConversationStatus) -> Sequence[OutboundMessage]:
        return ()

    def on_session_replaced(self, *, continues: bool) -> None:
        """Do nothing: the end of a session is not shown."""

    def on_reverted(self) -> None:
        """Return no lines: the client loads the session again, and is shown the turns that are left."""

    # --- lines of its own
    def send(self, update: SessionUpdate) -> list[Message]:
        """Return one update as a line, after the text that waits."""
        self._updates.add(update)
        return self._updates.taken()

    def send_message(self, message_id: str, text: str) -> list[Message]:
        """Return a whole message of the agent that no model wrote."""
        self._updates.whole_text(Speaker.AGENT, message_id, text)
        return self._updates.taken()

    def flush(self) -> list[Message]:
        """Return the messages that are due."""
        self._updates.flush()
        return self._taken()

    def _taken(self) -> list[Message]:
        if (due := self._updates.due) is not None:
            self._flush_at(due)
        return self._updates.taken()


_DATA_URL: Final = r"(?s)data:(image/[\w.+-]+);base64,(.*)"


class Replay:
    """The messages of a session that is loaded."""

    def __init__(self, session_id: str, client: AcpClient) -> None:
        self._updates, self._live = SessionUpdates(session_id, client, float, live=False), LiveTurn()
        self._reducer = SessionReducer(self._updates, SessionNotices(self._updates))
        self._shown: set[str] = set()
        """Ids of the items that were shown."""

    def items(self, ended: Iterable[EndedItem]) -> Iterator[Message]:
        """Yield the messages of items, in their order; those of each item once."""
        for each in ended:
            if each.item.id not in self._shown:
                self._shown.add(each.item.id)
                self._show(each)
                yield from self._updates.taken()

    def states(self, plan: PlanUpdated | None, usage: TokenUsageInfo | None) -> Sequence[Message]:
        """Return the final plan and the final usage, as far as they are known."""
        if plan is not None:
            self._updates.plan(plan.plan)
        if usage is not None:
            self._updates.usage(*context_use(usage, None))
        return self._updates.taken()

    def _show(self, ended: EndedItem) -> None:
        for inner in (ItemStarted(ended.item, 0), ItemCompleted(ended.item, 0, 0, cut=ended.cut)):
            for event in self._live.take(SessionEvent("", "", inner)):
                self._reducer.take(event, self._live)
        if isinstance(ended.item, UserMessage):
            user_message(ended.item, self._updates)


def user_message(item: UserMessage, updates: SessionUpdates) -> None:
    """Write the user's message, which the client that sent it knows while the turn is live."""

    def link(name: str, uri: str) -> None:
        updates.block(Speaker.USER, item.id, {"type": "resource_link", "name": name, "uri": uri})

    for part in item.content if item.sent is None else item.sent:
        match part:
            case TextInput(text=text):
                if text:
                    updates.whole_text(Speaker.USER, item.id, text)
            case ImageInput():
                image = re.fullmatch(_DATA_URL, part.image_url)
                if image is not None:
                    block = {"type": "image", "mimeType": image[1], "data": image[2]}
                    updates.block(Speaker.USER, item.id, block)
            case LocalImageInput():
                link(part.path, f"file://{part.path}")
            case SkillInput() | MentionInput():
                link(part.name, part.path)
