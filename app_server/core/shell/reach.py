"""Where the paths of reading commands lead, as far as their text shows.

The kernel's files reveal processes and block on devices, and some files hold nothing but secrets: reading those needs
an approval. This module does not follow links. The sandbox is the boundary; this decides only what runs unapproved.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

_KERNEL_FOLDERS = frozenset({"proc", "dev", "sys"})
_PRIVATE_NAMES = frozenset(
    {".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".pgpass", ".git-credentials", ".codex", ".env"}
)
_PRIVATE_FILES = frozenset({"/etc/shadow", "/etc/gshadow", "/etc/sudoers"})
_SEARCHERS = frozenset({"grep", "rg"})
MAX_FOLDERS = 8


class Reach:
    """Tracks the working directories that a script may have: each `cd` may have succeeded or not."""

    def __init__(self) -> None:
        self._folders = {""}
        self.has_moved = False

    def moves(self, words: Sequence[str]) -> bool:
        """Applies a `cd` with these arguments; False where they are not understood."""
        operands = [word for word in words if word not in ("-L", "-P", "--")]
        if len(operands) > 1 or any(word.startswith("-") and word != "-" for word in operands):
            return False
        self.has_moved = True
        # The home directory and the previous one are unknown, like the initial one.
        target = operands[0] if operands and operands[0] != "-" else ""
        self._folders |= {posixpath.normpath(posixpath.join(folder, target)) for folder in self._folders}
        return len(self._folders) <= MAX_FOLDERS

    def allows(self, program: str, paths: Sequence[str]) -> bool:
        searches = program in _SEARCHERS
        return not any(
            _is_off_limits(posixpath.normpath(posixpath.join(folder, path)), everything=searches)
            for folder in self._folders
            for path in (*paths, *([""] if searches else []))
        )


def _is_off_limits(path: str, *, everything: bool) -> bool:
    """`everything`: the command reads all files below, and the kernel's folders are below the root."""
    parts = [part for part in path.split("/") if part]
    outside = [part for part in parts if part != ".."]
    is_rooted = path.startswith("/") or ".." in parts
    if is_rooted and (outside[0] in _KERNEL_FOLDERS if outside else everything):
        return True
    return path in _PRIVATE_FILES or not _PRIVATE_NAMES.isdisjoint(parts)
