"""Decides which files are ignored by `.gitignore` rules. Pure: texts in, decisions out.

Within a file, the last matching rule decides. A file deeper in the tree overrides one above it. Rules that are a plain
name or a plain suffix are looked up in a table. Only the others are matched as patterns, which are translated into
regular expressions.
"""

from __future__ import annotations

import re

from app_server.engine.support.light_dataclasses import dataclass

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


SKIP_FOLDERS = "(?:[^/]*/)*?"
SKIP_CHARACTERS = "[^/]*?"


def translate(pattern: str) -> str:
    """Return the regular expression for a full match. A malformed pattern matches nothing, as in git.

    The text between two wildcards is an atomic group: it is matched where it fits first, since no later place would
    leave more to the rest of the pattern. Without these groups, a name of sixty letters and a pattern of eight stars
    would take a minute.
    """
    blocks = [[""]]
    """The parts of the pattern between each `**/`, and the pieces of each part between its `*`."""
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            at = _add_stars(blocks, pattern, at)
            continue
        if char == "?":
            piece, at = "[^/]", at + 1
        elif char == "[":
            piece, at = _bracket(pattern, at + 1)
        else:
            char, at = _member(pattern, at)
            piece = re.escape(char) if char else NEVER
        if piece == NEVER:
            return NEVER
        blocks[-1][-1] += piece
    first, *others = [_block(block, is_last=block is blocks[-1]) for block in blocks]
    parts = [first, *(_atomic(SKIP_FOLDERS, block) for block in others[:-1])]
    return "".join(parts + [SKIP_FOLDERS + block for block in others[-1:]])


def _add_stars(blocks: list[list[str]], pattern: str, at: int) -> int:
    """Begin a new piece or block at these stars; return the index after them."""
    end = at
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    spans = end - at >= 2 and (at == 0 or pattern[at - 1] == "/")
    if spans and end == len(pattern):
        blocks[-1][-1] += ".*"
    elif spans and pattern[end] == "/":
        blocks.append([""])
        return end + 1
    elif spans and pattern.startswith("\\/", end):  # this slash is not optional in git
        blocks[-1].append("/")
        blocks.append([""])
        return end + 2
    else:
        blocks[-1].append("")
    return end


def _block(pieces: list[str], *, is_last: bool) -> str:
    first, *others = pieces
    found = [_atomic(SKIP_CHARACTERS, piece) for piece in others]
    if is_last and others:  # it has to fit at the end, not at the first place
        found[-1] = SKIP_CHARACTERS + others[-1]
    return first + "".join(found)


def _atomic(skipped: str, text: str) -> str:
    return f"(?>{skipped}{text})"


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """Return the class after an opening bracket, and the index after it."""
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


_SPECIAL = re.compile(r"[*?\[\\]")
_ENDING = re.compile(r"\*(\.[^*?\[\\./]+)")


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of an ignore file."""

    pattern: str
    hides: bool
    folders_only: bool
    anchored: bool
    """Whether the rule applies to the path relative to the file's folder, not only to the name."""


def parse_rules(text: str) -> list[IgnoreRule]:
    lines = text.removeprefix("\ufeff").split("\n")
    return [rule for line in lines if (rule := _parse_rule(line.removesuffix("\r"))) is not None]


def _parse_rule(line: str) -> IgnoreRule | None:
    if line.startswith("#"):
        return None
    line = _without_trailing_spaces(line)
    hides = not line.startswith("!")
    line = line if hides else line[1:]
    folders_only = line.endswith("/")
    line = line[:-1] if folders_only else line
    anchored = "/" in line
    line = line.removeprefix("/") if anchored else line
    return IgnoreRule(line, hides, folders_only, anchored) if line else None


def _without_trailing_spaces(line: str) -> str:
    end = len(line)
    while end and line[end - 1] == " ":
        end -= 1
    slashes = len(line[:end]) - len(line[:end].rstrip("\\"))
    # An unescaped backslash keeps the first of the spaces.
    return line[: end + 1] if slashes % 2 and end < len(line) else line[:end]


class RuleSet:
    """The rules of one folder, including those of all folders above it."""

    def __init__(
        self, rules: list[IgnoreRule], above: RuleSet | None, *, base: str = "", prefix: str = ""
    ) -> None:
        """Prepare the rules for lookup. `base` is the folder of the rules. For rules from outside the root, `prefix` is
        the path from their folder to the root.
        """
        self.above = above
        self._skip = len(base)
        self._prefix = prefix
        self._rules = rules
        self._names: dict[str, list[int]] = {}
        self._endings: dict[str, list[int]] = {}
        self._patterns: list[tuple[int, re.Pattern[str]]] = []
        for number, rule in enumerate(rules):
            ending = _ENDING.fullmatch(rule.pattern)
            if not rule.anchored and not _SPECIAL.search(rule.pattern):
                self._names.setdefault(rule.pattern, []).append(number)
            elif not rule.anchored and ending:
                self._endings.setdefault(ending[1], []).append(number)
            else:
                self._patterns.append((number, re.compile(translate(rule.pattern), re.DOTALL)))

    def hides(self, folder: str, name: str, is_folder: bool) -> bool:
        """Return whether `name` in `folder` (a path with a trailing slash, or empty) is ignored."""
        rules: RuleSet | None = self
        while rules is not None:
            decision = rules._decide(folder, name, is_folder)
            if decision is not None:
                return decision
            rules = rules.above
        return False

    def _decide(self, folder: str, name: str, is_folder: bool) -> bool | None:
        best = -1
        for number in self._names.get(name, ()):
            best = self._later(best, number, is_folder)
        if self._endings and (dot := name.rfind(".")) >= 0:
            for number in self._endings.get(name[dot:], ()):
                best = self._later(best, number, is_folder)
        if self._patterns:
            path = self._prefix + folder[self._skip :] + name
            for number, pattern in self._patterns:
                if number > best and pattern.fullmatch(path if self._rules[number].anchored else name):
                    best = self._later(best, number, is_folder)
        return self._rules[best].hides if best >= 0 else None

    def _later(self, best: int, number: int, is_folder: bool) -> int:
        if number > best and (is_folder or not self._rules[number].folders_only):
            return number
        return best
