from __future__ import annotations

import os
from pathlib import Path

import pytest

from app_server.core.errors import ConversationError
from app_server.core.rollout.archive import archive_rollout, delete_rollout, unarchive_rollout
from app_server.core.rollout.listing import list_conversations
from app_server.core.rollout.rollout_errors import ArchiveRefused, RolloutBusy
from app_server.core.rollout.rollout_names import journal_path
from app_server.core.rollout.writer import RolloutWriter
from tests.unit.rollout.stored import conversation, conversation_id, now, store


def test_an_archived_conversation_is_not_listed_any_more(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    journal_path(path).write_bytes(b"")
    moved = archive_rollout(tmp_path, conversation_id(1), path)
    assert moved == tmp_path / "archived_sessions" / path.name
    assert moved.is_file()
    assert not path.exists()
    assert journal_path(moved).exists()
    assert moved.parent.stat().st_mode & 0o777 == 0o700
    assert list_conversations(tmp_path, default_provider="mock").items == ()


def test_only_a_rollout_of_this_home_is_archived(tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = store(home, conversation())
    outside = tmp_path / path.name
    outside.write_bytes(b"outside")
    link = path.with_name(path.name.replace("000001", "000002"))
    link.symlink_to(outside)
    for wrong in (outside, link, Path(f"{path}.wrong"), path.parent, Path("/etc/passwd"), Path("x\0y")):
        with pytest.raises(ArchiveRefused, match="must be in sessions directory"):
            archive_rollout(home, conversation_id(1), wrong)
    assert path.exists()


def test_the_rollout_must_be_that_conversations(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    with pytest.raises(ArchiveRefused, match="does not match conversation id"):
        archive_rollout(tmp_path, conversation_id(2), path)


def test_a_home_without_sessions_has_nothing_to_archive(tmp_path: Path) -> None:
    with pytest.raises(ConversationError, match="failed to archive conversation") as failure:
        archive_rollout(tmp_path, conversation_id(1), Path("/nowhere.jsonl"))
    assert not isinstance(failure.value, ArchiveRefused)


def test_an_archived_conversation_comes_back_to_the_folder_of_its_day(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    journal_path(path).write_bytes(b"x")
    archived = archive_rollout(tmp_path, conversation_id(1), path)
    os.utime(archived, (5, 5))
    assert unarchive_rollout(tmp_path, archived) == path
    assert journal_path(path).exists()
    assert not archived.exists()
    assert path.stat().st_mtime > 5


def test_nothing_is_replaced(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    archived = archive_rollout(tmp_path, conversation_id(1), path)
    again = store(tmp_path, conversation("another"))
    with pytest.raises(ConversationError, match="exists already"):
        unarchive_rollout(tmp_path, archived)
    with pytest.raises(ConversationError, match="exists already"):
        archive_rollout(tmp_path, conversation_id(1), again)
    assert archived.read_bytes() != again.read_bytes()


def test_a_conversation_that_is_written_stays_where_it_is(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    writer = RolloutWriter.resume(path, now)
    for change in (lambda: archive_rollout(tmp_path, conversation_id(1), path), lambda: delete_rollout(path)):
        with pytest.raises(RolloutBusy):
            change()
    assert path.exists()
    writer.close()
    delete_rollout(path)
    assert list(path.parent.iterdir()) == []
