"""Determines whether the user trusts a folder, by `[projects."/path"] trust_level`.

The trust level of a repository applies to all of it and to its linked worktrees. The repository's own claims are not
trusted: a `.git` file marks a linked worktree only if the repository that it names points back to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from app_server.engine.support.real_path import real_path
from app_server.engine.support.rooted_fs import read_named

MAX_POINTER_BYTES = 8192
"""Maximum size of a `.git` file, in bytes: it is one line with one path."""

TRUST_LEVELS: Mapping[str, bool] = {"trusted": True, "untrusted": False}


def trust_of(cwd: Path, levels: Mapping[str, str]) -> bool | None:
    """Return the user's decision for `cwd` itself, else for its repository; None if there is none."""
    if not levels:
        return None
    here = real_path(cwd)
    for folder in (here, main_worktree(Path(here))):
        level = _level(folder, levels) if folder is not None else None
        if level is not None:
            return TRUST_LEVELS.get(level)
    return None


def marks_repository(marker: Path | str) -> bool:
    """Return whether a `.git` belongs to a repository: it is a file that points to one, or a folder with a HEAD.
    Empty `.git` folders come from sandboxes, which keep commands from creating a repository there.
    """
    return os.path.isfile(marker) or os.path.lexists(os.path.join(marker, "HEAD"))


def main_worktree(folder: Path) -> str | None:
    """Return the top of the repository that contains `folder`; for a linked worktree, the top of the main worktree."""
    for top in (folder, *folder.parents):
        marker = top / ".git"
        if os.path.isdir(marker):
            if marks_repository(marker):
                return str(top)
        elif os.path.lexists(marker):
            # This is the top of a linked worktree if its administrative folder confirms the link.
            git_dir = confirmed_git_dir(marker)
            return str(git_dir.parent if git_dir is not None and git_dir.name == ".git" else top)
    return None


def _level(folder: str, levels: Mapping[str, str]) -> str | None:
    exact = levels.get(folder)
    if exact is not None:
        return exact
    place = _place(folder)
    for path, level in levels.items():
        # Resolving real paths is slow, and there may be a thousand entries.
        if os.path.isabs(path) and "\0" not in path and _place(path) == place and real_path(path) == folder:
            return level
    return None


def _place(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def confirmed_git_dir(marker: Path) -> Path | None:
    """Return the common Git directory of the linked worktree that has this `.git` file; None if that directory does not
    point back to the file.
    """
    pointer = _one_line(marker)
    if pointer is None or not pointer.startswith("gitdir: "):
        return None
    admin = Path(real_path(marker.parent / pointer.removeprefix("gitdir: ")))
    back = _one_line(admin / "gitdir")
    if admin.parent.name != "worktrees" or back is None or real_path(admin / back) != real_path(marker):
        return None
    return admin.parent.parent


def _one_line(path: Path) -> str | None:
    try:
        text = os.fsdecode(read_named(path, MAX_POINTER_BYTES)).strip()
    except OSError:
        return None
    return text if text and "\0" not in text else None
