"""The origins of a conversation, the result of opening one, and the process environment of the engine.

Separate from `engine`, which is slow to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.responses import ResponseItem

if TYPE_CHECKING:
    from app_server.engine.session.facade import SessionHandle
    from app_server.engine.storage.rollout_reader import StoredConversation
    from app_server.engine.support.engine_errors import NotStored
    from app_server_protocol.engine.thread_settings import ThreadSettings


class NewConversation(Struct, frozen=True):
    """A conversation that starts with the initial messages only."""

    client_tools: tuple[ClientTool, ...] = ()
    """Tools that the client provides for the model."""
    ephemeral: bool = False
    """Whether the conversation is not stored."""
    paginated: bool = False
    """Whether its file has the form of codex since 0.159, instead of that of codex 0.58."""
    skill_folders: tuple[str, ...] = ()
    """Folders with skills that the client names for this conversation."""


class Revert(Struct, frozen=True):
    """A request to remove the lines after the first `keeps` lines; the settings stay."""

    keeps: int
    turns: int
    """Number of turns in the removed lines."""
    settings: ThreadSettings


class StoredRollout(Struct, frozen=True):
    """A stored conversation that is continued."""

    path: Path
    revert: Revert | None = None
    messages: bool = False
    """Whether the client receives the earlier messages as events."""
    turns: bool = False
    """Whether the client receives turns, or items with their ids."""
    keeps_system_prompt: bool = False
    """Whether the instructions that another client gave for the conversation count instead of those of the settings."""
    keeps_usage: bool = False
    """Whether the token usage so far counts; otherwise counting starts at zero."""


class SuppliedHistory(Struct, frozen=True):
    """A conversation that starts with items which the client supplies."""

    items: tuple[ResponseItem, ...]
    paginated: bool = False
    """Whether its file has the form of codex since 0.159, instead of that of codex 0.58."""


class Fork(Struct, frozen=True):
    """A conversation that starts, with a new id, from the state of a stored one."""

    path: Path
    keeps: int | None = None
    """Number of lines of the stored file from which the state is taken; None for all lines."""
    ephemeral: bool = False


Origin = NewConversation | StoredRollout | SuppliedHistory | Fork


class OpenedConversation(Struct, frozen=True):
    """An open conversation, and its origin."""

    session: SessionHandle
    forked_from: str | None = None
    stored: StoredConversation | None = None
    """The stored conversation that it continues or copies; None for a new one."""
    not_reverted: NotStored | None = None
    """The reason why it continues with the lines that were to be reverted: that could not be written."""
