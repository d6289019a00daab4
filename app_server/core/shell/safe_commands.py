"""Which commands run without an approval although nothing is trusted: those that are known to only read.

An allow-list of programs, each with an allow-list of options. A script is safe only if every byte of it is understood
and every command in it is safe.

The kernel's files reveal processes and block on devices, and some files hold nothing but secrets: reading those needs
an approval, as far as the text of a path shows it, without following links. The sandbox is the boundary; this decides
only what runs unapproved.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence

from app_server.core.shell.git_commands import git_reads
from app_server.core.shell.readers import READERS
from app_server.core.shell.script import Commands, script_of, split_script

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
    """Tell whether reading a path needs an approval. `everything`: the command reads all files below, and the kernel's
    folders are below the root.
    """
    parts = [part for part in path.split("/") if part]
    outside = [part for part in parts if part != ".."]
    is_rooted = path.startswith("/") or ".." in parts
    if is_rooted and (outside[0] in _KERNEL_FOLDERS if outside else everything):
        return True
    return path in _PRIVATE_FILES or not _PRIVATE_NAMES.isdisjoint(parts)


_PROGRAM_FOLDERS = ("/usr/bin/", "/bin/")
_OPERATOR_WORD = re.compile(r"\d*[;&|<>]+")


def _none(words: Sequence[str]) -> bool:
    return False


def is_known_safe(
    argv: Sequence[str],
    *,
    trusts: Callable[[str], bool],
    git_is_plain: Callable[[], bool] | None = None,
    allowed: Callable[[Sequence[str]], bool] = _none,
) -> bool:
    """Tell whether the command is known to only read, but for what `allowed` accepts: the user has agreed to that.

    `trusts` receives the name of each program, the shell included: whether the name resolves to the program of the
    system and not to a file of the workspace. `git_is_plain` is called for git commands: whether the repository of the
    working directory configures nothing that git would run (`git_commands.is_plain_repository`). Without it, git is not
    safe.
    """
    script = script_of(argv)
    commands = _single(argv) if script is None else split_script(script)
    if commands is None:
        return False
    agreed = frozenset(words for words in commands if allowed(words))
    reach = Reach()
    # A command that was agreed to may write, so what git would find afterwards is not known.
    plain = None if agreed else git_is_plain
    if not all(words in agreed or _only_reads(words, reach, git_is_plain=plain) for words in commands):
        return False
    if script is None:
        return trusts(argv[0])
    # `cd` is part of every shell.
    return all(map(trusts, dict.fromkeys([argv[0], *(words[0] for words in commands if words[0] != "cd")])))


def _single(argv: Sequence[str]) -> Commands | None:
    """Return the one command; None where an operator is an argument: the model forgot the shell, so its intent is not
    what would run.
    """
    if not argv or not all(word.isprintable() and not _OPERATOR_WORD.fullmatch(word) for word in argv):
        return None
    return (tuple(argv),)


def _only_reads(words: Sequence[str], reach: Reach, *, git_is_plain: Callable[[], bool] | None) -> bool:
    name, rest = _program(words[0]), words[1:]
    if name == "cd":
        return reach.moves(rest)
    if name == "git":
        return git_is_plain is not None and not reach.has_moved and git_reads(rest) and git_is_plain()
    if (reader := READERS.get(name)) is None:
        return False
    paths = reader(rest)
    return paths is not None and reach.allows(name, paths)


def _program(word: str) -> str:
    """Return the name of a program on the PATH or in a system folder; any other path stays as it is."""
    for folder in _PROGRAM_FOLDERS:
        if word.startswith(folder):
            return word.removeprefix(folder)
    return word
