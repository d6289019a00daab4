"""Finds the user's git program: in the usual folders, or else on the PATH.

The server runs it with the user's rights and without a sandbox. So a folder of the PATH counts only if neither other
users nor commands of a model could have placed the program there. It and all folders above must belong to the user or
to root and must not be writable by every user. None of them may be a repository, the folder of this server or one for
temporary files. A program that is replaced while the server runs is not run any more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from app_server.engine.config.project_trust import marks_repository
from app_server.engine.support.real_path import real_path, within
from app_server.engine.workspace.git.run_git import USUAL_FOLDERS, GitProgram, identity_of

TEMPORARY = ("/tmp", "/var/tmp")
MOST_FOLDERS = 256
"""Maximum number of folders of a PATH that are searched."""


def find_git(environment: Mapping[str, str], cwd: str | os.PathLike[str]) -> GitProgram:
    """Return the git program; if none is found, the usual one, which may not exist. `cwd` is the working directory of
    the server.
    """
    if any(_runs(f"{folder}/git") for folder in USUAL_FOLDERS.split(":")):
        return GitProgram()
    changeable = [
        real_path(folder) for folder in (cwd, *TEMPORARY, environment.get("TMPDIR") or "/") if folder
    ]
    for folder in environment.get("PATH", "").split(":")[:MOST_FOLDERS]:
        program = real_path(f"{folder}/git")
        if os.path.isabs(folder) and _runs(program) and _is_out_of_reach(program, changeable):
            return GitProgram(program, f"{folder}:{USUAL_FOLDERS}", identity_of(program))
    return GitProgram()


def _runs(program: str) -> bool:
    return os.path.isfile(program) and os.access(program, os.X_OK)


def _is_out_of_reach(program: str, changeable: list[str]) -> bool:
    if any(within(program, folder) for folder in changeable if folder != "/"):
        return False
    for place in (Path(program), *Path(program).parents):
        try:
            status = os.stat(place)
        except OSError:
            return False
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
            return False
        if marks_repository(place / ".git"):
            return False
    return True
