"""What the model writes: pieces of text, one for every few characters, then whole messages and whole pieces of
reasoning.

Pieces of an item come after its `item_started` and before its `item_completed`, in order; joined they are the item's
text, unless a `stream_error` made them void. The whole ones are for clients that do not follow items.
"""

from typing import Literal

from app_server_protocol.outgoing import EngineStruct, always_written


class UserMessageEvent(EngineStruct, omit_defaults=True):
    """Words of the user. Right after the `item_completed` of the user's message, which comes right after `task_started`
    (or later, if the user spoke while the turn ran).
    """

    type: Literal["user_message"] = always_written("user_message")
    message: str
    images: tuple[str, ...] | None = None


class AgentMessageEvent(EngineStruct):
    """A whole message of the assistant. Right after the `item_completed` of that message."""

    type: Literal["agent_message"] = "agent_message"
    message: str


class AgentReasoningEvent(EngineStruct):
    """One whole part of the reasoning summary. Right after the `item_completed` of the reasoning, one
    per part."""

    type: Literal["agent_reasoning"] = "agent_reasoning"
    text: str


class AgentReasoningRawContentEvent(EngineStruct):
    """One whole part of the raw reasoning, where it is shown. After the parts of the summary."""

    type: Literal["agent_reasoning_raw_content"] = "agent_reasoning_raw_content"
    text: str


class AgentReasoningSectionBreakEvent(EngineStruct):
    """The reasoning summary begins a new part. Between the deltas of two parts."""

    type: Literal["agent_reasoning_section_break"] = "agent_reasoning_section_break"


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
