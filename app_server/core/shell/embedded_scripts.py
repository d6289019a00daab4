"""Shell scripts inside of programs in other languages that are given as arguments: `awk 'BEGIN { system("id") }'`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MAX_CHARACTERS = 10_000

_CALLS = re.compile(r"system|popen|subprocess|exec|spawn|\||qx|`")
_STRINGS = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`\n]*)`|qx[{(]([^})\n]*)[})]")
_SED_EXECUTION = re.compile(r"(?:^|[\s;{}/\d$])e\s+(.+)")
_SED_SUBSTITUTION = re.compile(r"s(.)(?:(?!\1).)*\1((?:(?!\1).)*)\1\w*e")


def embedded_scripts(program: str, words: Sequence[str]) -> Iterator[str]:
    """The texts that a program with these arguments most likely gives to a shell."""
    for word in words:
        if len(word) > MAX_CHARACTERS:
            continue
        if program == "sed":
            yield from (match[1] for match in _SED_EXECUTION.finditer(word))
            yield from (match[2] for match in _SED_SUBSTITUTION.finditer(word))
        elif _CALLS.search(word):
            yield from (next(filter(None, match.groups()), "") for match in _STRINGS.finditer(word))
