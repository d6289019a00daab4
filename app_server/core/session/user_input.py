"""What the user sent, as a message for the model: texts and images, local images read and encoded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from app_server.core.context.images import ImageUnreadable, image_data_url
from app_server.core.threads import run_in_thread
from app_server.core.turn.user_words import UserWords
from protocol.items import ImageInput, LocalImageInput, MentionInput, SentInput, SkillInput, TextInput
from protocol.responses import ContentItem, InputImage, InputText, MessageItem

log = logging.getLogger(__name__)


async def as_message(items: Sequence[SentInput]) -> MessageItem:
    """One message of all parts, in order. An image that cannot be read is described in its place."""
    content = [await _part(item) for item in items if not isinstance(item, SkillInput | MentionInput)]
    return MessageItem(role="user", content=tuple(content))


async def as_words(items: Sequence[SentInput], client_id: str | None = None) -> UserWords:
    """The same with what the client sent, and the id that it gave the message."""
    return UserWords(await as_message(items), tuple(items), client_id)


async def _part(item: TextInput | ImageInput | LocalImageInput) -> ContentItem:
    match item:
        case TextInput():
            return InputText(text=item.text)
        case ImageInput():
            return InputImage(image_url=item.image_url)
        case LocalImageInput():
            try:
                url = await run_in_thread(image_data_url, Path(item.path), abandon_on_cancel=True)
                return InputImage(image_url=url)
            except (OSError, ImageUnreadable) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                log.warning("cannot attach %s: %s", item.path, reason)
                return InputText(text=f"(The image {item.path} could not be attached: {reason}.)")
        case _:
            assert_never(item)
