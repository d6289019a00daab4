"""Checks of the server's home: whether it can be written, who may read the credentials, and locks that are held."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from app_server.core import remedies
from app_server.core.auth.storage import AUTH_FILE
from app_server.core.diagnostics.machine import FreeSpace
from app_server.core.rollout.disk import history_lock, lines_lock
from app_server.core.rollout.rollout_names import ARCHIVED, SESSIONS
from protocol.checks import Check, broken, ok, warning

LOCK_SECONDS = 1.0
"""Far longer than any server holds a lock of the home."""

NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


def check_home(home: Path) -> Check:
    """Write a file into each folder that the server writes to, and remove it. Creates no folder."""
    place = _nearest(home)
    folders = [place] if place != home else [home, *(home / name for name in (SESSIONS, ARCHIVED, "tmp"))]
    for folder in folders:
        if folder != place and not folder.exists():
            continue
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            problem = remedies.home_unwritable(str(home), reason if folder == home else f"{folder}: {reason}")
            return broken("home", problem.what, problem.advice)
    return ok("home", str(home) if place == home else f"{home}, which the first conversation creates")


def check_credentials_file(home: Path) -> Check:
    path = home / AUTH_FILE
    try:
        status = path.stat()
    except OSError:
        return ok("credentials", "no login is stored")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        return warning("credentials", f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
    return ok("credentials", f"{path}, readable by its owner only")


def check_locks(home: Path, workspace: Path, seconds: float = LOCK_SECONDS) -> Check:
    """Report locks of the home that a server does not give back, and a lock file that git left in the workspace."""
    if home.is_dir():
        for what, lock in (("the message history", history_lock), ("names and metadata", lines_lock)):
            try:
                with lock(home, seconds):
                    pass
            except BlockingIOError:
                return warning(
                    "locks",
                    f"another process has held the lock of {what} in {home} for {seconds:g} seconds",
                    "end the process that holds it (`lslocks` shows it); with it the lock ends",
                )
            except OSError as error:
                if error.errno in NO_LOCKS:
                    advice = "set CODEX_HOME to a folder on a local disk"
                    return warning("locks", f"the file system of {home} has no locks", advice)
                # What cannot be written has no locks to look at; `check_home` reports it.
                break
    left = workspace / ".git" / "index.lock"
    if left.exists():
        return warning(
            "locks", f"{left} exists", "remove it unless a git command runs; it blocks every other one"
        )
    return ok("locks", "none is held")


def free_space(place: Path) -> FreeSpace:
    """Return the free bytes at a path. Raises OSError."""
    found = os.statvfs(_nearest(place))
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def _nearest(folder: Path) -> Path:
    """Return the folder, or the first of its parents that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
