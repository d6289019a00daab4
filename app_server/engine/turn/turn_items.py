"""Converts entries of the history into the items that clients are shown. Holds the user's input in both forms: as the
client sent it, and as a message for the model. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from app_server_protocol import responses
from app_server_protocol.engine.items import AgentMessage, Reasoning, UserMessage, WebSearch
from app_server_protocol.event_items import ImageInput, SentInput, TextInput, UserInput


def shown_item(
    item: responses.ResponseItem, fallback_id: str, *, show_reasoning: bool
) -> AgentMessage | Reasoning | WebSearch | None:
    """Return a reply's item in the form that clients see; None for calls and the like, which have items of
    their own.
    """
    match item:
        case responses.MessageItem(role="assistant"):
            parts = tuple(part.text for part in item.content if isinstance(part, responses.OutputText))
            return AgentMessage(item.id or fallback_id, parts, item.phase)
        case responses.ReasoningResponseItem():
            return Reasoning(
                item.id or fallback_id,
                summary=tuple(part.text for part in item.summary),
                content=tuple(part.text for part in item.content or ()),
                show_content=show_reasoning,
            )
        case responses.WebSearchCall():
            return WebSearch(item.id or fallback_id, _looked_for(item.action), item.action)
        case _:
            return None


def _looked_for(action: responses.WebSearchAction) -> str:
    """Return a description of a search in one line."""
    if query := responses.searched_query(action):
        return query
    extra = (action.model_extra or {}) if isinstance(action, responses.OtherAction) else {}
    match extra:
        case {"queries": [str(first), *more]}:
            return f"{first} ..." if more else first
        case {"pattern": str(pattern), "url": str(url)}:
            return f"'{pattern}' in {url}"
        case {"pattern": str(pattern)}:
            return f"'{pattern}'"
        case {"url": str(url)}:
            return url
        case _:
            return ""


def user_message(item: responses.MessageItem, id: str) -> UserMessage:
    """Return the user's own message as an item."""
    content: list[UserInput] = []
    for part in item.content:
        match part:
            case responses.InputText() | responses.OutputText():
                content.append(TextInput(text=part.text))
            case responses.InputImage():
                content.append(ImageInput(image_url=part.image_url))
    return UserMessage(id, tuple(content))


def last_assistant_text(items: Sequence[responses.ResponseItem]) -> str | None:
    """Return the last assistant message with a text; a commentary only if there is no other message."""
    commentary = None
    for item in reversed(items):
        if isinstance(item, responses.MessageItem) and item.role == "assistant":
            text = "".join(part.text for part in item.content if isinstance(part, responses.OutputText))
            if text and item.phase != responses.COMMENTARY:
                return text
            commentary = commentary or text or None
    return commentary


class TurnInput(Struct, frozen=True):
    message: responses.MessageItem
    sent: tuple[SentInput, ...] | None = None
    """The inputs as the client sent them; None if the message is the engine's own."""
    client_id: str | None = None
    attached: tuple[responses.MessageItem, ...] = ()
    """Further messages for the model that belong to the input: skills, mentions."""
    before: tuple[responses.ResponseItem, ...] = ()
    """Context that the model reads before the input."""
    is_shown: bool = True
    """Whether clients are shown the input; otherwise it is only for the model."""
    notices: tuple[str, ...] = ()
    """Warnings for the client about its input."""

    def messages(self) -> tuple[responses.ResponseItem, ...]:
        """Return the items in the order of the history. The input may have no text of its own."""
        own = (self.message,) if self.message.content else ()
        return (*self.before, *own, *self.attached)

    def item(self, id: str) -> UserMessage:
        shown = user_message(self.message, id)
        sent = self.sent if self.sent != shown.content else None
        return UserMessage(id, shown.content, self.client_id, sent)


NO_WORDS = TurnInput(responses.MessageItem(role="user", content=()), is_shown=False)
"""Empty input: the user lets the model continue."""
