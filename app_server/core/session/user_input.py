"""What the user sent, as a message for the model: texts and images, local images read and encoded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, assert_never

from app_server.core.context.images import image_data_url
from app_server.core.pictures import ImageUnreadable, checked_url
from app_server.core.threads import run_in_thread
from app_server.core.turn.items import UserWords
from protocol.items import ImageInput, LocalImageInput, MentionInput, SentInput, SkillInput, TextInput
from protocol.responses import ContentItem, InputImage, InputText, MessageItem

T = TypeVar("T")

log = logging.getLogger(__name__)


async def as_words(
    items: Sequence[SentInput], client_id: str | None = None, *, strict: bool = True
) -> UserWords:
    """What the client sent, and the id that it gave the message, with one message of all parts, in order. An image that
    cannot be read is described in its place. `strict` False: as with codex 0.58 those that the client encoded are not
    looked at, and checksums of files do not count.
    """
    content = [
        await _part(item, strict=strict) for item in items if not isinstance(item, SkillInput | MentionInput)
    ]
    return UserWords(MessageItem(role="user", content=tuple(content)), tuple(items), client_id)


async def _part(item: TextInput | ImageInput | LocalImageInput, *, strict: bool) -> ContentItem:
    match item:
        case TextInput():
            return InputText(text=item.text)
        case ImageInput():
            if not strict:
                return InputImage(image_url=item.image_url)
            return await _image("An image", checked_url, item.image_url)
        case LocalImageInput():
            read = partial(image_data_url, checksums=strict)
            return await _image(f"The image {item.path}", read, Path(item.path))
        case _:
            assert_never(item)


async def _image(what: str, read: Callable[[T], str], source: T) -> InputImage | InputText:
    """What `read` makes of the source, or why it is nothing."""
    try:
        return InputImage(image_url=await run_in_thread(read, source, abandon_on_cancel=True))
    except (OSError, ImageUnreadable) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        log.warning("%s cannot be attached: %s", what, reason)
        return InputText(text=f"({what} could not be attached: {reason}.)")
