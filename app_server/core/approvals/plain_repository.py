"""Whether a git command that only reads would execute nothing that the repository configures."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from app_server.beneath import Beneath
from app_server.core.real_path import real_path
from app_server.core.shell.git_commands import is_plain_repository

MAX_BYTES = 32 * 1024 * 1024
"""Of one file below `.git`. A very large repository has a larger index and counts as not plain."""


def git_is_plain(cwd: str) -> bool:
    folder = Path(real_path(cwd))
    try:
        for root in (folder, *folder.parents):
            if os.path.lexists(root / "HEAD"):
                # git would treat the folder itself as a bare repository with its own configuration.
                return False
            git = root / ".git"
            if os.path.lexists(git):
                with Beneath(git) as opened:
                    return is_plain_repository(partial(_read, opened))
    except (
        OSError
    ):  # also where `.git` is no folder, or a path that should be a regular file is something else
        pass
    return False


def _read(git: Beneath, name: str) -> bytes | None:
    try:
        return git.read(name, MAX_BYTES)
    except FileNotFoundError:
        return None
