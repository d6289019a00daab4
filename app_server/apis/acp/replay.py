"""Stored turns as the updates that a client was sent when they were live, by the same fold. Reads nothing itself.

Each tool call is sent once, as it ended. What was asked, and what waits, is not sent again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from app_server.apis.acp.client import AcpClient
from app_server.apis.acp.fold import SessionFold, SessionNews, context_use
from app_server.apis.acp.updates import SessionUpdates, Speaker
from app_server.conversations.adapter import ClientLine
from app_server.core.rollout.turn_fold import ItemIds
from protocol.engine.events import EndedItem, ItemCompleted, ItemStarted, SessionEvent
from protocol.engine.items import UserMessage
from protocol.items import ImageInput, LocalImageInput, MentionInput, SkillInput, TextInput

if TYPE_CHECKING:
    from app_server.core.rollout.stored_items import StoredItems

_DATA_URL: Final = re.compile(r"data:(image/[\w.+-]+);base64,(.*)", re.DOTALL)


def replayed(stored: StoredItems, session_id: str, client: AcpClient) -> Iterator[ClientLine]:
    """Yield the lines of a session, oldest first; then the plan and the usage as they were in the end."""
    updates, ids = SessionUpdates(session_id, client, float, live=False), ItemIds()
    fold = SessionFold(updates, SessionNews(updates, ids), ids)
    for ended in stored.items:
        _take(ended, fold, updates)
        yield from updates.taken()
    if stored.plan is not None:
        updates.plan(stored.plan.plan)
    if stored.usage is not None:
        updates.usage(*context_use(stored.usage, None))
    yield from updates.taken()


def _take(ended: EndedItem, fold: SessionFold, updates: SessionUpdates) -> None:
    for event in (ItemStarted(ended.item, 0), ItemCompleted(ended.item, 0, 0, cut=ended.cut)):
        fold.take(SessionEvent("", "", event))
    if isinstance(ended.item, UserMessage):
        user_message(ended.item, updates)


def user_message(item: UserMessage, updates: SessionUpdates) -> None:
    """Write what the user said, which a client knows while it is live."""

    def link(name: str, uri: str) -> None:
        updates.block(Speaker.USER, item.id, {"type": "resource_link", "name": name, "uri": uri})

    for part in item.content if item.sent is None else item.sent:
        match part:
            case TextInput(text=text):
                if text:
                    updates.text(Speaker.USER, item.id, text)
            case ImageInput():
                image = _DATA_URL.fullmatch(part.image_url)
                if image is not None:
                    block = {"type": "image", "mimeType": image[1], "data": image[2]}
                    updates.block(Speaker.USER, item.id, block)
            case LocalImageInput():
                link(part.path, f"file://{part.path}")
            case SkillInput() | MentionInput():
                link(part.name, part.path)
