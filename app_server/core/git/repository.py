"""Reads a git repository's files without running git: its location, HEAD and references.

It executes nothing of a repository and does not trust its files: it reads only regular files up to a maximum size, and
follows only names that git itself would write. It ignores bare repositories, because a folder in a working tree can
imitate one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from app_server.beneath import Beneath, read_named
from app_server.core.config.trust import confirmed_git_dir
from app_server.core.git.config_file import parse_git_config
from app_server.core.real_path import real_path
from protocol.records import dataclass

MAX_FILE_BYTES = 64 * 1024
MAX_CONFIG_BYTES = 1024 * 1024
MAX_PACKED_REFS_BYTES = 16 * 1024 * 1024
MAX_REF_DEPTH = 5

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF_NAME = re.compile(r"refs/(?!.*(?:^|/)\.)(?!.*\.\.)[^\x00-\x20\x7f~^:?*\[\\]+")


@dataclass(frozen=True, slots=True)
class Repository:
    """A working tree and its git directory, by their real paths; a linked worktree shares data in a separate common
    directory."""

    root: Path
    git_dir: Path
    common_dir: Path

    @property
    def objects_dir(self) -> Path:
        return self.common_dir / "objects"


def find_repository(folder: Path) -> Repository | None:
    """Return the repository whose working tree contains `folder`."""
    folder = Path(real_path(folder))
    for root in (folder, *folder.parents):
        entry = root / ".git"
        try:
            mode = entry.stat().st_mode
        except (OSError, ValueError):
            continue
        git_dir = Path(real_path(entry)) if stat.S_ISDIR(mode) else _linked_git_dir(entry)
        if git_dir is None or not os.path.isfile(git_dir / "HEAD"):
            continue
        shared = (read_small(git_dir / "commondir") or "").strip()
        common_dir = Path(real_path(git_dir / shared)) if shared else git_dir
        return Repository(root, git_dir, common_dir)
    return None


def _linked_git_dir(entry: Path) -> Path | None:
    """Return the target of a `.git` file (of a worktree or a submodule)."""
    text = read_small(entry) or ""
    target = text.removeprefix("gitdir:").strip()
    if not text.startswith("gitdir:") or not target or "\n" in target or "\0" in target:
        return None
    return Path(real_path(entry.parent / target))


def config_of(repository: Repository) -> Mapping[str, str]:
    """Return the repository's own settings, without what they include."""
    return parse_git_config(read_small(repository.common_dir / "config", MAX_CONFIG_BYTES) or "")


def is_own(repository: Repository) -> bool:
    """Tell whether git's folder and objects are those of this working tree: in it, without links, or in a repository
    that points back to it. A command can make a `.git` that leads anywhere.
    """
    marker = repository.root / ".git"
    if marker == repository.git_dir == repository.common_dir:
        confirmed = True
    elif marker.is_symlink():
        confirmed = False
    else:
        tree = config_of(repository).get("core.worktree")  # set in a submodule
        confirmed = confirmed_git_dir(marker) == repository.common_dir or (
            tree is not None and real_path(repository.git_dir / tree) == str(repository.root)
        )
    try:
        with Beneath(repository.common_dir) as opened:
            return confirmed and stat.S_ISDIR(opened.stat("objects").st_mode)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Head:
    """What is checked out. A branch without a commit is unborn; without a branch, HEAD is detached."""

    branch: str | None
    commit: str | None


def read_head(repository: Repository) -> Head:
    text = (read_small(repository.git_dir / "HEAD") or "").strip()
    if not text.startswith("ref:"):
        return Head(None, text if _OBJECT_ID.fullmatch(text) else None)
    ref = text.removeprefix("ref:").strip()
    branch = ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None
    if branch == ".invalid":
        # The content of HEAD in repositories with the reftable format, which this module does not read.
        return Head(None, None)
    return Head(branch, resolve_ref(repository, ref))


def resolve_ref(repository: Repository, ref: str) -> str | None:
    """The object id of a reference."""
    for _ in range(MAX_REF_DEPTH):
        if not _REF_NAME.fullmatch(ref):
            return None
        text = read_small(repository.git_dir / ref) or read_small(repository.common_dir / ref)
        if text is None:
            return _packed_ref(repository, ref)
        text = text.strip()
        if not text.startswith("ref:"):
            return text if _OBJECT_ID.fullmatch(text) else None
        ref = text.removeprefix("ref:").strip()
    return None


def _packed_ref(repository: Repository, ref: str) -> str | None:
    packed = read_small(repository.common_dir / "packed-refs", MAX_PACKED_REFS_BYTES) or ""
    match = re.search(rf"^({_OBJECT_ID.pattern}) {re.escape(ref)}$", packed, re.MULTILINE)
    return match[1] if match else None


def read_small(path: Path, limit: int = MAX_FILE_BYTES) -> str | None:
    """Return the text of a regular file within the limit; None otherwise."""
    try:
        return read_named(path, limit).decode("utf-8", "replace")
    except OSError:
        return None
