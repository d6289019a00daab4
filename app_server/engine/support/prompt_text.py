"""The text of a custom prompt: the settings at its top, and the placeholders for its arguments. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Final

FENCE: Final = "---"

# These patterns are texts, which `re` compiles at the first prompt.
_PLACEHOLDER: Final = r"\$(\$|[1-9]|ARGUMENTS|[A-Z][A-Z0-9_]*)"
_NAMED: Final = r"(?s)([A-Z][A-Z0-9_]*)=(.*)"


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the settings between the `---` lines at the top, and the rest. Without a closing line, all text is the
    rest.
    """
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != FENCE:
        return {}, text
    settings: dict[str, str] = {}
    for number, line in enumerate(lines[1:], start=1):
        plain = line.strip()
        if plain == FENCE:
            return settings, "".join(lines[number + 1 :])
        key, colon, value = plain.partition(":")
        if colon and not plain.startswith("#"):
            settings[key.strip().lower()] = _unquoted(value.strip())
    return {}, text


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def filled_in(text: str, rest: str) -> str:
    """Replace `$1` to `$9`, `$ARGUMENTS` and, for arguments such as `FILE=a.py`, `$FILE`; `$$` is a dollar sign. A name
    without an argument is not replaced.
    """
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    named = {match[1]: match[2] for word in words if (match := re.fullmatch(_NAMED, word))}
    plain = [word for word in words if not re.fullmatch(_NAMED, word)]

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name == "$":
            return "$"
        if name == "ARGUMENTS":
            return rest
        if name.isdigit():
            return plain[int(name) - 1] if int(name) <= len(plain) else ""
        return named.get(name, match[0])

    return re.sub(_PLACEHOLDER, value, text)


def argument_names(text: str) -> list[str]:
    """Return the names of a prompt's named arguments, each once."""
    names = dict.fromkeys(match[1] for match in re.finditer(_PLACEHOLDER, text))
    return [name for name in names if name != "ARGUMENTS" and name[0].isalpha()]


def argument_hint(text: str) -> str | None:
    """Return a hint for a prompt that takes arguments and does not say which."""
    return "arguments" if any(match[1] != "$" for match in re.finditer(_PLACEHOLDER, text)) else None
