"""Stored turns as the updates that a client was sent when they were live. Reads nothing itself.

Each tool call is sent once, as it ended. What was asked, and what waits, is not sent again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, assert_never

from app_server.apis.acp import calls
from app_server.apis.acp.client import AcpClient
from app_server.apis.acp.fold import context_use, reasoning_text, review_text
from app_server.apis.acp.updates import LinePacer, SessionUpdates, Speaker
from app_server.core.rollout.stored_items import StoredItems
from protocol.acp.tool_calls import ToolCallStatus
from protocol.engine import items
from protocol.engine.events import EndedItem
from protocol.items import ImageInput, LocalImageInput, MentionInput, SkillInput, TextInput

_DATA_URL: Final = re.compile(r"data:(image/[\w.+-]+);base64,(.*)", re.DOTALL)


def replayed(stored: StoredItems, session_id: str, client: AcpClient) -> Iterator[bytes]:
    """Yield the lines of a session, oldest first; then the plan and the usage as they were in the end."""
    pacer = LinePacer(session_id, float, paced=False)
    replay = _Replay(SessionUpdates(pacer, client, live=False))
    for ended in stored.items:
        replay.take(ended)
        yield from pacer.taken()
    if stored.plan is not None:
        replay.updates.plan(stored.plan.plan)
    if stored.usage is not None:
        replay.updates.usage(*context_use(stored.usage, None))
    yield from pacer.taken()


class _Replay:
    """Writes items that are over."""

    def __init__(self, updates: SessionUpdates) -> None:
        self.updates = updates
        self._review: calls.ShownCall | None = None

    def take(self, ended: EndedItem) -> None:
        item = ended.item
        match item:
            case items.UserMessage():
                self._user_message(item)
            case items.AgentMessage() | items.Plan():
                self._message(Speaker.AGENT, item.id, item.text)
            case items.Reasoning():
                self._message(Speaker.THOUGHT, item.id, reasoning_text(item))
            case items.ContextCompaction():
                self.updates.compaction(item.id, not ended.cut)
            case items.EnteredReview():
                self._review = calls.begun(item, item.id)
            case items.ExitedReview():
                self._review_over(item)
            case _:
                call = calls.begun(item, item.id)
                calls.end(call, item, cut=ended.cut)
                self.updates.call(call)

    def _message(self, speaker: Speaker, id: str, text: str) -> None:
        if text:
            self.updates.text(speaker, id, text)

    def _review_over(self, item: items.ExitedReview) -> None:
        if self._review is not None:
            done = item.output is not None
            self._review.status = ToolCallStatus.COMPLETED if done else ToolCallStatus.FAILED
            self.updates.call(self._review)
            self._review = None
        if item.output is not None:
            self._message(Speaker.AGENT, f"{item.id}-findings", review_text(item.output))

    def _user_message(self, item: items.UserMessage) -> None:
        for part in item.content if item.sent is None else item.sent:
            match part:
                case TextInput():
                    self._message(Speaker.USER, item.id, part.text)
                case ImageInput():
                    image = _DATA_URL.fullmatch(part.image_url)
                    if image is not None:
                        block = {"type": "image", "mimeType": image[1], "data": image[2]}
                        self.updates.block(Speaker.USER, item.id, block)
                case LocalImageInput():
                    self._link(item.id, part.path, f"file://{part.path}")
                case SkillInput() | MentionInput():
                    self._link(item.id, part.name, part.path)
                case _:
                    assert_never(part)

    def _link(self, id: str, name: str, uri: str) -> None:
        self.updates.block(Speaker.USER, id, {"type": "resource_link", "name": name, "uri": uri})
