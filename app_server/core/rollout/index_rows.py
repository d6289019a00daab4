"""A stored thread as rows of the index, and back."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app_server.core.git.repository import Revision
from app_server.core.rollout.head import StoredSummary
from app_server.core.rollout.thread_query import source_word
from app_server.core.rollout.thread_summary import FileState, StoredThread
from protocol.ids import ConversationId, SessionOrigin

SEARCHED_CHARACTERS = 16 * 1024
"""Of a preview; what lies behind is not found."""


UNREAD, SHOWN, HIDDEN = 0, 1, 2
"""What is known of a thread: nothing; what is shown; that it cannot be read or has no message of the user."""


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Raises `sqlite3.Error`."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def forget(database: sqlite3.Connection, keys: Sequence[tuple[int, str, str]]) -> None:
    for table in ("threads", "summaries", "messages"):
        database.executemany(f"DELETE FROM {table} WHERE archived = ? AND stamp = ? AND id = ?", keys)


def note(
    database: sqlite3.Connection, key: tuple[int, str, str], state: FileState, stored: StoredThread | None
) -> None:
    """What a file said, in that state; None: nothing that is shown."""
    values = (None,) * 4 if stored is None else columns(stored)
    database.execute(
        "UPDATE threads SET known = ?, inode = ?, size = ?, changed = ?, moved = ?,"
        " source = ?, provider = ?, cwd = ?, text = ?, has_messages = 0 WHERE archived = ? AND stamp = ? AND id = ?",
        (HIDDEN if stored is None else SHOWN, *state.values, *values, *key),
    )
    if stored is not None:
        database.execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?)", (*key, to_summary(stored)))


def searched_text(stored: StoredThread) -> str:
    return clean(stored.head.preview[:SEARCHED_CHARACTERS].casefold())


def columns(stored: StoredThread) -> tuple[str, str, str, str]:
    """Source, provider, working directory and the text that is searched."""
    head = stored.head
    return (
        source_word(head.source),
        clean(head.model_provider),
        clean(os.path.normpath(head.cwd)),
        searched_text(stored),
    )


def clean(text: str) -> str:
    """Without what SQLite cannot hold or compare."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def json_array(texts: Iterable[str]) -> str:
    """For `json_each`."""
    return json.dumps([clean(each) for each in texts])


def to_summary(stored: StoredThread) -> str:
    head, git = stored.head, stored.head.git_info
    return json.dumps(
        [
            head.conversation_id,
            head.preview,
            head.timestamp,
            head.model_provider,
            head.cwd,
            head.cli_version,
            head.source,
            git and [git.commit_hash, git.branch, git.repository_url],
            head.originator,
            head.forked_from,
            stored.model,
            stored.effort,
        ],
        separators=(",", ":"),
    )


def from_summary(summary: str, path: Path, state: FileState) -> StoredThread | None:
    """None for what was not written by `to_summary`."""
    try:
        id, preview, timestamp, provider, cwd, version, source, git, originator, forked, model, effort = (
            json.loads(summary)
        )
        return StoredThread(
            StoredSummary(
                conversation_id=ConversationId(id),
                path=path,
                preview=preview,
                timestamp=timestamp,
                model_provider=provider,
                cwd=cwd,
                cli_version=version,
                source=SessionOrigin(source) if isinstance(source, str) else source,
                git_info=git and Revision(*git),
                has_user_message=True,
                originator=originator,
                forked_from=forked,
            ),
            model,
            effort,
            state,
        )
    except (ValueError, TypeError):
        return None
