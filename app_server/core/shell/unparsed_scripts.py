"""Scripts inside of text that the parser leaves as it is, but a shell runs.

Those are command substitutions in here-documents and other places that the grammar does not look into, and in
subscripts of arrays: `test -v 'a[$(id)]'` runs `id`.
"""

from __future__ import annotations

import re

MAX_SCRIPTS = 100
_START = re.compile(r"(?<!\\)(?:\\\\)*(\$\(|`)")
_SUBSCRIPT = re.compile(r"\[[^\]\n]{0,40}?(?=\$\(|`)")


def substitutions(text: str) -> list[str]:
    """The scripts of the first command substitutions in `text`."""
    found: list[str] = []
    at = 0
    while len(found) <= MAX_SCRIPTS and (match := _START.search(text, at)):
        start = match.end()
        end = _closing_parenthesis(text, start) if match[1] == "$(" else text.find("`", start)
        if end < 0:
            end = len(text)
        found.append(text[start:end])
        at = end + 1
    return found


def evaluated_subscripts(text: str) -> list[str]:
    """The scripts in what may be a subscript of an array, wherever the shell evaluates names as arithmetic."""
    match = _SUBSCRIPT.search(text)
    return [] if match is None else substitutions(text[match.end() :])


def _closing_parenthesis(text: str, start: int) -> int:
    depth = 1
    for match in re.finditer(r"[()]", text[start:]):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return start + match.start()
    return -1
