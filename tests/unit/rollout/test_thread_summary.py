"""What is shown of a thread beside its turns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app_server.apis.v2.thread_view import session_source, thread_view
from app_server.core.errors import RolloutNotFound
from app_server.core.rollout.archive import archive_rollout
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.thread_notes import ThreadNotes
from app_server.core.rollout.thread_summary import ThreadOrigin, find_thread, read_thread_summary
from protocol.base import Json
from protocol.origins import SessionOrigin
from protocol.v2.thread import NotLoadedThreadStatus
from tests.unit.rollout.stored import MOMENT, conversation, conversation_id, meta, raw_line, store


def notes(home: Path) -> ThreadNotes:
    return ThreadNotes(home, lambda: 0.0)


def context(model: str, effort: str | None = None) -> bytes:
    settings = {"model": model, "cwd": "/", "effort": effort}
    return raw_line("turn_context", settings)


def test_a_thread_has_every_required_field(tmp_path: Path) -> None:
    path = store(tmp_path, conversation("first words"))
    with path.open("ab") as file:
        file.write(context("old", "low") + context("new", "high") + raw_line("event_msg", {"type": "x"}))
    os.utime(path, (5, 1_800_000_000.9))
    noted = notes(tmp_path)
    noted.set_name(conversation_id(1), "My name")
    summary = read_thread_summary(path, "default", noted)
    shown = thread_view(summary, NotLoadedThreadStatus()).to_value()
    assert shown == {
        "id": conversation_id(1),
        "sessionId": conversation_id(1),
        "forkedFromId": None,
        "parentThreadId": None,
        "preview": "first words",
        "ephemeral": False,
        "projectId": None,
        "historyMode": "legacy",
        "modelProvider": "mock",
        "model": "new",
        "reasoningEffort": "high",
        "createdAt": int(MOMENT.timestamp()),
        "updatedAt": 1_800_000_000,
        "recencyAt": 1_800_000_000,
        "status": {"type": "notLoaded"},
        "path": str(path),
        "cwd": "/work",
        "cliVersion": "1.0.0",
        "originator": "test",
        "source": "vscode",
        "threadSource": None,
        "agentNickname": None,
        "name": "My name",
        "agentRole": None,
        "gitInfo": None,
        "turns": [],
    }


def test_what_is_not_said(tmp_path: Path) -> None:
    line = {**meta().to_value(), "timestamp": "yesterday", "model_provider": None, "forked_from_id": "other"}
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(raw_line("session_meta", line))
    os.utime(path, (7, 7))
    summary = read_thread_summary(path, "default", notes(tmp_path))
    assert (summary.created_at, summary.updated_at, summary.preview) == (7, 7, "")
    assert (summary.model.provider, summary.model.name, summary.name) == ("default", None, None)
    assert summary.origin.forked_from == "other"


def test_a_damaged_end_hides_no_settings(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    with path.open("ab") as file:
        file.write(context("m") + b'{"timestamp":"x","type":"turn_context","payl')
    assert read_thread_summary(path, "p", notes(tmp_path)).model.name == "m"


def test_what_is_no_rollout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"secret\n")
    with pytest.raises(RolloutUnreadable) as error:
        read_thread_summary(tmp_path / "x", "p", notes(tmp_path))
    assert "secret" not in str(error.value)


def test_archived_threads_are_found(tmp_path: Path) -> None:
    id, path = conversation_id(1), store(tmp_path, conversation())
    assert find_thread(tmp_path, id) == path
    archived = archive_rollout(tmp_path, id, path)
    assert find_thread(tmp_path, id) == archived
    with pytest.raises(RolloutNotFound):
        find_thread(tmp_path, conversation_id(2))


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (SessionOrigin.CLI, "cli"),
        (SessionOrigin.MCP, "appServer"),
        ({"subagent": "review"}, {"subAgent": "review"}),
        ({"subagent": {"other": "mine"}}, {"subAgent": {"other": "mine"}}),
        ({"subagent": {"new": 1}}, "unknown"),
    ],
)
def test_sources(stored: Json, shown: Json) -> None:
    origin = ThreadOrigin(cwd="/", cli_version="1", originator="x", source=stored)
    source = session_source(origin)
    assert (source if isinstance(source, str) else source.to_value()) == shown
