"""Stored turns as the changes that a client was sent when they were live. Reads nothing itself.

Each tool call is sent once, as it ended. What was asked, and what waits, is not sent again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from app_server.apis.acp import calls
from app_server.apis.acp.changes import (
    CallChanged,
    CallStep,
    Change,
    Compaction,
    MessageText,
    ShownBlock,
    ShownCall,
    Speaker,
)
from app_server.apis.acp.session_view import plan_made, reasoning_text, review_text, usage_changed
from app_server.core.rollout.stored_items import StoredItems
from protocol.acp.tool_calls import ToolCallStatus
from protocol.engine import items
from protocol.engine.turns import EndedItem
from protocol.items import ImageInput, LocalImageInput, MentionInput, SkillInput, TextInput

_DATA_URL: Final = re.compile(r"data:(image/[\w.+-]+);base64,(.*)", re.DOTALL)


def replayed(stored: StoredItems) -> Iterator[Change]:
    """The items of a session, oldest first; then the plan and the usage as they were in the end."""
    yield from _items(stored.items)
    if stored.plan is not None:
        yield plan_made(stored.plan)
    if stored.usage is not None:
        yield usage_changed(stored.usage, None)


def _items(ended: Iterable[EndedItem]) -> Iterator[Change]:
    review: ShownCall | None = None
    for each in ended:
        item = each.item
        match item:
            case items.UserMessage():
                yield from _user_message(item)
            case items.AgentMessage() | items.Plan():
                yield from _message(Speaker.AGENT, item.id, item.text)
            case items.Reasoning():
                yield from _message(Speaker.THOUGHT, item.id, reasoning_text(item))
            case items.ContextCompaction():
                yield Compaction(item.id, not each.cut)
            case items.EnteredReview():
                review = calls.begun(item, item.id)
            case items.ExitedReview():
                if review is not None:
                    done = item.output is not None
                    review.status = ToolCallStatus.COMPLETED if done else ToolCallStatus.FAILED
                    yield CallChanged(review, CallStep.OVER)
                    review = None
                if item.output is not None:
                    yield MessageText(Speaker.AGENT, f"{item.id}-findings", review_text(item.output))
            case _:
                call = calls.begun(item, item.id)
                calls.end(call, item, cut=each.cut)
                yield CallChanged(call, CallStep.OVER)


def _message(speaker: Speaker, id: str, text: str) -> Iterator[Change]:
    if text:
        yield MessageText(speaker, id, text)


def _user_message(item: items.UserMessage) -> Iterator[Change]:
    for part in item.content if item.sent is None else item.sent:
        match part:
            case TextInput():
                yield from _message(Speaker.USER, item.id, part.text)
            case ImageInput():
                image = _DATA_URL.fullmatch(part.image_url)
                if image is not None:
                    block = {"type": "image", "mimeType": image[1], "data": image[2]}
                    yield ShownBlock(Speaker.USER, item.id, block)
            case LocalImageInput():
                link = {"type": "resource_link", "name": part.path, "uri": f"file://{part.path}"}
                yield ShownBlock(Speaker.USER, item.id, link)
            case SkillInput() | MentionInput():
                link = {"type": "resource_link", "name": part.name, "uri": part.path}
                yield ShownBlock(Speaker.USER, item.id, link)
            case _:
                assert_never(part)
