"""The summary of a conversation from the head of its rollout, and the fields of a thread beside its turns."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from app_server.engine.storage import thread_summary as head
from app_server.engine.storage import thread_summary as summaries
from app_server.engine.storage.line_reader import FIRST_BYTES
from app_server.engine.storage.pagination import StoredHead, ThreadSummary
from app_server.engine.storage.rollout_reader import read_rollout
from app_server.engine.storage.thread_summary import (
    MAX_HEAD_LINES,
    FileState,
    MetadataStore,
    StoredThread,
    read_stored_thread,
)
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server.server.apis.v2.turn_shapes import session_source, thread_view
from app_server_protocol.encoding import Json
from app_server_protocol.ids import SessionOrigin
from app_server_protocol.rollout import GitInfo
from app_server_protocol.v2.thread import NotLoadedThreadStatus
from tests.engine.storage.stored import (
    MOMENT,
    conversation,
    conversation_id,
    meta,
    raw_line,
    read_summary,
    store,
    user,
)


def notes(home: Path) -> MetadataStore:
    return MetadataStore(home, lambda: 0.0)


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
    summary = read_summary(path, "default", noted)
    shown = thread_view(summary, NotLoadedThreadStatus()).to_value()
    assert shown == {
        "id": conversation_id(1),
        "sessionId": conversation_id(1),
        "forkedFromId": None,
        "parentThreadId": None,
        "preview": "first words",
        "ephemeral": False,
        "projectId": None,
        "historyMode": "paginated",
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
        "section": None,
        "sectionEnteredAt": None,
        "attachedToThreadId": None,
        "canAcceptDirectInput": None,
        "environments": None,
        "extra": None,
    }


def test_what_is_not_said(tmp_path: Path) -> None:
    line = {**meta().to_value(), "timestamp": "yesterday", "model_provider": None, "forked_from_id": "other"}
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(raw_line("session_meta", line))
    os.utime(path, (7, 7))
    summary = read_summary(path, "default", notes(tmp_path))
    assert (summary.created_at, summary.updated_at, summary.preview) == (7, 7, "")
    assert (summary.provider, summary.model, summary.name) == ("default", None, None)
    assert summary.forked_from == "other"


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
    source = session_source(stored)
    assert (source if isinstance(source, str) else source.to_value()) == shown


def summary_of(path: Path, *more: bytes) -> ThreadSummary:
    with path.open("ab") as file:
        file.write(b"".join(more))
    return read_summary(path, "default", notes(path.parent))


def in_use(summary: ThreadSummary) -> tuple[str, str | None, str | None]:
    return summary.provider, summary.model, summary.effort


def test_the_last_settings_at_the_end_of_the_file_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store(tmp_path, conversation())
    assert in_use(summary_of(path)) == ("mock", None, None)
    found = summary_of(
        path, context("one", "low"), b'{"type":"turn_context","payload":5}\n', b"x" * 100 + b"\n"
    )
    assert in_use(found) == ("mock", "one", "low")
    assert in_use(summary_of(path, raw_line("turn_context", {"model": 5, "effort": 5}))) == (
        "mock",
        None,
        None,
    )
    assert summary_of(path, context("last").rstrip()).model == "last"
    monkeypatch.setattr(summaries, "TAIL_BYTES", len(context("last")) - 1)
    assert summary_of(path).model == "last"
    monkeypatch.setattr(summaries, "TAIL_BYTES", 10)
    assert summary_of(path).model is None


def test_what_users_say_beside_it_counts(tmp_path: Path) -> None:
    git = {"commit_hash": "c0ffee", "branch": "main", "repository_url": None}
    path = tmp_path / "rollout"
    path.write_bytes(raw_line("session_meta", {**meta().to_value(), "git": git, "forked_from_id": "x"}))
    noted = notes(tmp_path)
    found = read_summary(path, "p", noted)
    assert (found.git, found.name, found.path) == (GitInfo(commit_hash="c0ffee", branch="main"), None, path)
    assert (found.cwd, found.cli_version, found.originator) == ("/work", "1.0.0", "test")
    assert (found.source, found.forked_from) == (SessionOrigin.VSCODE, "x")
    noted.set_revision(conversation_id(1), GitInfo(commit_hash="beef"))
    assert read_summary(path, "p", noted).git == GitInfo(commit_hash="beef")


@pytest.mark.parametrize(
    ("timestamp", "seconds"),
    [
        ("2026-01-02T03:04:05.678Z", int(MOMENT.timestamp())),
        ("2026-01-02T04:04:05+01:00", int(MOMENT.timestamp())),
        ("", 7),
    ],
)
def test_when_it_began(tmp_path: Path, timestamp: str, seconds: int) -> None:
    path = tmp_path / "rollout"
    path.write_bytes(raw_line("session_meta", {**meta().to_value(), "timestamp": timestamp}))
    os.utime(path, (7, 7))
    assert read_summary(path, "p", notes(tmp_path)).created_at == seconds


def test_numbers_of_a_file_fit_into_64_bits_with_a_sign() -> None:
    big = 2**64 - 1
    status = SimpleNamespace(st_ino=big, st_size=5, st_mtime_ns=big, st_ctime_ns=big)
    assert FileState.of(cast("os.stat_result", status)) == FileState(2**63 - 1, 5, 2**63 - 1, 2**63 - 1)
    status = SimpleNamespace(st_ino=6, st_size=5, st_mtime_ns=-7, st_ctime_ns=8)
    assert FileState.of(cast("os.stat_result", status)) == FileState(6, 5, -7, 8)


META: Json = {
    "id": conversation_id(1),
    "timestamp": "2026-01-02T03:04:05.678Z",
    "cwd": "/work",
    "originator": "test",
    "cli_version": "1.0.0",
}


def said(text: str) -> bytes:
    return raw_line("response_item", user(text).to_value())


def shown(text: str, *images: str) -> bytes:
    return raw_line("event_msg", {"type": "user_message", "message": text, "images": list(images)})


SHOWN = shown("shown")


def stored(folder: Path, *lines: bytes) -> StoredThread:
    path = folder / "rollout.jsonl"
    path.write_bytes(b"".join(lines))
    return read_stored_thread(path)


def summary(folder: Path, *lines: bytes) -> StoredHead:
    return stored(folder, *lines).head


def of_meta(folder: Path, **more: Json) -> StoredHead:
    return summary(folder, raw_line("session_meta", {**META, **more}))


def test_a_head_says_where_the_conversation_came_from(tmp_path: Path) -> None:
    git = {"commit_hash": "c0ffee", "branch": "main", "repository_url": "https://example.com"}
    found = of_meta(tmp_path, model_provider="mine", source="cli", git=git, forked_from_id="other")
    assert found == StoredHead(
        id=conversation_id(1),
        preview="",
        timestamp="2026-01-02T03:04:05.678Z",
        provider="mine",
        cwd="/work",
        cli_version="1.0.0",
        source=SessionOrigin.CLI,
        git=GitInfo(commit_hash="c0ffee", branch="main", repository_url="https://example.com"),
        originator="test",
        forked_from="other",
    )


def test_what_a_head_does_not_say(tmp_path: Path) -> None:
    found = of_meta(tmp_path)
    assert (found.provider, found.source, found.git, found.forked_from) == (
        "",
        SessionOrigin.VSCODE,
        None,
        None,
    )
    found = of_meta(tmp_path, model_provider="", git={"branch": 5}, forked_from_id=5)
    assert (found.provider, found.git, found.forked_from) == (
        "",
        GitInfo(),
        None,
    )
    assert of_meta(tmp_path, git="main").git is None


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("exec", SessionOrigin.EXEC),
        ("novel", SessionOrigin.UNKNOWN),
        (5, SessionOrigin.UNKNOWN),
        ({"subagent": "review"}, {"subagent": "review"}),
        ({"subagent": "compact"}, {"subagent": "compact"}),
        ({"subagent": {"other": "mine"}}, {"subagent": {"other": "mine"}}),
        ({"subagent": {"other": 5}}, SessionOrigin.UNKNOWN),
        ({"subagent": "novel"}, SessionOrigin.UNKNOWN),
    ],
)
def test_who_began_it(tmp_path: Path, source: Json, read: Json) -> None:
    assert of_meta(tmp_path, source=source).source == read


@pytest.mark.parametrize("key", META)
def test_metadata_without_one_of_its_fields_is_none(tmp_path: Path, key: str) -> None:
    broken = raw_line("session_meta", {**META, key: 5})
    with pytest.raises(RolloutUnreadable, match="has no session metadata"):
        summary(tmp_path, broken)
    whole = raw_line("session_meta", {**META, "cwd": "/behind"})
    assert summary(tmp_path, broken, whole).cwd == "/behind"


def test_the_first_metadata_counts(tmp_path: Path) -> None:
    lines = [raw_line("session_meta", {**META, "cwd": cwd}) for cwd in ("/first", "/second")]
    assert summary(tmp_path, *lines).cwd == "/first"


@pytest.mark.parametrize(
    ("lines", "preview"),
    [
        ([said("one"), shown("one"), said("two"), shown("two")], "one"),
        ([said("injected by a client"), said("one"), shown("one")], "one"),
        ([said("<environment_context>"), shown("one")], "one"),
        (
            [shown("a\n## My request for Codex:\nb\n## My request for Codex:\nc ")],
            "b\n## My request for Codex:\nc",
        ),
        ([shown("", "data:,"), shown("two")], "[Image]"),
        ([shown(" \n", "data:,", "data:,")], "[Image]"),
        ([shown("one", "data:,")], "one"),
        ([shown("")], ""),
    ],
)
def test_a_preview_is_the_first_thing_that_the_user_said(
    tmp_path: Path, lines: list[bytes], preview: str
) -> None:
    found = stored(tmp_path, raw_line("session_meta", META), *lines)
    assert (found.head.preview, found.has_user_message) == (preview, True)


def test_what_a_client_injected_is_no_preview(tmp_path: Path) -> None:
    found = stored(tmp_path, raw_line("session_meta", META), said("injected"))
    assert (found.head.preview, found.has_user_message) == ("", False)


def test_only_the_first_lines_are_read(tmp_path: Path) -> None:
    meta, other = raw_line("session_meta", META), raw_line("response_item", {"type": "reasoning"})
    assert stored(tmp_path, meta, *[other] * (MAX_HEAD_LINES - 2), SHOWN).has_user_message
    assert not stored(tmp_path, meta, *[other] * (MAX_HEAD_LINES - 1), SHOWN).has_user_message


def test_only_so_many_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "MAX_HEAD_BYTES", 2 * FIRST_BYTES)
    meta, far = raw_line("session_meta", META), b" " * (2 << 20) + b"\n"
    assert not stored(tmp_path, meta, far, SHOWN).has_user_message
    near = b" " * FIRST_BYTES + b"\n"
    assert stored(tmp_path, meta, near, SHOWN).has_user_message


def test_a_line_that_was_not_ended_counts(tmp_path: Path) -> None:
    assert summary(tmp_path, raw_line("session_meta", META), SHOWN.rstrip()).preview == "shown"


def test_errors_of_the_head_name_the_file_and_the_reason(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none", "no such file or directory"),
        (tmp_path / "link", "too many levels"),
    ):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to("link")
        with pytest.raises(RolloutUnreadable) as error:
            read_stored_thread(path)
        assert str(error.value).startswith(f"{path}: {reason}")
    with pytest.raises(RolloutUnreadable, match=r"^the path cannot be one of a file$"):
        read_stored_thread(Path("/x\0"))


def test_the_name_of_the_file_decides_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / f"rollout-2026-01-02T03-04-05-{conversation_id(2)}.jsonl"
    path.write_bytes(raw_line("session_meta", META))
    assert META["id"] == conversation_id(1)
    assert read_stored_thread(path).head.id == conversation_id(2)
    assert read_rollout(path).meta.id == conversation_id(2)
