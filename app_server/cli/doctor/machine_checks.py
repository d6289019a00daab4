"""Checks of the machine: system, sandbox, git, disk space. Checks of the server's home: whether it is writable, who may
read the credentials, and locks that are held. Checks of the settings: whether a conversation could begin with them, and
which of them have no effect.

This module also removes the credentials in the settings from the texts of all checks, because programs and providers
may quote their input.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from app_server.cli.doctor.checks import Check, broken, ok, warning
from app_server.engine.auth.credentials import AUTH_FILE, StoredAuth
from app_server.engine.config.config_values import Config
from app_server.engine.config.toml_file import CONFIG_FILE
from app_server.engine.sandbox.exec.command import secret_values
from app_server.engine.sandbox.plan import SandboxLayer, SandboxState
from app_server.engine.storage.disk import HISTORY, NOTES, home_lock
from app_server.engine.storage.rollout_names import ARCHIVED, SESSIONS
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ConfigError, describe
from app_server.engine.support.redaction import MASK, masked_text
from app_server_protocol.policy import AskForApproval
from app_server_protocol.values import replace

LITTLE_BYTES = 1 << 30
"""Free space below which a check warns, in bytes: a few long conversations need it."""

TOO_FEW_BYTES = 32 << 20
"""Free space below which a check fails, in bytes: soon no conversation could be stored."""

FEW_FILES = 1000


class FreeSpace(Struct, frozen=True):
    """Free space of a file system for this user."""

    free_bytes: int
    free_files: int | None
    """Number of files that can still be created; None if the file system has no limit."""


def check_system(platform: str, release: str, machine: str) -> Check:
    found = f"{platform} {release} on {machine}"
    if platform not in ("linux", "darwin"):
        return broken(
            "system", found, "run the server on Linux or macOS; no other system has a sandbox for it"
        )
    return ok("system", found)


def check_sandbox(state: SandboxState, layers: Sequence[SandboxLayer]) -> Check:
    """Check the sandbox. `layers` are the results of testing each layer alone."""
    found = "; ".join(
        f"{layer.name}: {'holds' if layer.problem is None else f'does not hold ({layer.problem})'}"
        for layer in layers
    )
    match state.level:
        case "full":
            return ok("sandbox", f"full: {found}")
        case "degraded":
            problem = user_messages.weaker_sandbox(state.reason, "; ".join(state.gaps))
            return warning("sandbox", f"{problem.what} ({found})", problem.advice)
        case "none":
            problem = user_messages.no_sandbox(state.reason)
            return broken("sandbox", f"{problem.what} ({found})", problem.advice)


def check_git(version: str | None, search_path: str) -> Check:
    """Check git. `version` is the output of `git --version`; None if there is no git."""
    if version is None:
        problem = user_messages.git_missing(search_path)
        return warning("git", problem.what, problem.advice)
    return ok("git", version.strip())


OLDEST_GIT = (2, 15)
"""The oldest version of git that knows the options which this server gives to every git command."""


def check_batches(git: str | None, *, ray: bool) -> Check:
    """Check the requirements of `app-server batch`. `git` is the output of `git --version`; None if there is no git."""
    found = re.search(r"(\d+)\.(\d+)", git or "")
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        advice = "install git 2.15 or newer, or use --checkout none"
        return warning("batches", "tasks cannot have git worktrees", advice)
    runner = "Ray is installed" if ray else "Ray is not installed, which only --ray needs"
    return ok("batches", f"git makes worktrees; {runner}")


def check_disk(name: str, place: str, space: FreeSpace) -> Check:
    found = f"{_megabytes(space.free_bytes)} free at {place}"
    advice = f"free some space at {place}; every conversation is stored"
    if space.free_bytes < TOO_FEW_BYTES:
        return broken(name, found, advice)
    if space.free_files is not None and space.free_files < FEW_FILES:
        return warning(name, f"{found}, but only {space.free_files} more files", f"remove files at {place}")
    if space.free_bytes < LITTLE_BYTES:
        return warning(name, found, advice)
    return ok(name, found)


def _megabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


LOCK_SECONDS = 1.0
"""Timeout of taking a lock of the home, in seconds. It is far longer than any server holds one."""

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
            reason = describe(error)
            problem = user_messages.home_unwritable(
                str(home), reason if folder == home else f"{folder}: {reason}"
            )
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
    """Check the locks of the home, which a server may not release, and the lock file that git may have left in the
    workspace.
    """
    if home.is_dir():
        for what, place in (("the message history", HISTORY), ("names and metadata", NOTES)):
            try:
                with home_lock(home, place, seconds):
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
                # A home that is not writable has no locks to check; `check_home` reports it.
                break
    left = workspace / ".git" / "index.lock"
    if left.exists():
        return warning(
            "locks", f"{left} exists", "remove it unless a git command runs; it blocks every other one"
        )
    return ok("locks", "none is held")


def free_space(place: Path) -> FreeSpace:
    """Return the free space at a path. Raises OSError."""
    found = os.statvfs(_nearest(place))
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def _nearest(folder: Path) -> Path:
    """Return the folder; if it does not exist, the nearest of its parents that does."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def check_config(home: Path, loaded: Config | ConfigError) -> list[Check]:
    """Return one check for each problem, or one if there is none. `loaded` is the result of loading the
    configuration.
    """
    path = home / CONFIG_FILE
    if isinstance(loaded, ConfigError):
        place = str(loaded.position or path)
        return [
            broken(
                "config",
                str(loaded),
                f"correct {place}; `app-server config edit` checks it before it is saved",
            )
        ]
    warnings = [
        warning("config", str(each), f"correct or remove it in {path}") for each in loaded.notices.warnings
    ]
    old = [
        warning("config", f"`{name}` is an old name", f"write `[features].{present}` in {path}")
        for name, present in loaded.notices.old_names
    ]
    if loaded.thread.approval_policy is AskForApproval.UNTRUSTED:
        policy = user_messages.UNTRUSTED_POLICY
        old.append(warning("config", policy.what, policy.advice))
    if warnings or old:
        return [*warnings, *old]
    profile = f", profile {loaded.profile}" if loaded.profile else ""
    return [
        ok("config", f"{path}{profile}" if path.exists() else f"no {path}; every setting has its default")
    ]


SHORTEST = 6
"""Minimum number of characters of a credential. A shorter value is none, and its replacement would damage other
words.
"""


def known_credentials(
    environment: Mapping[str, str], login: StoredAuth | None, config: Config | None
) -> Sequence[str]:
    """Return the credentials in one home, configuration and environment, the longest first: a long one may contain a
    short one.
    """
    found = [*secret_values(environment)]
    if login is not None:
        found.append(login.api_key or "")
        if login.tokens is not None:
            found += (login.tokens.id_token, login.tokens.access_token, login.tokens.refresh_token)
    if config is not None:
        found += (environment.get(name, "") for name in config.credential_variables())
        found += (value for _, _, value in config.configured_values())
    return sorted({value.strip() for value in found if len(value.strip()) >= SHORTEST}, key=len, reverse=True)


def redacted(check: Check, credentials: Sequence[str]) -> Check:
    def shown(text: str) -> str:
        for each in credentials:
            text = text.replace(each, MASK)
        return masked_text(text)

    return replace(check, found=shown(check.found), advice=shown(check.advice))
