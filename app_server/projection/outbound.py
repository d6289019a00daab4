"""Events of the engine as notifications of the conversation API. Pure.

A text delta costs one dump and one concatenation: what is the same for all events of a kind is made once.
"""

from __future__ import annotations

import json

from protocol.events.msg import EventMsg
from protocol.methods import event_method


class EventProjection:
    """For the events of one conversation."""

    def __init__(self, conversation_id: str) -> None:
        self._tail = f',"conversationId":{json.dumps(conversation_id)}}}}}'.encode()
        self._heads: dict[tuple[str, str], bytes] = {}

    def line(self, id: str, msg: EventMsg) -> bytes:
        """The whole notification, without its line end."""
        head = self._heads.get((id, msg.type))
        if head is None:
            head = self._head(id, msg.type)
        return head + msg.to_json() + self._tail

    def _head(self, id: str, kind: str) -> bytes:
        if len(self._heads) > 256:  # ids change with every turn
            self._heads.clear()
        text = f'{{"method":{json.dumps(event_method(kind))},"params":{{"id":{json.dumps(id)},"msg":'
        head = self._heads[id, kind] = text.encode()
        return head
