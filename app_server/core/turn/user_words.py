"""What a user said, in its two forms: as the client sent it, and as a message for the model."""

from __future__ import annotations

from app_server.core.turn.items import user_message
from protocol.engine.items import UserMessage
from protocol.items import SentInput
from protocol.records import dataclass
from protocol.responses import MessageItem


@dataclass(frozen=True, slots=True)
class UserWords:
    message: MessageItem
    sent: tuple[SentInput, ...] | None = None
    """None: the message is the engine's own."""
    client_id: str | None = None
    attached: tuple[MessageItem, ...] = ()
    """Further messages for the model that the words bring along: skills, mentions."""
    is_shown: bool = True
    """False: for the model alone."""
    notices: tuple[str, ...] = ()
    """What the client has to know about what it sent."""

    def messages(self) -> tuple[MessageItem, ...]:
        """In the order of the history. Without words of their own, the attached ones are all."""
        return (self.message, *self.attached) if self.message.content else self.attached

    def item(self, id: str) -> UserMessage:
        shown = user_message(self.message, id)
        sent = self.sent if self.sent != shown.content else None
        return UserMessage(id, shown.content, self.client_id, sent)


NO_WORDS = UserWords(MessageItem(role="user", content=()), is_shown=False)
"""The user lets the model go on."""
