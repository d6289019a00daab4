"""Filters the items of the history for a provider: without items that it has refused, and without blank items.

The history keeps everything. After a provider has refused a thought, all thoughts until then are left out of later
requests: to remove one from the middle breaks the checks of the thoughts behind it. Images become a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app_server_protocol.responses import (
    FunctionCallOutput,
    InputImage,
    InputText,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningResponseItem,
    ResponseItem,
)

HIDDEN_IMAGE: Final = "(a picture, which this model cannot see)"


class SentItems:
    """The items of one conversation at one provider."""

    def __init__(self) -> None:
        self._forgotten: dict[int, ResponseItem] = {}
        """Thoughts that are no longer sent, by identity; the references prevent a reuse of identities."""
        self._shown: dict[int, tuple[ResponseItem, ResponseItem]] = {}
        """Items that are sent in another form, by identity, with that form."""
        self._hides_images = False

    def forget_thoughts(self, items: Sequence[ResponseItem]) -> bool:
        """Stop sending the present thoughts. Return whether any of them was sent until now."""
        new = [
            each
            for each in items
            if isinstance(each, ReasoningResponseItem) and id(each) not in self._forgotten
        ]
        self._forgotten |= {id(each): each for each in new}
        return bool(new)

    def hide_images(self, items: Sequence[ResponseItem]) -> bool:
        """Send a sentence in place of every image. Return whether any image was sent until now."""
        had = not self._hides_images and any(map(_has_image, items))
        self._hides_images |= had
        return had

    def of(self, items: Sequence[ResponseItem]) -> Sequence[ResponseItem]:
        """Return the items that are sent."""
        if not self._forgotten and not self._hides_images:
            return items
        return [self._form(each) for each in items if id(each) not in self._forgotten]

    def _form(self, item: ResponseItem) -> ResponseItem:
        if not self._hides_images or not _has_image(item):
            return item
        known = self._shown.get(id(item))
        if known is None:
            known = self._shown[id(item)] = (item, _without_images(item))
        return known[1]


def _has_image(item: ResponseItem) -> bool:
    match item:
        case MessageItem():
            return any(isinstance(part, InputImage) for part in item.content)
        case FunctionCallOutput():
            return any(isinstance(part, InputImage) for part in item.output.content_items or ())
        case _:
            return False


def has_new_image(items: Sequence[ResponseItem]) -> bool:
    """Return whether the user's last message has an image. An image that a tool shows follows the tool's output, in a
    message without text.
    """
    at = next(
        (
            n
            for n, each in reversed([*enumerate(items)])
            if isinstance(each, MessageItem) and each.role == "user"
        ),
        None,
    )
    if at is None or not _has_image(items[at]):
        return False
    return not (at > 0 and isinstance(items[at - 1], OutputItem) and _is_image_alone(items[at]))


def _is_image_alone(item: ResponseItem) -> bool:
    return isinstance(item, MessageItem) and all(isinstance(part, InputImage) for part in item.content)


def _without_images(item: ResponseItem) -> ResponseItem:
    hidden = InputText(text=HIDDEN_IMAGE)
    if isinstance(item, MessageItem):
        content = tuple(hidden if isinstance(part, InputImage) else part for part in item.content)
        return item.model_copy(update={"content": content})
    assert isinstance(item, FunctionCallOutput)
    parts = tuple(
        hidden if isinstance(part, InputImage) else part for part in item.output.content_items or ()
    )
    text = "\n".join(part.text for part in parts if isinstance(part, InputText | OutputText))
    output = item.output.model_copy(update={"content": text, "content_items": None})
    return item.model_copy(update={"output": output})
