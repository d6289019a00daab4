"""What is known of a conversation as a `Thread`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app_server.core.collector import without_collector
from app_server.core.rollout.thread_summary import ThreadOrigin, ThreadSummary
from protocol.engine.turns import TurnRecord
from protocol.origins import SessionOrigin
from protocol.v2.thread import (
    GitInfo,
    OtherSubAgentSource,
    SessionOriginWord,
    SessionSource,
    SubAgentSessionSource,
    SubAgentWord,
    Thread,
    ThreadHistoryMode,
    ThreadStatus,
)
from protocol.v2.turn import Turn, TurnItemsView

MOST_BYTES = 8 * 1024 * 1024
"""So long may the turns of one answer be together; of the turns before, the items are left out."""

ORIGINS = {
    SessionOrigin.CLI: SessionOriginWord.CLI,
    SessionOrigin.VSCODE: SessionOriginWord.VSCODE,
    SessionOrigin.EXEC: SessionOriginWord.EXEC,
    SessionOrigin.MCP: SessionOriginWord.APP_SERVER,
    SessionOrigin.UNKNOWN: SessionOriginWord.UNKNOWN,
}


def thread_view(summary: ThreadSummary, status: ThreadStatus, turns: tuple[Turn, ...] = ()) -> Thread:
    """`turns` only where the client asked for them."""
    origin, model = summary.origin, summary.model
    git = origin.git_info
    return Thread(
        id=summary.id,
        session_id=summary.id,
        forked_from_id=origin.forked_from,
        preview=summary.preview,
        ephemeral=summary.ephemeral,
        project_id=None,
        history_mode=ThreadHistoryMode.LEGACY,
        model_provider=model.provider,
        model=model.name,
        reasoning_effort=model.effort,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        recency_at=summary.updated_at,
        status=status,
        path=None if summary.path is None else str(summary.path),
        cwd=origin.cwd,
        cli_version=origin.cli_version,
        originator=origin.originator,
        source=session_source(origin),
        name=summary.name,
        git_info=GitInfo(sha=git.commit_hash, branch=git.branch, origin_url=git.repository_url)
        if git
        else None,
        turns=turns,
    )


def session_source(origin: ThreadOrigin) -> SessionSource:
    match origin.source:
        case SessionOrigin() as word:
            return ORIGINS[word]
        case {"subagent": "review" | "compact" as kind}:
            return SubAgentSessionSource(sub_agent=SubAgentWord(kind))
        case {"subagent": {"other": str(name)}}:
            return SubAgentSessionSource(sub_agent=OtherSubAgentSource(other=name))
        case _:
            return SessionOriginWord.UNKNOWN


def whole_turns(
    records: Sequence[TurnRecord], show: Callable[[TurnRecord, TurnItemsView], Turn]
) -> tuple[Turn, ...]:
    """All turns with their items, as far as one answer takes them: the newest have theirs."""
    shown: list[Turn] = []
    size = 0
    with without_collector():
        for record in reversed(records):
            turn = show(record, TurnItemsView.FULL if size <= MOST_BYTES else TurnItemsView.NOT_LOADED)
            size += len(turn.to_json())
            if size > MOST_BYTES and turn.items and shown:
                turn = show(record, TurnItemsView.NOT_LOADED)
            shown.append(turn)
    return tuple(reversed(shown))
