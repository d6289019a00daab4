"""The settings at the top of a SKILL.md, between two lines `---`. Pure.

They are YAML, of which skills use plain keys and texts. Only these are read: one line or several, quoted or not, in
blocks (`|`, `>`), and one level of keys below a key. A whole YAML parser would be more surface for files of
repositories that nobody trusts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

FENCE = "---"
_KEY = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*)|$)")
_BLOCK = re.compile(r"([|>])[+-]?\d?[+-]?(?:[ \t]+#.*)?")
_COMMENT = re.compile(r"[ \t]#.*$")


class NoFrontMatter(ValueError):
    """The text does not begin with settings."""


def front_matter(text: str) -> Mapping[str, str]:
    """Texts by their keys, the inner ones as `outer.inner`; all else is left out. Raises NoFrontMatter."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != FENCE:
        raise NoFrontMatter(f"missing YAML frontmatter delimited by {FENCE}")
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise NoFrontMatter(f"missing YAML frontmatter delimited by {FENCE}")
    return _texts(lines[1:end])


def plain_yaml(text: str) -> Mapping[str, str]:
    """The same for a file that holds nothing else."""
    return _texts(text.removeprefix("\ufeff").splitlines())


def _texts(lines: list[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    _read_level(lines, 0, "", found)
    return found


def one_line(text: str) -> str:
    """Without line breaks and other control characters, which could make it look like something else than one text."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _read_level(lines: list[str], depth: int, prefix: str, found: dict[str, str]) -> None:
    n = 0
    while n < len(lines):
        line = lines[n]
        n += 1
        key = _KEY.fullmatch(line[depth:]) if _depth(line) == depth else None
        if key is None or line.lstrip().startswith("#"):
            continue
        deeper = n
        while deeper < len(lines) and (not lines[deeper].strip() or _depth(lines[deeper]) > depth):
            deeper += 1
        below, n = lines[n:deeper], deeper
        name, value = f"{prefix}{key[1]}", (key[2] or "").strip()
        if value and not value.startswith("#"):
            text = _text(value, below)
            if text is not None:
                found[name] = text
        elif not prefix and below:
            first = next((each for each in below if each.strip()), "")
            if _KEY.fullmatch(first.strip()):
                _read_level(below, _depth(first), f"{name}.", found)
            else:
                found[name] = " ".join(each.strip() for each in below if each.strip())


def _text(value: str, below: list[str]) -> str | None:
    """None for what is no text: a list, a mapping, a reference."""
    block = _BLOCK.fullmatch(value)
    if block:
        parts = [each.strip() for each in below]
        return ("\n" if block[1] == "|" else " ").join(parts).strip()
    whole = " ".join([value, *(each.strip() for each in below if each.strip())])
    if whole[0] in "\"'":
        return _unquoted(whole)
    if whole[0] in "[{&*!|>%@`":
        return None
    return _COMMENT.sub("", whole).strip()


def _unquoted(text: str) -> str | None:
    quote = text[0]
    pattern = r'"((?:[^"\\]|\\.)*)"' if quote == '"' else r"'((?:[^']|'')*)'"
    match = re.match(pattern + r"[ \t]*(?:#.*)?$", text)
    if match is None:
        return None
    if quote == "'":
        return match[1].replace("''", "'")
    try:
        inner = json.loads(f'"{match[1]}"', strict=False)
    except ValueError:
        return match[1]
    return inner if isinstance(inner, str) else None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
