"""Which commands run without asking although nothing is trusted: those known to read and do nothing else.

An allow-list of programs, each with an allow-list of options. What is not understood to the last byte is not safe;
the strictest part of a script decides for all of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app_server.core.commands.reach import Reach
from app_server.core.commands.readers import READERS
from app_server.core.commands.safe_git import git_reads
from app_server.core.commands.shell_script import script_of, split_script

_PROGRAM_FOLDERS = ("/usr/bin/", "/bin/")
_OPERATOR_WORD = re.compile(r"\d*[;&|<>]+")


def is_known_safe(argv: Sequence[str], *, git_is_plain: bool = False) -> bool:
    """`git_is_plain`: the repository of the working directory names nothing that git would run
    (`safe_git.is_plain_repository`); only then may git's reading commands go unasked."""
    script = script_of(argv)
    if script is not None:
        commands = split_script(script)
    else:
        commands = (tuple(argv),) if _is_literal(argv) else None
    if not commands:
        return False
    reach = Reach()
    return all(_only_reads(words, reach, git_is_plain=git_is_plain) for words in commands)


def _is_literal(argv: Sequence[str]) -> bool:
    """Operators as words mean that a shell was forgotten; what was meant is not what would be executed."""
    return bool(argv) and all(word.isprintable() and not _OPERATOR_WORD.fullmatch(word) for word in argv)


def _only_reads(words: Sequence[str], reach: Reach, *, git_is_plain: bool) -> bool:
    name, rest = _program(words[0]), words[1:]
    if name == "cd":
        return reach.moves(rest)
    if name == "git":
        return git_is_plain and not reach.has_moved and git_reads(rest)
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
