"""Pieces of text while the model writes, one for every few characters.

Pieces of an item come after its `item_started` and before its `item_completed`, in order; joined they are
the item's text, unless a `stream_error` made them void.
"""

from typing import Literal

from protocol.structs import EngineStruct


class AgentMessageDeltaEvent(EngineStruct):
    """The next piece of the assistant's message. After the item's `item_started`, before its
    `item_completed`; each follows the `agent_message_content_delta` with the same text."""

    type: Literal["agent_message_delta"] = "agent_message_delta"
    delta: str


class AgentMessageContentDeltaEvent(EngineStruct):
    """The next piece of the assistant's message, with the item that it belongs to."""

    type: Literal["agent_message_content_delta"] = "agent_message_content_delta"
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class AgentReasoningDeltaEvent(EngineStruct):
    """The next piece of the reasoning summary. Each follows the `reasoning_content_delta` with the same
    text."""

    type: Literal["agent_reasoning_delta"] = "agent_reasoning_delta"
    delta: str


class ReasoningContentDeltaEvent(EngineStruct):
    """The next piece of the reasoning summary, with the item that it belongs to."""

    type: Literal["reasoning_content_delta"] = "reasoning_content_delta"
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class AgentReasoningRawContentDeltaEvent(EngineStruct):
    """The next piece of the raw reasoning, where it is shown at all. Each follows the
    `reasoning_raw_content_delta` with the same text."""

    type: Literal["agent_reasoning_raw_content_delta"] = "agent_reasoning_raw_content_delta"
    delta: str


class ReasoningRawContentDeltaEvent(EngineStruct):
    """The next piece of the raw reasoning, with the item that it belongs to."""

    type: Literal["reasoning_raw_content_delta"] = "reasoning_raw_content_delta"
    thread_id: str
    turn_id: str
    item_id: str
    delta: str
