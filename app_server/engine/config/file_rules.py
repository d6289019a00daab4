"""The rights that a permission profile gives for every path: its rules for the roots and folders of one turn. Pure.

The rule of the longest path decides, whatever it says; at the same path `deny` takes precedence over `write`, and
`write` over `read`. Below a denied folder only `write` opens a path again, except below a denied `/`, which has the
same effect as no rule. A pattern denies the paths that it matches, and no rule opens them again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from posixpath import dirname, join, normpath

from msgspec import Struct

from app_server.engine.support.real_path import within
from app_server_protocol.policy import (
    MINIMAL,
    ROOT,
    SLASH_TMP,
    TMPDIR,
    WORKSPACE_ROOTS,
    Access,
    FileRule,
    PermissionProfile,
    is_pattern,
)

SYSTEM_FOLDERS = (
    *("/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/usr"),
    *("/nix/store", "/run/current-system/sw"),
)
"""Paths of `:minimal`: programs do not start without them."""


MayRead = Callable[[str], bool]
"""Returns whether commands may read a real path. Everything that the server reads on behalf of the model obeys it."""


def reads_all(path: str) -> bool:
    """Return True: commands may read every path, as is the case without a permission profile."""
    return True


class Right(IntEnum):
    """The right of commands to use a path."""

    ABSENT = 0
    """No rule gives a right."""
    DENIED = 1
    READ = 2
    WRITE = 3


class Pattern(Struct, frozen=True):
    """A pattern of denied names below a folder."""

    folder: str
    """Real path of the folder, whose name has no wildcards."""
    names: str
    """Rest of the pattern, relative to the folder."""

    @property
    def shown(self) -> str:
        return join(self.folder, self.names)

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches the path or a folder around it."""
        if not within(path, self.folder) or path == self.folder:
            return False
        return _expression(self.names).match(path[len(self.folder.rstrip("/")) + 1 :]) is not None


class FileRules(Struct, frozen=True):
    """The rules of a profile, as real paths."""

    places: tuple[tuple[str, Access], ...] = ()
    """Each path once, with its access; a folder precedes the paths within it."""
    patterns: tuple[Pattern, ...] = ()

    def right(self, path: str) -> Right:
        """Return the right for a real path."""
        right = self.without_patterns(path)
        if right > Right.DENIED and any(pattern.matches(path) for pattern in self.patterns):
            return Right.DENIED
        return right

    def without_patterns(self, path: str) -> Right:
        right = Right.ABSENT
        for place, access in self.places:
            if within(path, place):
                right = _below(right, place, access)
        return right

    def around(self, path: str) -> Right:
        """Return the right for the folder around a path; patterns do not count."""
        return self.without_patterns(dirname(path)) if path != "/" else Right.ABSENT

    def may_read(self, path: str) -> bool:
        return self.right(path) >= Right.READ

    def denied(self) -> Iterator[str]:
        """Yield the denied paths, but not that of the whole disk, and the patterns."""
        yield from (place for place, access in self.places if access is Access.DENY and place != "/")
        yield from (pattern.shown for pattern in self.patterns)

    @property
    def whole_disk(self) -> bool:
        """Whether everything may be read except what a rule denies."""
        return self.without_patterns("/") >= Right.READ


def _below(right: Right, place: str, access: Access) -> Right:
    match access:
        case Access.DENY:
            return Right.ABSENT if place == "/" else Right.DENIED
        case Access.READ:
            return Right.DENIED if right is Right.DENIED else Right.READ
        case Access.WRITE:
            return Right.WRITE


_STRENGTH = (Access.READ, Access.WRITE, Access.DENY)


def rules_of(
    profile: PermissionProfile,
    cwd: str,
    *,
    tmpdir: str | None,
    real: Callable[[str, Access], Iterable[str]] = lambda name, access: (name,),
) -> FileRules:
    """Return the rules for a working directory. `real` returns the real paths of a name, and none if it leads
    nowhere.
    """
    found: dict[str, Access] = {}
    patterns: list[Pattern] = []
    for rule, name in named_places(profile, cwd, tmpdir):
        if is_pattern(name):
            literal, rest = split_pattern(name)
            patterns += (Pattern(place, rest) for place in real(literal, rule.access))
            continue
        for place in real(name, rule.access):
            found[place] = max(found.get(place, rule.access), rule.access, key=_STRENGTH.index)
    ordered = sorted(found.items(), key=lambda entry: entry[0].split("/") if entry[0] != "/" else [])
    return FileRules(tuple(ordered), tuple(dict.fromkeys(patterns)))


def named_places(profile: PermissionProfile, cwd: str, tmpdir: str | None) -> Iterator[tuple[FileRule, str]]:
    """Yield each rule with the absolute name of each of its paths."""
    for rule in profile.rules:
        for name in _names(rule, (cwd, *profile.roots), tmpdir):
            yield rule, normpath(name) if not is_pattern(name) else name


def _names(rule: FileRule, roots: Sequence[str], tmpdir: str | None) -> Iterable[str]:
    match rule.place:
        case place if place == ROOT:
            return ("/",)
        case place if place == MINIMAL:
            return SYSTEM_FOLDERS
        case place if place == TMPDIR:
            return () if tmpdir is None else (tmpdir,)
        case place if place == SLASH_TMP:
            return ("/tmp",)
        case place if place == WORKSPACE_ROOTS:
            return tuple(join(root, rule.below) if rule.below else root for root in dict.fromkeys(roots))
        case place:
            return (place,)


def split_pattern(name: str) -> tuple[str, str]:
    """Split a pattern into the folder before the first wildcard, and the rest."""
    parts = name.split("/")
    first = next(number for number, part in enumerate(parts) if is_pattern(part))
    return "/".join(parts[:first]) or "/", "/".join(parts[first:])


@lru_cache(maxsize=256)
def _expression(names: str) -> re.Pattern[str]:
    return re.compile("".join(_translated(names)) + r"(?:/|\Z)", re.DOTALL)


def _translated(names: str) -> Iterator[str]:
    position = 0
    while position < len(names):
        rest = names[position:]
        if rest.startswith("**/"):
            yield r"(?:[^/]*/)*"
            position += 3
        elif rest.startswith("**"):
            yield ".*"
            position += 2
        elif rest[0] == "*":
            yield "[^/]*"
            position += 1
        elif rest[0] == "?":
            yield "[^/]"
            position += 1
        elif rest[0] == "[" and (end := rest.find("]", 2)) > 0:
            inner = rest[1:end]
            negated, inner = inner[:1] in "!^", inner[1:] if inner[:1] in "!^" else inner
            escaped = inner.replace("\\", r"\\").replace("[", r"\[").replace("&", r"\&").replace("|", r"\|")
            yield f"(?!/)[{'^' if negated else ''}{escaped.replace('^', chr(92) + '^')}]"
            position += end + 1
        else:
            yield re.escape(rest[0])
            position += 1


def levels(names: str, most: int) -> int:
    """Return the number of levels below its folder in which a pattern is searched; `**` counts as `most`."""
    parts = names.split("/")
    return len(parts) - 1 + most if "**" in names else len(parts)
