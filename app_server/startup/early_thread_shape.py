"""A thread as the thread API shows it, without the models of that API. Fast to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app_server.core.git.revision import Revision
    from protocol.base import Json

FIELDS: Final[Mapping[str, Json]] = {
    "id": None,
    "sessionId": None,
    "forkedFromId": None,
    "parentThreadId": None,
    "preview": "",
    "ephemeral": False,
    "projectId": None,
    "historyMode": "legacy",
    "modelProvider": None,
    "model": None,
    "reasoningEffort": None,
    "createdAt": None,
    "updatedAt": None,
    "recencyAt": None,
    "status": None,
    "path": None,
    "cwd": None,
    "cliVersion": None,
    "originator": None,
    "source": None,
    "threadSource": None,
    "agentNickname": None,
    "name": None,
    "agentRole": None,
    "gitInfo": None,
    "turns": [],
}
"""In the order in which the server writes them, with what is the same for every thread that is shown early."""


def early_thread(
    id: str, updated_at: int, git: Revision | None, fields: Mapping[str, Json]
) -> dict[str, Json]:
    """`fields`: the others of this thread, by their names on the wire. `updated_at` in seconds since 1970."""
    return {
        **FIELDS,
        **fields,
        "id": id,
        "sessionId": id,
        "updatedAt": updated_at,
        "recencyAt": updated_at,
        "gitInfo": git and {"sha": git.commit_hash, "branch": git.branch, "originUrl": git.repository_url},
    }
