"""The origins of a conversation, the result of opening one, and the process environment of the engine.

Separate from `engine`, which is slow to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.core.rollout.disk import DiskCalls
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.ids import ConversationId
from app_server_protocol.responses import ResponseItem
from app_server_protocol.structs import Discreet

if TYPE_CHECKING:
    from app_server.core.model.model_client import RequestGate
    from app_server.core.rollout.conversation import StoredConversation
    from app_server.core.session.handle import SessionHandle
    from app_server_protocol.engine.settings import Settings


class NewConversation(Struct, frozen=True):
    """Starts with the initial messages only."""

    client_tools: tuple[ClientTool, ...] = ()
    """What the client brings for the model."""
    ephemeral: bool = False
    """It is not stored."""
    paginated: bool = False
    """Whether its file has the form of codex since 0.159, else that of codex 0.58."""
    skill_folders: tuple[str, ...] = ()
    """Folders with skills that the client names for this conversation."""


class Revert(Struct, frozen=True):
    """Request to take back what is stored behind so many lines; the settings stay."""

    keeps: int
    turns: int
    """That are behind these lines."""
    settings: Settings


class StoredRollout(Struct, frozen=True):
    """Continues a stored conversation."""

    path: Path
    revert: Revert | None = None
    messages: bool = False
    """Whether the client is shown what was said as events."""
    turns: bool = False
    """Whether it is shown turns, or its items under their ids."""
    keeps_usage: bool = False
    """Whether the tokens that were used so far count on; else counting begins anew."""


class GivenHistory(Struct, frozen=True):
    """Starts with items that the client supplies."""

    items: tuple[ResponseItem, ...]
    paginated: bool = False
    """As of a new conversation."""


class Fork(Struct, frozen=True):
    """Starts, with a new id, from the state of a stored conversation."""

    path: Path
    keeps: int | None = None
    """From so many lines of its file; None: from all."""
    ephemeral: bool = False


Origin = NewConversation | StoredRollout | GivenHistory | Fork


class Opened(Struct, frozen=True):
    """An open conversation, and where it comes from."""

    session: SessionHandle
    forked_from: str | None = None
    stored: StoredConversation | None = None
    """What it goes on from; None for a new one."""


class ProcessEnvironment(Discreet, frozen=True, kw_only=True):
    """Facts and services of the process. The composition root passes them in; no other module reads them by itself."""

    HIDDEN = ("environment",)

    threads: Path
    """The home of new conversations: they are stored below it."""
    environment: Mapping[str, str]
    version: str
    shell_path: str
    now: Callable[[], datetime]
    """Local time with a time zone."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    wall_clock: Callable[[], float]
    """Seconds since 1970."""
    jitter: Callable[[], float]
    """A random number from 0 up to 1, for the delays of retries."""
    disk: DiskCalls
    """Writes rollouts."""
    new_conversation_id: Callable[[], ConversationId]
    new_id: Callable[[], str]
    gate: RequestGate | None = None
    """Lets requests to models pass; None: at once."""
