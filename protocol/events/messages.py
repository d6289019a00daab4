"""Whole messages and whole pieces of reasoning, for clients that do not follow items."""

from typing import Literal

from protocol.structs import EngineStruct, shown


class UserMessageEvent(EngineStruct, omit_defaults=True):
    """What the user said. Right after the `item_completed` of the user's message, which comes right after
    `task_started` (or later, if the user spoke while the turn ran)."""

    type: Literal["user_message"] = shown("user_message")
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
