"""The settings of a conversation's last turn without models; `last_settings` has them for all files. Fast to import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app_server.core.rollout.disk import open_for_reading
from app_server.core.rollout.objects import parse_record
from app_server.core.rollout.plain_messages import NotPlain
from app_server.core.rollout.rollout_lines import lines_from_the_end
from protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    QuestionKinds,
    ReadOnly,
    SandboxMode,
    SandboxPolicy,
    TurnMode,
    WorkspaceWrite,
)
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

MARK: Final = b'"turn_context"'
UNUSUAL: Final = ("granular", "permission_profile", "mode", "mode_instructions")
FLAGS: Final = ("network_access", "exclude_tmpdir_env_var", "exclude_slash_tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSettings:
    """As `TurnContextItem`, without what is unusual."""

    cwd: str
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    model: str
    chosen_effort: str | None
    granular: QuestionKinds | None = None
    permission_profile: str | None = None
    mode: TurnMode | None = None
    mode_instructions: str | None = None


def plain_last_settings(path: Path) -> PlainSettings | None:
    """None where no turn was stored. Raises NotPlain and OSError."""
    fd = open_for_reading(path)
    try:
        line = next((line for line in lines_from_the_end(fd) if MARK in line), None)
    finally:
        os.close(fd)
    return None if line is None else _settings(parse_record(line))


def _settings(record: Json) -> PlainSettings:
    match record:
        case {
            "type": "turn_context",
            "payload": {
                "cwd": str(cwd),
                "approval_policy": str(policy),
                "sandbox_policy": dict(sandbox),
                "model": str(model),
            } as found,
        } if policy in set(AskForApproval) and not found.keys() & set(UNUSUAL):
            efforts = [found.get(name) for name in ("further_effort", "effort")]
            if not all(effort is None or isinstance(effort, str) for effort in efforts):
                raise NotPlain
            return PlainSettings(
                cwd=cwd,
                approval_policy=AskForApproval(policy),
                sandbox_policy=_sandbox(sandbox),
                model=model,
                chosen_effort=efforts[0] or efforts[1],
            )
        case _:
            raise NotPlain


def _sandbox(found: Mapping[str, Json]) -> SandboxPolicy:
    match found.get("mode"):
        case SandboxMode.DANGER_FULL_ACCESS:
            return DangerFullAccess()
        case SandboxMode.READ_ONLY:
            return ReadOnly()
        case SandboxMode.WORKSPACE_WRITE:
            roots, flags = found.get("writable_roots", []), {name: found.get(name, False) for name in FLAGS}
            if not isinstance(roots, list) or not all(
                isinstance(root, str) and root[:1] == "/" for root in roots
            ):
                raise NotPlain
            if not all(isinstance(flag, bool) for flag in flags.values()):
                raise NotPlain
            return WorkspaceWrite(writable_roots=tuple(roots), **flags)
        case _:
            raise NotPlain
