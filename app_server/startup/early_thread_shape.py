"""A thread as the thread API shows it, and notifications about it, without the models of that API. Fast to import."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from app_server.apis.capabilities import parse_capabilities
from app_server.startup.early_answers import compact_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app_server.core.git.revision import Revision
    from app_server.identity import EarlyInitialize
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


def early_notification(client: EarlyInitialize, method: str, params: Json) -> tuple[bytes, ...]:
    """The line without its end; none for a client that opted out of it."""
    if method in parse_capabilities(client.capabilities).opted_out:
        return ()
    return (compact_json({"method": method, "params": params, "emittedAtMs": int(time.time() * 1000)}),)
