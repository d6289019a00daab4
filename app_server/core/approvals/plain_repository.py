"""Whether a git command that only reads would execute nothing that the repository configures."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path

from app_server.core.real_path import real_path
from app_server.core.shell.safe_git import is_plain_repository

MAX_BYTES = 32 * 1024 * 1024
"""Of one file below `.git`. A very large repository has a larger index and counts as not plain."""


class _Unclear(Exception):
    """A path that should be a regular file is something else, or too large."""


def git_is_plain(cwd: str) -> bool:
    folder = Path(real_path(cwd))
    try:
        for root in (folder, *folder.parents):
            if os.path.lexists(root / "HEAD"):
                # git would treat the folder itself as a bare repository with its own configuration.
                return False
            git = root / ".git"
            if os.path.lexists(git):
                return stat.S_ISDIR(git.lstat().st_mode) and is_plain_repository(partial(_read, git))
    except (OSError, _Unclear):
        pass
    return False


def _read(git: Path, name: str) -> bytes | None:
    path = git / name
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
        raise _Unclear
    return path.read_bytes()
