"""Reads which repositories of other users the user has declared safe, by `safe.directory` in git's settings. Git works
in them, and this server reads files of them. It reads the settings of the user and of the system, never those of a
repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from app_server.engine.support.real_path import real_path
from app_server.engine.support.rooted_fs import read_named
from app_server.engine.workspace.git.repository import git_settings

MAX_BYTES = 1024 * 1024
MAX_INCLUDES = 10
"""Maximum depth of files that include one another, which is git's maximum, too."""


def is_safe_directory(folder: Path, environment: Mapping[str, str]) -> bool:
    """Return whether the user has declared the repository at this real path safe, though it belongs to another user."""
    safe = False
    for named in _named(environment):
        # An empty value resets the earlier ones.
        safe = bool(named) and (safe or named == "*" or _names(named, folder))
    return safe


def _names(named: str, folder: Path) -> bool:
    """Return whether a value, `/a` or `/a/*`, covers a folder."""
    if not os.path.isabs(named):
        return False
    if named.endswith("/*"):
        return Path(real_path(named[:-2])) in folder.parents
    return real_path(named) == str(folder)


def _named(environment: Mapping[str, str]) -> Iterator[str]:
    home = environment.get("HOME", "")
    for file in _files(environment, home):
        yield from _named_in(file, home, MAX_INCLUDES)


def _files(environment: Mapping[str, str], home: str) -> Iterator[str]:
    if environment.get("GIT_CONFIG_NOSYSTEM") is None:
        yield environment.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig")
    chosen = environment.get("GIT_CONFIG_GLOBAL")
    if chosen is not None:
        yield chosen
    elif os.path.isabs(home):
        yield os.path.join(environment.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git/config")
        yield os.path.join(home, ".gitconfig")


def _named_in(file: str, home: str, deeper: int) -> Iterator[str]:
    if not os.path.isabs(file):
        return
    try:
        text = read_named(file, MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    for key, value in git_settings(text):
        expanded = os.path.join(home, value[2:]) if value.startswith("~/") else value
        if key == "safe.directory":
            yield expanded
        elif key == "include.path" and deeper:
            yield from _named_in(os.path.join(os.path.dirname(file), expanded), home, deeper - 1)
