"""Validators for many payloads at once, built when the first conversation is resumed, not at startup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Final, get_args

from pydantic import Field, TypeAdapter

from app_server.core.rollout.persistence_policy import PERSISTED_EVENTS
from protocol.events.messages import (
    AgentMessageEvent,
    AgentReasoningEvent,
    AgentReasoningRawContentEvent,
    UserMessageEvent,
)
from protocol.events.notices import UndoCompletedEvent
from protocol.events.review import EnteredReviewModeEvent, ExitedReviewModeEvent
from protocol.events.turn import TokenCountEvent, TurnAbortedEvent
from protocol.responses import KnownItem

StoredMessage = (
    UserMessageEvent
    | AgentMessageEvent
    | AgentReasoningEvent
    | AgentReasoningRawContentEvent
    | TokenCountEvent
    | TurnAbortedEvent
    | EnteredReviewModeEvent
    | ExitedReviewModeEvent
    | UndoCompletedEvent
)

ITEM_NAMES: Final = frozenset(model.model_fields["type"].default.encode() for model in get_args(KnownItem))
MESSAGE_NAMES: Final = frozenset(name.encode() for name in PERSISTED_EVENTS)


@cache
def item_batch() -> TypeAdapter[list[KnownItem]]:
    return TypeAdapter(list[Annotated[KnownItem, Field(discriminator="type")]])


@cache
def message_batch() -> TypeAdapter[list[StoredMessage]]:
    return TypeAdapter(list[Annotated[StoredMessage, Field(discriminator="type")]])


def array_of(payloads: Sequence[bytes]) -> bytes:
    """The JSON array of these values. May be invalid: a payload may be incomplete or several values."""
    return b"[" + b",".join(payloads) + b"]"
