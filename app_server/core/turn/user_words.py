"""What a user said, in its two forms: as the client sent it, and as a message for the model."""

from __future__ import annotations

from app_server.core.turn.items import user_message
from protocol.engine.items import UserMessage
from protocol.items import UserInput
from protocol.records import dataclass
from protocol.responses import MessageItem


@dataclass(frozen=True, slots=True)
class UserWords:
    message: MessageItem
    sent: tuple[UserInput, ...] | None = None
    """None: the message is the engine's own."""
    client_id: str | None = None

    def item(self, id: str) -> UserMessage:
        shown = user_message(self.message, id)
        sent = self.sent if self.sent != shown.content else None
        return UserMessage(id, shown.content, self.client_id, sent)
