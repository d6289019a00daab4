"""Brace expansion of bash: `r{m,} {a..c}` → `rm r a b c`."""

from __future__ import annotations

import re
from itertools import islice, product

MAX_BRACES = 20
MAX_WORDS = 1_000

_SEQUENCE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?\d+)?")

_QUOTED = str.maketrans("{},\ue003", "\ue000\ue001\ue002\ue000")
_UNQUOTED = str.maketrans("\ue000\ue001\ue002", "{},")
_IN_WORD = re.compile(r"(?<!\$)\{(?=[^\s{}(;&|<>])|(?<!\$)\{(?=\{)")
_MARK = "\ue003"


class TooManyWords(Exception):
    """A word stands for more words than are looked at."""


def mark_braces(script: str) -> str:
    """Replaces opening braces that belong to words by a letter. The parser takes that of `{rm,-rf}` for a group's."""
    return _IN_WORD.sub(_MARK, script) if "{" in script else script


def unmark_braces(text: str) -> str:
    return text.replace(_MARK, "{")


def quote_braces(text: str) -> str:
    """Text that `expand_braces` takes literally."""
    return text.translate(_QUOTED)


def expand_braces(text: str) -> list[str]:
    """Numbers of a sequence are represented by its ends. Raises TooManyWords."""
    text = unmark_braces(text)
    if "{" not in text:
        return [text.translate(_UNQUOTED)]
    if text.count("{") > MAX_BRACES:
        raise TooManyWords
    return [word.translate(_UNQUOTED) for word in _expanded(text)]


def _expanded(text: str) -> list[str]:
    start = text.find("{")
    while start >= 0:
        end = _end(text, start)
        alternatives = None if end is None else _alternatives(text[start + 1 : end])
        if end is not None and alternatives is not None:
            inner = [word for each in alternatives for word in _expanded(each)]
            words = list(islice(product(inner, _expanded(text[end + 1 :])), MAX_WORDS + 1))
            if len(words) > MAX_WORDS:
                raise TooManyWords
            return [text[:start] + first + rest for first, rest in words]
        start = text.find("{", start + 1)
    return [text]


def _end(text: str, start: int) -> int | None:
    """Where the brace is closed that is opened at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at
    return None


def _alternatives(inner: str) -> list[str] | None:
    if match := _SEQUENCE.fullmatch(inner):
        first, last = match[1], match[2]
        if first.isalpha() and last.isalpha():
            low, high = sorted((ord(first), ord(last)))
            return [chr(code) for code in range(low, high + 1)]
        return [first, last]
    parts, depth = [""], 0
    for character in inner:
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts if len(parts) > 1 else None
