import os
from pathlib import Path

import pytest

from app_server.core.errors import ArchiveRefused, ConversationError, RolloutBusy
from app_server.core.rollout.archive import archive_rollout, delete_rollout, require_unused, unarchive_rollout
from app_server.core.rollout.listing import walk
from app_server.core.rollout.rollout_names import journal_path
from app_server.core.rollout.writer import RolloutWriter
from protocol.ids import ConversationId
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
    assert list(walk(tmp_path)) == []


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


def test_a_conversation_that_nobody_writes_is_unused(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    require_unused(path)
    writer = RolloutWriter.resume(path, now)
    with pytest.raises(
        RolloutBusy, match=rf"^conversation {conversation_id(1)} already has an active writer$"
    ):
        require_unused(path)
    writer.close()
    require_unused(path)
    assert path.exists()
    with pytest.raises(
        ConversationError, match=r"^failed to change conversation: no such file or directory$"
    ):
        require_unused(tmp_path / "none")


def test_errors_say_what_failed(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    with pytest.raises(
        ConversationError, match=r"^failed to delete conversation: no such file or directory$"
    ):
        delete_rollout(tmp_path / "none")
    with pytest.raises(
        ConversationError, match=r"^failed to unarchive conversation: x is not the name of a rollout$"
    ):
        unarchive_rollout(tmp_path, tmp_path / "x")
    archived = archive_rollout(tmp_path, conversation_id(1), path)
    path.mkdir(parents=True)
    with pytest.raises(
        ConversationError, match=rf"^failed to unarchive conversation: {path} exists already$"
    ):
        unarchive_rollout(tmp_path, archived)
    other = store(tmp_path, conversation(), 2)
    (tmp_path / "archived_sessions" / other.name).mkdir()
    with pytest.raises(
        ConversationError,
        match=rf"^failed to archive conversation: {tmp_path}/archived_sessions/{other.name} exists already$",
    ):
        archive_rollout(tmp_path, conversation_id(2), other)
    odd = tmp_path / "odd"
    odd.write_text("")
    writer = RolloutWriter.resume(odd, now)
    with pytest.raises(RolloutBusy, match=rf"^conversation {odd} already has an active writer$"):
        delete_rollout(odd)
    writer.close()


def test_a_home_without_room_for_the_archive_keeps_its_conversation(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    (tmp_path / "archived_sessions").write_text("a file")
    with pytest.raises(ConversationError, match=r"^failed to archive conversation: "):
        archive_rollout(tmp_path, conversation_id(1), path)
    assert path.exists()


def test_a_rollout_may_be_named_from_the_home(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    upper = conversation_id(1).upper()
    moved = archive_rollout(tmp_path, ConversationId(upper), path.relative_to(tmp_path))
    assert moved.exists()


def test_a_deleted_conversation_leaves_no_journal(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    journal_path(path).write_bytes(b"x")
    delete_rollout(path)
    assert list(path.parent.iterdir()) == []


def test_who_archives_lets_go_of_the_file(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    moved = archive_rollout(tmp_path, conversation_id(1), path)
    writer = RolloutWriter.resume(moved, now)
    assert writer.problem is None
    writer.close()
