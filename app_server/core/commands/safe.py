"""Which commands run without asking although nothing is trusted: those known to read and do nothing else.

An allow-list of programs, each with an allow-list of options. What is not understood to the last byte is not safe;
the strictest part of a script decides for all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from app_server.core.commands.reach import Reach
from app_server.core.commands.readers import READERS
from app_server.core.commands.safe_git import git_reads
from app_server.core.commands.shell_script import Commands, script_of, split_script

_PROGRAM_FOLDERS = ("/usr/bin/", "/bin/")
_OPERATOR_WORD = re.compile(r"\d*[;&|<>]+")


def is_known_safe(
    argv: Sequence[str],
    *,
    trusts: Callable[[str], bool],
    git_is_plain: Callable[[], bool] | None = None,
) -> bool:
    """`trusts` is asked for each program, the shell included, as it is named: whether that name stands for what it says
    and not for a file of the workspace. `git_is_plain` is asked where git would read: whether the repository of the
    working directory names nothing that git would run (`safe_git.is_plain_repository`). Without it, git is not safe.
    """
    script = script_of(argv)
    commands = _single(argv) if script is None else split_script(script)
    if commands is None:
        return False
    reach = Reach()
    if not all(_only_reads(words, reach, git_is_plain=git_is_plain) for words in commands):
        return False
    if script is None:
        return trusts(argv[0])
    # `cd` is part of every shell.
    return all(map(trusts, dict.fromkeys([argv[0], *(words[0] for words in commands if words[0] != "cd")])))


def _single(argv: Sequence[str]) -> Commands | None:
    """Operators as words mean that a shell was forgotten; what was meant is not what would be executed."""
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
    """A bare name, found through the PATH, or a name in a folder of the system. Other paths are other programs."""
    for folder in _PROGRAM_FOLDERS:
        if word.startswith(folder):
            return word.removeprefix(folder)
    return word
