"""Begins a conversation right after `initialize`, before the server is loaded: for every API in the same way.

The answer needs the configuration, a new id and the first line of the file; the server and its engine, which take most
of the time, are for the turns that follow. They serve the same request again under the same id, without answering.
Only requests are answered here that need no further validation and whose settings are valid. The full server serves
all others, and reports what is wrong. What the settings of a request are, and what its answer says, is for each API to
say: `early_openings`, `early_sessions`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from app_server import STORED_VERSION
from app_server.conversations.begun import BegunRequest
from app_server.core.begun import Begun
from app_server.core.config.types import Config
from app_server.core.context.project_docs import configured_instructions
from app_server.core.errors import ConfigError
from app_server.core.git.info import read_git_info
from app_server.core.rollout.disk import REAL_DISK, open_for_append
from app_server.core.rollout.rollout_names import new_rollout_path, utc_timestamp
from app_server.identity import ORIGINATOR, EarlyInitialize, header_safe
from app_server.startup.early_answers import EarlyAnswer, compact_json, early_result
from protocol.ids import ConversationId
from protocol.jsonrpc import Request
from protocol.origins import SessionOrigin
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json


class EarlyConversation:
    """One that is begun here. It is not stored yet."""

    def __init__(self, config: Config, client: EarlyInitialize, begun: Begun) -> None:
        self.begun, self.config, self.client = begun, config, client
        self.originator = header_safe(client.name) or ORIGINATOR
        self.path = new_rollout_path(config.home, begun.at, begun.id)
        self.git = read_git_info(config.cwd)
        self.instruction_sources: list[str] = []
        self._instructions = configured_instructions(config, sources=self.instruction_sources)

    def store(self) -> None:
        """Write the first line. Raises OSError, and then leaves no file."""
        data = memoryview(compact_json(self._first_line()) + b"\n")
        fd = open_for_append(REAL_DISK, self.path, create=True)
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError:
            os.unlink(self.path)
            raise
        finally:
            os.close(fd)

    def _first_line(self) -> dict[str, Json]:
        """As `RolloutWriter` stores `SessionMetaLine`."""
        config, stamp = self.config, utc_timestamp(self.begun.at)
        meta: dict[str, Json] = {
            "id": self.begun.id,
            "timestamp": stamp,
            "cwd": str(config.cwd),
            "originator": self.originator,
            "cli_version": STORED_VERSION,
            "instructions": self._instructions,
            "source": SessionOrigin.VSCODE,
            "model_provider": config.provider.id,
        }
        if self.git is not None:
            meta["git"] = {key: value for key, value in asdict(self.git).items() if value is not None}
        return {"timestamp": stamp, "type": "session_meta", "payload": meta}


@dataclass(frozen=True, slots=True)
class PlannedConversation:
    config: Config
    result: Callable[[EarlyConversation], dict[str, Json] | None]
    """What the answer says; None where it needs the full server."""
    notifications: Callable[[EarlyConversation], tuple[bytes, ...]] = lambda _: ()
    """What is sent to the client behind the answer, and not by the full server again."""
    notified: frozenset[str] = frozenset()
    """Methods of notifications that the full server would send again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyConversations:
    """Begins conversations for one client."""

    plan: Callable[[Request], PlannedConversation | None]
    """None leaves the request to the full server. Raises ConfigError."""
    client: EarlyInitialize
    now: Callable[[], datetime]
    """Local time with a time zone."""
    new_id: Callable[[], ConversationId]

    def answer(self, request: Request) -> EarlyAnswer | None:
        """None leaves the request to the full server; then nothing is stored."""
        try:
            planned = self.plan(request)
        except ConfigError:
            return None
        if planned is None:
            return None
        conversation = EarlyConversation(planned.config, self.client, Begun(self.new_id(), self.now()))
        result = planned.result(conversation)
        answer = None if result is None else early_result(request, result)
        if answer is None:
            return None
        try:
            conversation.store()
        except (OSError, UnicodeEncodeError):
            return None
        begun = BegunRequest(request, conversation.begun, planned.notified)
        return EarlyAnswer(answer.response, begun, planned.notifications(conversation))
