"""Threads and their turns as they are read: stored, and where a thread is open, as it is now."""

from __future__ import annotations

from app_server.apis.services import ConfigSource
from app_server.conversations.manager import ConversationManager
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class ThreadReader:
    config: ConfigSource
    conversations: ConversationManager
