"""Parses git configuration files: sections, keys and values.

It does not follow includes. Parsing stops at a syntax error; the entries before it count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=)?[ \t]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


def parse_git_config(text: str) -> Mapping[str, str]:
    """Return the last value of each key, under names such as `remote.origin.url` (section and key in lower case)."""
    values: dict[str, str] = {}
    section = ""
    at = 0
    while (at := _skip_blank(text, at)) < len(text):
        if text[at] == "[":
            match = _SECTION.match(text, at)
            if match is None:
                break
            name = match[2]
            section = match[1].lower() + ("" if name is None else "." + re.sub(r"\\(.)", r"\1", name))
        else:
            match = _KEY.match(text, at)
            if match is None or not section:
                break
        at = match.end()
        if text[match.start()] != "[":
            value, at = _value(text, at) if match[2] else ("true", at)
            values[f"{section}.{match[1].lower()}"] = value
    return values


def _skip_blank(text: str, at: int) -> int:
    while at < len(text):
        if text[at] in "#;":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif not (text[at].isspace() or text[at] == "\ufeff"):
            break
        else:
            at += 1
    return at


def _value(text: str, at: int) -> tuple[str, int]:
    """Return a value from its first character to the end of its line, and the index of that end."""
    out: list[str] = []
    keep = 0
    quoted = False
    while at < len(text) and text[at] != "\n":
        char = text[at]
        if char == '"':
            quoted = not quoted
            keep = len(out)
        elif char == "\\" and at + 1 < len(text):
            at += 1
            if text[at] != "\n":
                out.append(_ESCAPES.get(text[at], text[at]))
                keep = len(out)
        elif char in "#;" and not quoted:
            at = at + len(text[at:].partition("\n")[0])
            break
        else:
            out.append(char)
            if quoted or not char.isspace():
                keep = len(out)
        at += 1
    return "".join(out[:keep]), at
