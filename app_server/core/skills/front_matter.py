"""The settings of a skill: at the top of its SKILL.md, between two lines `---`, and in `agents/openai.yaml` beside it,
which says how clients show it, and whether the model may choose it by itself. Pure.

They are YAML, of which skills use plain keys and texts. Only these are read: one line or several, quoted or not, in
blocks (`|`, `>`), and one level of keys below a key. A whole YAML parser would be more surface for files of
repositories that nobody trusts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from app_server.core.skills.skill import SkillAppearance

FENCE = "---"
# Texts, which `re` compiles with the first skill.
_KEY = r"([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*)|$)"
_BLOCK = r"([|>])[+-]?\d?[+-]?(?:[ \t]+#.*)?"
_COMMENT = r"[ \t]#.*$"


class NoFrontMatter(ValueError):
    """The text does not begin with settings."""


def front_matter(text: str) -> Mapping[str, str]:
    """Return texts by their keys, the inner ones as `outer.inner`; all else is left out. Raises NoFrontMatter."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != FENCE:
        raise NoFrontMatter(f"missing YAML frontmatter delimited by {FENCE}")
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise NoFrontMatter(f"missing YAML frontmatter delimited by {FENCE}")
    return _texts(lines[1:end])


def plain_yaml(text: str) -> Mapping[str, str]:
    """Return the texts of a file that holds nothing but YAML."""
    return _texts(text.removeprefix("\ufeff").splitlines())


def _texts(lines: list[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    _read_level(lines, 0, "", found)
    return found


def one_line(text: str) -> str:
    """Drop line breaks and other control characters, which could make it look like something else than one text."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _read_level(lines: list[str], depth: int, prefix: str, found: dict[str, str]) -> None:
    n = 0
    while n < len(lines):
        line = lines[n]
        n += 1
        key = re.fullmatch(_KEY, line[depth:]) if _depth(line) == depth else None
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
            if re.fullmatch(_KEY, first.strip()):
                _read_level(below, _depth(first), f"{name}.", found)
            else:
                found[name] = " ".join(each.strip() for each in below if each.strip())


def _text(value: str, below: list[str]) -> str | None:
    """Return a text; None for what is none: a list, a mapping, a reference."""
    block = re.fullmatch(_BLOCK, value)
    if block:
        parts = [each.strip() for each in below]
        return ("\n" if block[1] == "|" else " ").join(parts).strip()
    whole = " ".join([value, *(each.strip() for each in below if each.strip())])
    if whole[0] in "\"'":
        return _unquoted(whole)
    if whole[0] in "[{&*!|>%@`":
        return None
    return re.sub(_COMMENT, "", whole).strip()


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


SETTINGS_FILE = "agents/openai.yaml"
MAX_TEXT = 1024


def appearance(settings: Mapping[str, str], folder: str) -> SkillAppearance | None:
    """Read how a skill is shown; None where nothing is said. Icons are paths in the skill's folder."""
    shown = SkillAppearance(
        display_name=_interface_text(settings, "display_name"),
        short_description=_interface_text(settings, "short_description"),
        icon_small=_icon(settings, "icon_small", folder),
        icon_large=_icon(settings, "icon_large", folder),
        brand_color=_interface_text(settings, "brand_color"),
        default_prompt=_interface_text(settings, "default_prompt"),
    )
    return None if shown == SkillAppearance() else shown


def is_implicit(settings: Mapping[str, str]) -> bool:
    return settings.get("policy.allow_implicit_invocation", "true").lower() != "false"


def _interface_text(settings: Mapping[str, str], key: str) -> str | None:
    return one_line(settings.get(f"interface.{key}", ""))[:MAX_TEXT] or None


def _icon(settings: Mapping[str, str], key: str, folder: str) -> str | None:
    given = _interface_text(settings, key)
    if given is None or os.path.isabs(given):
        return None
    path = os.path.normpath(os.path.join(folder, given))
    return path if path.startswith(f"{folder}/") else None
