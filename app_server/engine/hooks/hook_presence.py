"""Looks whether a thread may have hooks at all, before anything of them is loaded: one status for each possible file.
Reads the disk; blocks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.engine.config.hook_settings import HOOKS, STATE
from app_server.engine.config.toml_file import CONFIG_FILE, read_config_file
from app_server.engine.support.engine_errors import ConfigError

if TYPE_CHECKING:
    from app_server.engine.config.config_values import Config

HOOKS_FILE = "hooks.json"
CODEX_FOLDER = ".codex"


def may_have_hooks(config: Config, cwd: str) -> bool:
    """Return whether the home, the user's settings, the command line, the request that opened the thread, or a folder
    from the repository's root to `cwd` may define hooks. Settings that cannot be read may do so.
    """
    home = config.home
    given = config.hook_overrides.get(HOOKS)
    if isinstance(given, Mapping) and given.keys() - {STATE}:
        return True
    if os.path.lexists(home / HOOKS_FILE) or _in_project(home, cwd):
        return True
    try:
        facts = os.stat(home / CONFIG_FILE)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return _in_settings(home, (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))


@lru_cache(maxsize=16)
def _in_settings(home: Path, version: tuple[int, ...]) -> bool:
    """Return whether the user's settings have the table. They are read once for each version of the file."""
    try:
        return HOOKS in read_config_file(home)
    except ConfigError:
        return True


def _in_project(home: Path, cwd: str) -> bool:
    folder = os.path.realpath(cwd)
    while True:
        settings = os.path.join(folder, CODEX_FOLDER)
        if os.path.lexists(settings) and settings != os.path.realpath(home):
            names = (os.path.join(settings, name) for name in (HOOKS_FILE, CONFIG_FILE))
            if any(map(os.path.lexists, names)):
                return True
        parent = os.path.dirname(folder)
        if parent == folder or os.path.lexists(os.path.join(folder, ".git")):
            return False
        folder = parent
