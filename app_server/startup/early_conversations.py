"""Begins conversations (`newConversation`, `thread/start`) right after `initialize`, before the server is loaded.

The answer needs the configuration, a new id and the first line of the file; the server and its engine, which take most
of the time, are for the turns that follow. They serve the same request again under the same id, without answering.
Only requests are answered here that need no further validation and whose settings are valid. The full server serves
all others, and reports what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, assert_never

from app_server import STORED_VERSION
from app_server.conversations.begun import BegunRequest
from app_server.core.begun import Begun
from app_server.core.config.load import load_config
from app_server.core.config.types import Config, RequestOverrides
from app_server.core.context.project_docs import find_instructions
from app_server.core.errors import ConfigError
from app_server.core.git.info import read_git_info
from app_server.core.rollout.disk import REAL_DISK, open_for_append
from app_server.core.rollout.rollout_names import new_rollout_path, utc_timestamp
from app_server.identity import ORIGINATOR, EarlyInitialize, header_safe
from app_server.startup.early_answers import EarlyAnswer, compact_json, early_result
from app_server.startup.early_thread_shape import early_thread
from app_server.startup.launch import Launch
from app_server.startup.overrides import cli_overrides
from protocol.ids import ConversationId
from protocol.jsonrpc import Request
from protocol.names import NEW_CONVERSATION
from protocol.origins import SessionOrigin
from protocol.paths import is_unicode
from protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWrite,
    known_effort,
)
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

SETTINGS = {
    "model": "model",
    "modelProvider": "model_provider",
    "cwd": "cwd",
    "baseInstructions": "base_instructions",
    "developerInstructions": "developer_instructions",
}
"""Parameters that both methods have, and the overrides that they are."""

OF_CONVERSATIONS = {"profile": "profile", "compactPrompt": "compact_prompt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyConversations:
    """Begins conversations for one client."""

    launch: Launch
    client: EarlyInitialize
    now: Callable[[], datetime]
    """Local time with a time zone."""
    new_id: Callable[[], ConversationId]

    def answer(self, request: Request) -> EarlyAnswer | None:
        """None leaves the request to the full server; then nothing is stored."""
        settings = {**SETTINGS, **OF_CONVERSATIONS} if request.method == NEW_CONVERSATION else SETTINGS
        overrides = _overrides(request.params, settings)
        if overrides is None:
            return None
        try:
            config = load_config(
                self.launch.home,
                cwd=self.launch.cwd,
                cli=cli_overrides(self.launch),
                request=overrides,
                env=self.launch.environment,
            )
        except ConfigError:
            return None
        new = _NewConversation(config, self.client, Begun(self.new_id(), self.now()))
        result = new.as_conversation() if request.method == NEW_CONVERSATION else new.as_thread()
        if result is None:
            return None
        answer = early_result(request, result)
        if answer is None:
            return None
        try:
            new.store()
        except (OSError, UnicodeEncodeError):
            return None
        return EarlyAnswer(answer.response, BegunRequest(request, new.begun))


class _NewConversation:
    def __init__(self, config: Config, client: EarlyInitialize, begun: Begun) -> None:
        self.begun = begun
        self._config = config
        self._originator = header_safe(client.name) or ORIGINATOR
        self._path = new_rollout_path(config.home, begun.at, begun.id)
        self._git = read_git_info(config.cwd)
        self._sources: list[str] = []
        self._instructions = find_instructions(
            config.home,
            config.cwd,
            config.instructions.project_doc_max_bytes,
            config.instructions.project_doc_fallback_filenames,
            sources=self._sources,
        )

    def as_conversation(self) -> dict[str, Json]:
        """The result of `newConversation`."""
        model = self._config.model
        return {
            "conversationId": self.begun.id,
            "model": model.name,
            "reasoningEffort": known_effort(model.effort),
            "rolloutPath": str(self._path),
        }

    def as_thread(self) -> dict[str, Json] | None:
        """The result of `thread/start`; None where it needs the full server."""
        config, permissions = self._config, self._config.permissions
        if permissions.granular is not None or permissions.profile is not None:
            return None
        provider, cwd = config.provider.id, str(config.cwd)
        return {
            "thread": self._thread(),
            "model": config.model.name,
            "modelProvider": provider,
            "serviceTier": None,
            "cwd": cwd,
            "runtimeWorkspaceRoots": [cwd],
            "instructionSources": self._sources,
            "approvalPolicy": permissions.approval_policy,
            "approvalsReviewer": "user",
            "sandbox": _shown_sandbox(permissions.sandbox_policy),
            "activePermissionProfile": None,
            "reasoningEffort": config.model.effort,
        }

    def store(self) -> None:
        """Write the first line. Raises OSError, and then leaves no file."""
        data = memoryview(compact_json(self._first_line()) + b"\n")
        fd = open_for_append(REAL_DISK, self._path, create=True)
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError:
            os.unlink(self._path)
            raise
        finally:
            os.close(fd)

    def _thread(self) -> dict[str, Json]:
        config, seconds = self._config, int(self.begun.at.timestamp())
        fields = {
            "modelProvider": config.provider.id,
            "model": config.model.name,
            "reasoningEffort": config.model.effort,
            "createdAt": seconds,
            "status": {"type": "idle"},
            "path": str(self._path),
            "cwd": str(config.cwd),
            "cliVersion": STORED_VERSION,
            "originator": self._originator,
            "source": SessionOrigin.VSCODE,
        }
        return early_thread(self.begun.id, seconds, self._git, fields)

    def _first_line(self) -> dict[str, Json]:
        """As `RolloutWriter` stores `SessionMetaLine`."""
        config, stamp = self._config, utc_timestamp(self.begun.at)
        meta: dict[str, Json] = {
            "id": self.begun.id,
            "timestamp": stamp,
            "cwd": str(config.cwd),
            "originator": self._originator,
            "cli_version": STORED_VERSION,
            "instructions": self._instructions,
            "source": SessionOrigin.VSCODE,
            "model_provider": config.provider.id,
        }
        if self._git is not None:
            meta["git"] = {key: value for key, value in asdict(self._git).items() if value is not None}
        return {"timestamp": stamp, "type": "session_meta", "payload": meta}


def _shown_sandbox(policy: SandboxPolicy) -> dict[str, Json]:
    match policy:
        case DangerFullAccess():
            return {"type": "dangerFullAccess"}
        case ReadOnly():
            return {"type": "readOnly", "networkAccess": False}
        case WorkspaceWrite():
            return {
                "type": "workspaceWrite",
                "writableRoots": list(policy.writable_roots),
                "networkAccess": policy.network_access,
                "excludeTmpdirEnvVar": policy.exclude_tmpdir_env_var,
                "excludeSlashTmp": policy.exclude_slash_tmp,
            }
        case _:
            assert_never(policy)


def _overrides(params: Json, texts: Mapping[str, str]) -> RequestOverrides | None:
    """None where a parameter is unknown, or not of the form that needs no validation."""
    given = {} if params is None else params
    if not isinstance(given, dict):
        return None
    settings: dict[str, Json] = {}
    for name, value in given.items():
        if value is None and name in (*texts, "approvalPolicy", "sandbox", "config"):
            continue
        match name, value:
            case "approvalPolicy", str() if value in set(AskForApproval):
                settings["approval_policy"] = AskForApproval(value)
            case "sandbox", str() if value in set(SandboxMode):
                settings["sandbox"] = value
            case "config", dict():
                settings["settings"] = value
            case str(), str() if name in texts and "\0" not in value and is_unicode(value):
                settings[texts[name]] = value
            case _:
                return None
    return RequestOverrides(**settings)
