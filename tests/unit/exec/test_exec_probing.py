"""What trying the sandbox leaves behind: nothing, also of servers that were killed meanwhile."""

import os
from pathlib import Path

from app_server.core.exec.probing import ABANDONED_SECONDS, FOLDER_PREFIX, sweep


def test_only_old_and_empty_folders_of_probes_are_removed(tmp_path: Path) -> None:
    now = 1_000_000.0

    def folder(name: str, age: float) -> Path:
        made = tmp_path / name
        made.mkdir()
        os.utime(made, (now - age, now - age))
        return made

    old = folder(FOLDER_PREFIX + "old", ABANDONED_SECONDS + 1)
    kept = [folder(FOLDER_PREFIX + "new", 1), folder("others", ABANDONED_SECONDS + 1)]
    full = folder(FOLDER_PREFIX + "full", 0)
    (full / "file").touch()
    os.utime(full, (1, 1))
    link = tmp_path / (FOLDER_PREFIX + "link")
    link.symlink_to(kept[1])
    sweep(str(tmp_path), now)
    assert not old.exists()
    assert all(path.exists() for path in (*kept, full, link))


def test_a_folder_that_cannot_be_read_is_no_error(tmp_path: Path) -> None:
    sweep(str(tmp_path / "missing"), 0.0)
