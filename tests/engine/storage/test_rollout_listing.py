"""Lists of rollouts, and the archive."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from app_server.engine.storage.pagination import ListRequest, Page, ThreadFilter, ThreadSummary
from app_server.engine.storage.rollout_files import find, walk
from app_server.engine.storage.rollout_names import journal_path
from app_server.engine.storage.stored_conversations import (
    archive_rollout,
    delete_rollout,
    require_unused,
    unarchive_rollout,
)
from app_server.engine.storage.thread_listing import ThreadLists
from app_server.engine.storage.thread_summary import MetadataStore
from app_server.engine.storage.writer import RolloutWriter
from app_server.engine.support.engine_errors import (
    ArchiveRefused,
    ConversationError,
    RolloutBusy,
    RolloutUnreadable,
)
from app_server_protocol.ids import ConversationId
from tests.engine.storage.stored import (
    MOMENT,
    asked,
    assistant,
    conversation,
    conversation_id,
    now,
    raw_line,
    read_summary,
    store,
    user,
)


def listed(
    home: Path, size: int | None = None, cursor: str | None = None, providers: frozenset[str] | None = None
) -> Page[ThreadSummary]:
    lists = ThreadLists(home, MetadataStore(home, lambda: 0.0), lambda: 0.0)
    sources = frozenset({"cli", "vscode"})
    wanted = ThreadFilter(sources=sources, default_provider="mock", providers=providers)
    return lists.page(ListRequest(filter=wanted, limit=size, cursor=cursor))


def previews(page: Page[ThreadSummary]) -> list[str]:
    return [item.preview for item in page.rows]


def store_many(home: Path, count: int) -> None:
    for number in range(count):
        store(home, conversation(f"q{number}"), number, MOMENT + timedelta(hours=number))


@pytest.mark.parametrize(("asked_for", "given"), [(0, 1), (None, 25), (1000, 100)])
def test_a_page_has_its_limits(tmp_path: Path, asked_for: int | None, given: int) -> None:
    for number in range(110):
        store(tmp_path, conversation(), number)
    assert len(listed(tmp_path, asked_for).rows) == given


def test_a_page_reads_only_the_heads_of_its_files(tmp_path: Path) -> None:
    for number in range(40):
        store(tmp_path, [*conversation(), *(assistant("x" * 5000) for _ in range(20))], number)
    opened: list[str] = []
    counting = True

    def count(event: str, arguments: tuple[object, ...]) -> None:
        if counting and event == "open" and "rollout-" in str(arguments[0]):
            opened.append(str(arguments[0]))

    sys.addaudithook(count)
    listed(tmp_path, 5)
    counting = False
    assert len(opened) == 6, "five, and one to know that there are more"


def test_a_first_message_may_be_long(tmp_path: Path) -> None:
    words = "x" * 3_000_000
    store(tmp_path, [user("<user_instructions>" + "y" * 100_000), user(words), asked(words)])
    assert len(previews(listed(tmp_path))[0]) == 3_000_000


def test_strange_things_are_passed_over(tmp_path: Path) -> None:
    folder = store(tmp_path, conversation("good")).parent
    name = "rollout-2026-01-02T00-00-00-00000000-0000-0000-0000-00000000000"
    (folder / f"{name}1.jsonl").mkdir()
    (folder / f"{name}2.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(folder / f"{name}3.jsonl")
    (folder / f"{name}4.jsonl").symlink_to("/dev/zero")
    (folder / f"{name}5.jsonl").write_bytes(b"")
    (folder / f"{name}6.jsonl").write_bytes(raw_line("session_meta", {}))
    (folder / "loop").symlink_to(tmp_path / "sessions")
    Path(os.fsdecode(os.fsencode(folder) + b"/rollout-\xff.jsonl")).write_text("x")
    (tmp_path / "sessions" / "9999999999" / "99" / "99").mkdir(parents=True)
    (tmp_path / "sessions" / "2027").symlink_to(tmp_path / "sessions" / "2026")
    lists = ThreadLists(tmp_path, MetadataStore(tmp_path, lambda: 0.0), lambda: 0.0)
    wanted = ThreadFilter(sources=frozenset({"cli", "vscode"}), default_provider="mock")
    for request in (ListRequest(filter=wanted), ListRequest(filter=wanted, by_change=True)):
        assert previews(lists.page(request)) == ["good"]
    assert find(tmp_path, conversation_id(99)) is None


def test_a_home_without_conversations_has_an_empty_list(tmp_path: Path) -> None:
    assert listed(tmp_path / "none") == Page()


def test_a_summary_of_what_is_no_rollout_is_refused_without_its_content(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    for path in (secret, tmp_path, tmp_path / "none", Path("/etc/passwd\0")):
        with pytest.raises(RolloutUnreadable) as refusal:
            read_summary(path)
        assert "hush" not in str(refusal.value)


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
    with pytest.raises(ArchiveRefused, match="does not match conversation id"):
        archive_rollout(home, conversation_id(2), path)
    with pytest.raises(ConversationError, match="failed to archive conversation") as failure:
        archive_rollout(tmp_path / "without sessions", conversation_id(1), path)
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


def test_a_conversation_that_is_written_stays_where_it_is(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    journal_path(path).write_bytes(b"x")
    writer = RolloutWriter.resume(path, now)
    for change in (
        lambda: archive_rollout(tmp_path, conversation_id(1), path),
        lambda: delete_rollout(tmp_path, path),
    ):
        with pytest.raises(RolloutBusy):
            change()
    assert path.exists()
    writer.close()
    delete_rollout(tmp_path, path)
    assert list(path.parent.iterdir()) == [], "nor is its journal left"


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
        delete_rollout(tmp_path, tmp_path / "none")
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
    with pytest.raises(RolloutBusy, match=rf"^rollout {odd} already has an active writer$"):
        delete_rollout(tmp_path, odd)
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
