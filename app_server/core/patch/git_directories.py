"""Finds the git directories near the paths that a patch writes: git executes hooks and settings in them.

Reads the disk: a `.git` file points to another directory, and a git directory can have any name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from app_server.core.patch.disk_files import read_regular
from app_server.core.patch.planner import Snapshot
from app_server.core.real_path import real_path

POINTER = b"gitdir:"
GIT_LAYOUT = ("HEAD", "objects", "refs")


def git_directories(paths: Sequence[str], roots: Sequence[str], home: str) -> tuple[str, ...]:
    """Git directories among the parents of `paths`, and targets of `.git` files there, up to the roots."""
    found: dict[str, None] = {}
    for folder in dict.fromkeys(folder for path in paths for folder in _parents(path, roots)):
        if all(os.path.lexists(os.path.join(folder, name)) for name in GIT_LAYOUT):
            found[folder] = None
        target = _pointed_to(folder, home)
        if target is not None:
            found[target] = None
    return tuple(found)


def _parents(path: str, roots: Sequence[str]) -> Iterator[str]:
    """The directories from the parent of `path` up to the outermost root that contains it."""
    holding = [root.rstrip("/") for root in roots if path.startswith(root.rstrip("/") + "/")]
    if not holding:
        return
    outermost = min(holding, key=len)
    folder = os.path.dirname(path)
    while folder.startswith(outermost) and len(folder) > 1:
        yield folder
        folder = os.path.dirname(folder)


def _pointed_to(folder: str, home: str) -> str | None:
    found = read_regular(os.path.join(folder, ".git"), home)
    if not isinstance(found, Snapshot) or not found.content.startswith(POINTER):
        return None
    target = os.fsdecode(found.content.removeprefix(POINTER).split(b"\n")[0].strip())
    if not target or "\0" in target:
        return None
    return real_path(os.path.join(folder, target))
