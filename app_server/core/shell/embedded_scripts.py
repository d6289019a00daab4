"""Shell scripts in arguments of other programs: in programs of other languages (`awk 'BEGIN { system("id") }'`) and in
options that name a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MAX_CHARACTERS = 10_000

PROGRAM_OPTIONS = frozenset({"tar", "rsync", "scp", "sftp", "sort", "split", "rg", "zip"})
"""Programs with options that name a command."""

_PROGRAM_OPTION = re.compile(r"(?:--?\w[\w-]*=|-o|-I)(?:\w+=)?(.+)", re.DOTALL)
_CALLS = re.compile(r"system|popen|subprocess|exec|spawn|\||qx|`")
_STRINGS = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`\n]*)`|qx[{(]([^})\n]*)[})]")
_SED_EXECUTION = re.compile(r"(?:^|[\s;{}/\d$])e\s+(.+)")
_SED_SUBSTITUTION = re.compile(r"s(.)(?:(?!\1).)*\1((?:(?!\1).)*)\1\w*e")


def embedded_scripts(program: str, words: Sequence[str]) -> Iterator[str]:
    """The texts that a program with these arguments most likely gives to a shell."""
    for word in words:
        if len(word) > MAX_CHARACTERS:
            continue
        if program in PROGRAM_OPTIONS:
            yield from (match[1] for match in [_PROGRAM_OPTION.fullmatch(word)] if match)
        elif program == "sed":
            yield from (match[1] for match in _SED_EXECUTION.finditer(word))
            yield from (match[2] for match in _SED_SUBSTITUTION.finditer(word))
        elif _CALLS.search(word):
            yield from (next(filter(None, match.groups()), "") for match in _STRINGS.finditer(word))
