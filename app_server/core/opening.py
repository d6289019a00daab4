"""What a conversation can be opened from, and what comes of it. Without the engine, which takes long to load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.events.msg import EventMsg
from protocol.ids import ConversationId
from protocol.policy import ReasoningEffort
from protocol.records import dataclass
from protocol.responses import ResponseItem

if TYPE_CHECKING:
    from app_server.core.session.session import Session


@dataclass(frozen=True, slots=True)
class NewConversation:
    """Begins with nothing but its opening."""


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """Goes on from a file."""

    path: Path


@dataclass(frozen=True, slots=True)
class GivenHistory:
    """Begins with items that the client hands over."""

    items: tuple[ResponseItem, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """Begins, under an id of its own, where a stored one stands."""

    path: Path


Origin = NewConversation | StoredRollout | GivenHistory | Fork


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open conversation, and what its client is told of it."""

    conversation_id: ConversationId
    session: Session
    model: str
    effort: ReasoningEffort | None
    rollout_path: Path
    initial_messages: tuple[EventMsg, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the process is: passed in, never looked up below the composition root."""

    home: Path
    environment: Mapping[str, str] = field(repr=False)
    version: str
    shell_path: str
    now: Callable[[], datetime]
    """Local time with its zone."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    new_conversation_id: Callable[[], ConversationId]
    new_id: Callable[[], str]
