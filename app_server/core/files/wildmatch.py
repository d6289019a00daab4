"""Translates git's wildcard patterns into regular expressions. Pure.

With `whole_path`, a star stops at a slash and `**` spans folders; without it, the pattern is for one name.
"""

from __future__ import annotations

import re

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "\\x21-\\x7e",
    "lower": "a-z",
    "print": "\\x20-\\x7e",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
NEVER = "(?!)"


def translate(pattern: str, *, whole_path: bool) -> str:
    """The regular expression for a full match. A malformed pattern matches nothing, as in git."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            piece, at = _stars(pattern, at, whole_path)
        elif char == "?":
            piece, at = "[^/]" if whole_path else ".", at + 1
        elif char == "[":
            piece, at = _bracket(pattern, at + 1)
        elif char == "\\":
            if at + 1 == len(pattern):
                return NEVER
            piece, at = re.escape(pattern[at + 1]), at + 2
        else:
            piece, at = re.escape(char), at + 1
        if piece == NEVER:
            return NEVER
        out.append(piece)
    return "".join(out)


def _stars(pattern: str, at: int, whole_path: bool) -> tuple[str, int]:
    end = at
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    if not whole_path:
        return ".*", end
    spans = end - at >= 2 and (at == 0 or pattern[at - 1] == "/")
    if spans and (end == len(pattern) or pattern.startswith("\\/", end)):
        return ".*", end
    if spans and pattern[end] == "/":
        return "(?:.*/)?", end + 1
    return "[^/]*", end


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """The class after an opening bracket, and the index after it."""
    negated = at < len(pattern) and pattern[at] in "!^"
    at += negated
    members: list[str] = []
    first = True
    while first or at >= len(pattern) or pattern[at] != "]":
        if at >= len(pattern):
            return NEVER, at
        first = False
        if pattern.startswith("[:", at):
            end = pattern.find(":]", at + 2)
            name = pattern[at + 2 : end]
            if end >= 0 and "]" not in name:
                if name not in _CLASSES:
                    return NEVER, at
                members.append(_CLASSES[name])
                at = end + 2
                continue
        low, at = _member(pattern, at)
        if low and pattern.startswith("-", at) and at + 1 < len(pattern) and pattern[at + 1] != "]":
            high, at = _member(pattern, at + 1)
            if low <= high:
                members.append(f"{re.escape(low)}-{re.escape(high)}")
        # git matches the lower end by itself, even if the range is empty.
        members.append(re.escape(low))
        if not low:
            return NEVER, at
    inside = "".join(members)
    if negated:
        return f"(?!/)[^{inside}]" if inside else "[^/]", at + 1
    return f"(?!/)[{inside}]" if inside else "(?!)[/]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] == "\\":
        return (pattern[at + 1], at + 2) if at + 1 < len(pattern) else ("", at + 1)
    return pattern[at], at + 1
