"""The decoder of a conversation whose turns nobody wants: messages without identity become events of the conversation
API at once. Pure.

A file of codex 0.58 may have tens of thousands of such lines, and to make items and turns of them first takes four
times as long. Every other line is decoded as for any reader.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.storage.decode import RolloutDecoder
from app_server.engine.storage.record import StoredRecord
from app_server_protocol.events.messages import AgentMessageEvent, UserMessageEvent
from app_server_protocol.events.msg import EventMsg

NAMES: Final = frozenset(("user_message", "agent_message"))
"""Names of the events that may be such messages."""


class _Text(Struct, gc=False):
    """A message without identity, as codex 0.58 stores it."""

    message: str
    images: tuple[str, ...] | None = None
    item_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    turn_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_TEXT: Final = msgspec.json.Decoder(_Text)


class PlainTextDecoder(RolloutDecoder):
    """A decoder that derives no ids."""

    @classmethod
    def of(cls, conversation_id: str) -> PlainTextDecoder:
        return cls(conversation_id, derives_ids=False, notices=True)

    def take_text(self, number: int, record: StoredRecord) -> EventMsg | None:
        """Take a message without identity, if nothing before it is open, and return its event. The record has one of
        the `NAMES`; None if it is anything else, which `take` takes.
        """
        if record.kind != "event_msg" or record.ordinal is not None:
            return None
        if not self._calls.is_idle or self._after_compaction or self._reasoning is not None:
            return None
        try:
            found = _TEXT.decode(record.payload)
        except ValueError:
            return None
        if found.item_id is not msgspec.UNSET or found.turn_id is not msgspec.UNSET:
            return None
        is_users = record.name == "user_message"
        if self._turn is None:
            self._begin_derived([], number)
        elif is_users and not self.explicit:
            self._begin_next()
        if is_users:
            return UserMessageEvent(message=found.message, images=found.images or ())
        return AgentMessageEvent(message=found.message)

    def _begin_next(self) -> None:
        """Begin a turn whose beginning is not stored behind another one: they would differ by their ids alone."""
        self._calls.begin()
        self._review = None
        self._last_turn = self._turn
