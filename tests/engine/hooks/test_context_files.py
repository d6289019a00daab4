"""Files with the whole of what hooks told the model: where they are, and when the oldest ones go."""

import os
from pathlib import Path

import pytest

from app_server.engine.hooks import context_files
from app_server.engine.hooks.context_files import remove_contexts, write_context


def test_the_oldest_files_of_all_threads_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_files, "MOST_FILES", 3)
    written = []
    for number, thread in enumerate(("old", "old", "other", "other", "new")):
        path = write_context(tmp_path, thread, f"text {number}")
        os.utime(path, (number, number))
        written.append(path)
    assert [Path(path).read_text() for path in written if os.path.exists(path)] == [
        "text 2",
        "text 3",
        "text 4",
    ]
    assert {path.name for path in (tmp_path / "tmp/hook-contexts").iterdir()} == {"other", "new"}


def test_only_the_user_can_read_them_and_a_thread_without_any_has_nothing_to_remove(tmp_path: Path) -> None:
    path = write_context(tmp_path, "thread", "\ud800 text")
    assert Path(path).read_bytes() == b"? text"
    assert (os.stat(path).st_mode & 0o777, os.stat(os.path.dirname(path)).st_mode & 0o777) == (0o600, 0o700)
    remove_contexts(tmp_path, "another")
    remove_contexts(tmp_path, "thread")
    assert not os.path.exists(path)
