"""Pieces of text while the model writes, one for every few characters.

Pieces of an item come after its `item_started` and before its `item_completed`, in order; joined they are
the item's text, unless a `stream_error` made them void.
"""

from json.encoder import encode_basestring as quoted
from typing import Literal

from protocol.base import EngineModel


class AgentMessageDeltaEvent(EngineModel):
    """The next piece of the assistant's message. After the item's `item_started`, before its
    `item_completed`; each follows the `agent_message_content_delta` with the same text."""

    type: Literal["agent_message_delta"] = "agent_message_delta"
    delta: str

    def to_json(self) -> bytes:
        return _plain_delta(self, self.type, self.delta)


class AgentMessageContentDeltaEvent(EngineModel):
    """The next piece of the assistant's message, with the item that it belongs to."""

    type: Literal["agent_message_content_delta"] = "agent_message_content_delta"
    thread_id: str
    turn_id: str
    item_id: str
    delta: str

    def to_json(self) -> bytes:
        return _item_delta(self, self.type, (self.thread_id, self.turn_id, self.item_id), self.delta)


class AgentReasoningDeltaEvent(EngineModel):
    """The next piece of the reasoning summary. Each follows the `reasoning_content_delta` with the same
    text."""

    type: Literal["agent_reasoning_delta"] = "agent_reasoning_delta"
    delta: str

    def to_json(self) -> bytes:
        return _plain_delta(self, self.type, self.delta)


class ReasoningContentDeltaEvent(EngineModel):
    """The next piece of the reasoning summary, with the item that it belongs to."""

    type: Literal["reasoning_content_delta"] = "reasoning_content_delta"
    thread_id: str
    turn_id: str
    item_id: str
    delta: str

    def to_json(self) -> bytes:
        return _item_delta(self, self.type, (self.thread_id, self.turn_id, self.item_id), self.delta)


class AgentReasoningRawContentDeltaEvent(EngineModel):
    """The next piece of the raw reasoning, where it is shown at all. Each follows the
    `reasoning_raw_content_delta` with the same text."""

    type: Literal["agent_reasoning_raw_content_delta"] = "agent_reasoning_raw_content_delta"
    delta: str

    def to_json(self) -> bytes:
        return _plain_delta(self, self.type, self.delta)


class ReasoningRawContentDeltaEvent(EngineModel):
    """The next piece of the raw reasoning, with the item that it belongs to."""

    type: Literal["reasoning_raw_content_delta"] = "reasoning_raw_content_delta"
    thread_id: str
    turn_id: str
    item_id: str
    delta: str

    def to_json(self) -> bytes:
        return _item_delta(self, self.type, (self.thread_id, self.turn_id, self.item_id), self.delta)


def _plain_delta(event: EngineModel, kind: str, delta: str) -> bytes:
    """The hot path of every turn, hence by hand: a third of the time that the model's serializer takes."""
    try:
        return f'{{"type":"{kind}","delta":{quoted(delta)}}}'.encode()
    except UnicodeEncodeError:
        return event.escaped_json()


def _item_delta(event: EngineModel, kind: str, ids: tuple[str, str, str], delta: str) -> bytes:
    thread, turn, item = ids
    try:
        return (
            f'{{"type":"{kind}","thread_id":{quoted(thread)},"turn_id":{quoted(turn)},'
            f'"item_id":{quoted(item)},"delta":{quoted(delta)}}}'
        ).encode()
    except UnicodeEncodeError:
        return event.escaped_json()
