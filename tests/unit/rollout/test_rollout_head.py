"""What the head of a rollout says of its conversation."""

from pathlib import Path

import pytest

from app_server.core.errors import RolloutUnreadable
from app_server.core.rollout import summary as head
from app_server.core.rollout.conversation import read_rollout
from app_server.core.rollout.lines import FIRST_BYTES
from app_server.core.rollout.summary import MAX_HEAD_LINES, StoredHead, StoredThread, read_stored_thread
from protocol.base import Json
from protocol.ids import SessionOrigin
from tests.unit.rollout.stored import conversation_id, raw_line, user

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
        git=("c0ffee", "main", "https://example.com"),
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
        (None, None, None),
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


def test_errors_name_the_file_and_the_reason(tmp_path: Path) -> None:
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
