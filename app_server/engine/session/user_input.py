"""Converts a client's input of a turn for the model.

The input becomes a message: texts and images, with local images read and encoded. Attachments of the input are added:
the text of a skill, the location of a mentioned file.

A skill is read only if it is listed for the working directory and enabled. If a client names any other file, it gets a
warning, and the model is sent nothing of the file.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app_server.engine.config.file_rules import MayRead, reads_all
from app_server.engine.context.environment_context import user_text
from app_server.engine.support import images
from app_server.engine.support.rooted_fs import RefusedName, TooLarge, read_named
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.event_items import (
    ImageInput,
    LocalImageInput,
    MentionInput,
    SentInput,
    SkillInput,
    TextInput,
)
from app_server_protocol.responses import ContentItem, InputImage, InputText, MessageItem
from app_server_protocol.rollout import MENTION_HEAD
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.context.skills.skill import Skill, SkillSet
    from app_server.engine.context.skills.skill_catalog import SkillCatalog
    from app_server.engine.support.lazy import Lazy

T = TypeVar("T")

log = logging.getLogger(__name__)

MOST_ATTACHED = 100
MOST_CHARACTERS = 1 << 20
"""Maximum size of all attachments of one input, in characters."""


async def user_words(
    inputs: Sequence[SentInput],
    client_id: str | None,
    cwd: str,
    skills: Lazy[SkillCatalog],
    *,
    checks_pictures: bool,
    skill_folders: Sequence[str] = (),
    may_read: Callable[[], MayRead] = lambda: reads_all,
) -> TurnInput:
    """Convert the inputs into a message with its attachments, and keep the client's originals and message id.

    An image that cannot be read is replaced by a description. `checks_pictures` False: as in codex 0.58, encoded images
    of the client are not read, and checksums of files are ignored. `may_read` says which skills of the project may be
    read for the model; a picture that the client names is read with the rights of the user.
    """
    parts = [item for item in inputs if not isinstance(item, SkillInput | MentionInput)]
    content = [await _part(item, checked=checks_pictures) for item in parts]
    turn_input = TurnInput(MessageItem(role="user", content=tuple(content)), tuple(inputs), client_id)
    if len(parts) == len(inputs):
        return turn_input
    catalog = skills.get()
    look = partial(catalog.look, Path(cwd), skill_folders)
    text_of = partial(catalog.text, may_read=may_read())
    return await _with_attachments(turn_input, _distinct(inputs), look, text_of)


async def _part(item: TextInput | ImageInput | LocalImageInput, *, checked: bool) -> ContentItem:
    match item:
        case TextInput():
            return InputText(text=item.text)
        case ImageInput():
            if not checked:
                return InputImage(image_url=item.image_url)
            return await _image("An image", images.checked_url, item.image_url)
        case LocalImageInput():
            read = partial(image_data_url, checksums=checked)
            return await _image(f"The image {item.path}", read, Path(item.path))


async def _image(what: str, read: Callable[[T], str], source: T) -> InputImage | InputText:
    """Return the image that `read` makes of the source, or the reason why there is none."""
    try:
        return InputImage(image_url=await run_in_thread(read, source, abandon_on_cancel=True))
    except (OSError, images.ImageUnreadable) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        log.warning("%s cannot be attached: %s", what, reason)
        return InputText(text=f"({what} could not be attached: {reason}.)")


def image_data_url(path: Path, *, checksums: bool = True) -> str:
    """Read a file that the user named. `checksums` False: a PNG may have wrong checksums. Blocks: call it in a thread.
    Raises ImageUnreadable or OSError.
    """
    try:
        data = read_named(path.absolute(), images.MAX_IMAGE_BYTES)
    except TooLarge:
        raise images.ImageUnreadable(f"larger than {images.MAX_IMAGE_BYTES} bytes") from None
    except (IsADirectoryError, RefusedName):
        raise images.ImageUnreadable("not a file") from None
    return images.data_url(data, checksums=checksums)


async def _with_attachments(
    turn_input: TurnInput,
    items: Sequence[SkillInput | MentionInput],
    look: Callable[[], Awaitable[SkillSet | None]],
    text_of: Callable[[Skill], tuple[str | None, str | None]],
) -> TurnInput:
    found = await look()
    attached: list[MessageItem] = []
    notices: list[str] = []
    left = MOST_CHARACTERS
    for item in items:
        skill = found.usable(item.path.removeprefix("skill://")) if found is not None else None
        text: str | None
        problem: str | None = None
        if skill is not None:
            text, problem = await run_in_thread(text_of, skill, abandon_on_cancel=True)
        elif isinstance(item, MentionInput):
            text = f"{MENTION_HEAD}<name>{item.name}</name>\n<path>{item.path}</path>\n</mention>"
        else:
            text, problem = None, "no skill that is on has this file"
        if text is not None and len(text) > left:
            text, problem = None, "the input is too long with it"
        if text is None:
            notices.append(f"The skill {item.name} ({item.path}) is not used: {problem}.")
        else:
            left -= len(text)
            attached.append(user_text(text))
    if not turn_input.message.content and not attached:
        # The request is sent in any case, and some providers refuse one without text.
        turn_input = replace(turn_input, message=user_text(f"({' '.join(notices)})"))
    return replace(turn_input, attached=tuple(attached), notices=tuple(notices))


def _distinct(items: Sequence[SentInput]) -> list[SkillInput | MentionInput]:
    found: list[SkillInput | MentionInput] = []
    for item in items:
        if isinstance(item, SkillInput | MentionInput) and item not in found:
            found.append(item)
    return found[:MOST_ATTACHED]
