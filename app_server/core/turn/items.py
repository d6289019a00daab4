"""Items of the conversation as the client is shown them: turn items and their older event forms. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from protocol.events.messages import (
    AgentMessageEvent,
    AgentReasoningEvent,
    AgentReasoningRawContentEvent,
    UserMessageEvent,
)
from protocol.events.msg import EventMsg
from protocol.events.tools import WebSearchEndEvent
from protocol.items import (
    AgentMessageItem,
    ImageInput,
    ReasoningItem,
    TextContentPart,
    TextInput,
    TurnItem,
    UserInput,
    UserMessageItem,
    WebSearchItem,
)
from protocol.responses import (
    InputImage,
    InputText,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ResponseItem,
    SearchAction,
    WebSearchCall,
)


def turn_item(item: ResponseItem, fallback_id: str) -> TurnItem | None:
    """What a reply's item looks like to a client; None for calls and the like, which have events of their own."""
    match item:
        case MessageItem(role="assistant"):
            parts = tuple(
                TextContentPart(text=part.text) for part in item.content if isinstance(part, OutputText)
            )
            return AgentMessageItem(id=item.id or fallback_id, content=parts)
        case ReasoningResponseItem():
            return ReasoningItem(
                id=item.id or fallback_id,
                summary_text=tuple(part.text for part in item.summary),
                raw_content=tuple(part.text for part in item.content or ()),
            )
        case WebSearchCall(action=SearchAction(query=query)):
            return WebSearchItem(id=item.id or fallback_id, query=query)
        case _:
            return None


def older_events(item: TurnItem, *, raw_reasoning: bool) -> list[EventMsg]:
    """The events that told of such an item before there were items; they follow its `item_completed`."""
    match item:
        case UserMessageItem():
            text = "".join(part.text for part in item.content if isinstance(part, TextInput))
            images = tuple(part.image_url for part in item.content if isinstance(part, ImageInput))
            return [UserMessageEvent(message=text, images=images)]
        case AgentMessageItem():
            return [AgentMessageEvent(message=part.text) for part in item.content]
        case ReasoningItem():
            out: list[EventMsg] = [AgentReasoningEvent(text=text) for text in item.summary_text]
            if raw_reasoning:
                out += [AgentReasoningRawContentEvent(text=text) for text in item.raw_content]
            return out
        case WebSearchItem():
            return [WebSearchEndEvent(call_id=item.id, query=item.query)]


def user_message(item: MessageItem, id: str) -> UserMessageItem:
    """The client's own words, given back as an item."""
    content: list[UserInput] = []
    for part in item.content:
        match part:
            case InputText() | OutputText():
                content.append(TextInput(text=part.text))
            case InputImage():
                content.append(ImageInput(image_url=part.image_url))
            case _:
                assert_never(part)
    return UserMessageItem(id=id, content=tuple(content))


def last_assistant_text(items: Sequence[ResponseItem]) -> str | None:
    """The last text of the last assistant message that has one."""
    for item in reversed(items):
        if isinstance(item, MessageItem) and item.role == "assistant":
            texts = [part.text for part in item.content if isinstance(part, OutputText)]
            if texts:
                return texts[-1]
    return None
