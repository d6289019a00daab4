"""Events of the engine as notifications of the conversation API. Pure.

A text delta costs one dump and one concatenation: what is the same for all events of a kind is made once.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence

from app_server.apis.v1 import approvals
from app_server.conversations.adapter import ClientQuestion
from protocol.events.msg import EventMsg
from protocol.events.notices import ShutdownCompleteEvent
from protocol.events.turn import RawResponseItemEvent
from protocol.v1.methods import event_method

MAX_HEADS = 256


def operation_numbers() -> Callable[[], str]:
    """Ids of the operations of a conversation that this API opened: they count from "0", after each resume anew."""
    return map(str, itertools.count()).__next__


class ConversationAdapter:
    """One conversation in the words of this API."""

    def __init__(self, conversation_id: str) -> None:
        self._id = conversation_id
        self._tail = f',"conversationId":{json.dumps(conversation_id)}}}}}'.encode()
        self._heads: dict[tuple[str, str], bytes] = {}
        self._hides_shutdown = False

    def lines(self, id: str, event: EventMsg, *, raw: bool) -> Sequence[bytes]:
        if isinstance(event, RawResponseItemEvent) and not raw:
            return ()
        if self._hides_shutdown and isinstance(event, ShutdownCompleteEvent):
            return ()
        return (self.line(id, event),)

    def question(self, id: str, event: EventMsg) -> ClientQuestion | None:
        return approvals.question(self._id, id, event)

    def continues_elsewhere(self) -> None:
        self._hides_shutdown = True

    def line(self, id: str, event: EventMsg) -> bytes:
        """The whole notification, without its line end."""
        head = self._heads.get((id, event.type))
        if head is None:
            head = self._head(id, event.type)
        return head + event.to_json() + self._tail

    def _head(self, id: str, kind: str) -> bytes:
        if len(self._heads) > MAX_HEADS:  # ids change with every turn
            self._heads.clear()
        text = f'{{"method":{json.dumps(event_method(kind))},"params":{{"id":{json.dumps(id)},"msg":'
        head = self._heads[id, kind] = text.encode()
        return head
