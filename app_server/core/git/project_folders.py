"""The folders of a project in which files for the agent are looked for: from the repository's root to the working
directory.

A repository is not trusted. As in git, `.git` must belong to the user or to root, and so must the files and the links
to them: otherwise anybody could instruct the model through a shared folder such as /tmp. Write permissions do not
count, because on some file systems everybody has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from app_server.core.real_path import real_path

OnRefusal = Callable[[str], None]
"""Receives a message for the user about what was not read."""


def project_folders(cwd: Path, purpose: str, on_refusal: OnRefusal) -> list[Path]:
    """From the repository's root to `cwd`, without links; only `cwd` outside a repository, or in another user's.

    `purpose` is what is looked for, in the message about a repository of another user.
    """
    cwd = Path(real_path(cwd))
    chain = [cwd]
    for directory in (cwd, *cwd.parents):
        if directory != cwd:
            chain.append(directory)
        marker = directory / ".git"
        if os.path.exists(marker):
            if not is_strange(marker):
                return chain[::-1]
            on_refusal(f"{marker} belongs to another user: {purpose} above {cwd} are not looked for.")
            break
    return [cwd]


def is_strange(path: Path) -> bool:
    """Whether the entry itself, not the target of a link, belongs to another user than this one and root."""
    try:
        return belongs_to_another(os.lstat(path))
    except OSError:
        return False


def belongs_to_another(facts: os.stat_result) -> bool:
    return facts.st_uid not in (os.geteuid(), 0)
