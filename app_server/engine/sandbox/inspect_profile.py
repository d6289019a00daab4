"""Reads the facts on which the plan of a permission profile depends. The module changes nothing.

The facts are: where the names of the profile lead, what exists there, and which files its patterns match. A name that
grants something keeps the real path that it had when the conversation was first given it; if a link replaces the path
later, the name leads to nothing. A name that denies applies to every path that it has had.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct

from app_server.engine.config.file_rules import Pattern, named_places, rules_of
from app_server.engine.sandbox.plan import ProfileFacts, RootFacts
from app_server.engine.sandbox.roots import SLASH_TMP, ConversationRoots, NamedRoot, exists
from app_server.engine.support.engine_errors import raise_shortage
from app_server.engine.support.real_path import real_path, within
from app_server_protocol.policy import Access, PermissionProfile

MOST_LOOKED_AT = 20_000
"""Maximum number of folder entries that are examined for the patterns of a profile, before each command."""
MOST_MATCHED = 512
"""Maximum number of files and folders that are hidden because of patterns; each costs a command a mount."""

ReadRoot = Callable[[NamedRoot], RootFacts]


def inspect_profile(
    profile: PermissionProfile, cwd: str, given: str | None, roots: ConversationRoots, read_root: ReadRoot
) -> ProfileFacts:
    """Return the facts. `given` is the client's $TMPDIR. `read_root` reads the facts of a writable folder."""
    tmpdir = given if given and os.path.isabs(given) else None
    named = roots.of_profile(profile, cwd, tmpdir)
    rules = rules_of(profile, cwd, tmpdir=tmpdir, real=lambda name, access: _real(named[name], access))
    temporary = {os.path.normpath(name) for name in (SLASH_TMP, tmpdir) if name}
    written = {
        name
        for rule, name in named_places(profile, cwd, tmpdir)
        if rule.access is Access.WRITE and not rule.is_pattern
    }
    found = [_written(named[name], read_root) for name in sorted(written)]
    matched, problem = _matched(rules.patterns, profile.pattern_depth)
    return ProfileFacts(
        rules=rules,
        present=tuple(place for place, _ in rules.places if exists(place)),
        first_missing={place: _first_missing(place) for place, _ in rules.places if not exists(place)},
        links=tuple(
            dict.fromkeys(link for each in named.values() if each.resolved for link in each.resolved.links)
        ),
        roots=tuple(root for name, root in zip(sorted(written), found, strict=True) if name not in temporary),
        temporary=tuple(root for name, root in zip(sorted(written), found, strict=True) if name in temporary),
        matched=matched,
        problem=problem,
        aliases=tuple(
            _aliases([*(place for place, access in rules.places if access is Access.DENY), *matched])
        ),
        top=tuple(_top()) if rules.whole_disk else (),
    )


def _first_missing(path: str) -> str:
    """Return the path whose creation would be the first step to create `path`."""
    while not exists(folder := os.path.dirname(path)):
        path = folder
    return path


def _real(named: NamedRoot, access: Access) -> tuple[str, ...]:
    """Return the real paths to which a name applies."""
    real = None if named.resolved is None else named.resolved.real
    if access is Access.DENY:
        return tuple(dict.fromkeys(path for path in (real, real_path(named.name)) if path is not None))
    if real is None:
        return ()
    try:
        return (real,) if os.path.realpath(real) == real else ()
    except (OSError, ValueError):
        return ()


def _written(named: NamedRoot, read_root: ReadRoot) -> RootFacts:
    """Return the facts of a writable path, a folder or a file."""
    real = None if named.resolved is None else named.resolved.real
    if (
        real is not None
        and named.resolved is not None
        and os.path.isfile(real)
        and os.path.realpath(real) == real
    ):
        status = os.stat(real)
        return RootFacts(
            named.name,
            real,
            foreign=status.st_uid != os.geteuid(),
            links=named.resolved.links,
            by_changeable_link=named.by_changeable_link,
            is_file=True,
        )
    return read_root(named)


def _top() -> Iterator[str]:
    """Yield the folders of the disk in which an approved command may write."""
    with os.scandir("/") as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.name not in ("proc", "dev", "sys"):
                yield entry.path


def _matched(patterns: tuple[Pattern, ...], depth: int) -> tuple[tuple[str, ...], str | None]:
    """Return the paths that the patterns match now, and the reason why they are not known, or None."""
    looked_at, found = 0, list[str]()
    for pattern in patterns:
        if pattern.folder == "/":
            return (), f"its pattern `{pattern.shown}` has no folder before its first wildcard"
        for path, counted in _matches(pattern, depth):
            looked_at += counted
            if path is not None:
                found.append(path)
            if looked_at > MOST_LOOKED_AT:
                return (
                    (),
                    f"more than {MOST_LOOKED_AT} files would have to be looked at for `{pattern.shown}`",
                )
            if len(found) > MOST_MATCHED:
                return (), f"its patterns match more than {MOST_MATCHED} files"
    return tuple(sorted(set(found))), None


def _matches(pattern: Pattern, depth: int) -> Iterator[tuple[str | None, int]]:
    """Yield for each examined entry None and 1, and then, if it matches, its path and 0. Links are not followed, and
    nothing is examined below a match.
    """
    parts = pattern.names.split("/")
    fixed = next((number for number, part in enumerate(parts) if "**" in part), len(parts))
    deepest = len(parts) if fixed == len(parts) else len(parts) - 1 + depth
    waiting = deque([(pattern.folder, 0)])
    while waiting:
        folder, level = waiting.popleft()
        for entry in _entries(folder):
            yield None, 1
            if pattern.matches(entry.path):
                if not entry.is_symlink():
                    yield entry.path, 0
                continue
            inner = level + 1 < deepest and entry.is_dir(follow_symlinks=False)
            if inner and (level >= fixed or _part(parts[level])(entry.name)):
                waiting.append((entry.path, level + 1))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = []
            for entry in entries:
                found.append(entry)
                if len(found) > MOST_LOOKED_AT:
                    break
            return found
    except OSError as error:
        raise_shortage(error, f"{folder} cannot be looked through")
        return []


@lru_cache(maxsize=256)
def _part(pattern: str) -> Callable[[str], object]:
    return re.compile(translate(pattern)).match


class _Mount(Struct, frozen=True):
    device: str
    root: str
    place: str


def _aliases(denied: list[str]) -> Iterator[str]:
    """Yield the other paths of denied paths: the same file system may be mounted more than once."""
    if not denied:
        return
    mounts = list(_mounts())
    for path in denied:
        own = max(
            (mount for mount in mounts if within(path, mount.place)),
            key=lambda mount: len(mount.place),
            default=None,
        )
        if own is None:
            continue
        inside = os.path.join(own.root, os.path.relpath(path, own.place)) if path != own.place else own.root
        for other in mounts:
            if other.device == own.device and within(inside, other.root):
                alias = os.path.normpath(os.path.join(other.place, os.path.relpath(inside, other.root)))
                if alias != path and exists(alias):
                    yield alias


def _mounts() -> Iterator[_Mount]:
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, device, root, place, _ = line.split(b" ", 5)
        yield _Mount(_plain(device), _plain(root), _plain(place))


def _plain(field: bytes) -> str:
    """Undo the escapes of a field of mountinfo."""
    if b"\\" not in field:
        return os.fsdecode(field)
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), field))
