"""Lists the files below a root that are not ignored, with a cache of folders that have not changed.

The walk rereads a folder only if its modification time or its ignore rules changed; otherwise a folder costs one
`stat`. It follows links to folders once and only inside the root, and never enters `.git`. Folders are opened by their
real names, so that a folder that was replaced by a link during the walk is left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from app_server.engine.config.project_trust import marks_repository
from app_server.engine.support.light_dataclasses import dataclass, field
from app_server.engine.support.real_path import real_path
from app_server.engine.support.rooted_fs import RootDir, read_named
from app_server.engine.workspace.files.ignore import RuleSet, parse_rules

IGNORE_FILES = (".gitignore", ".ignore")
"""Names of ignore files. In one folder, the later file overrides the earlier one."""
MAX_IGNORE_BYTES = 1024 * 1024
MAX_FILES = 1_000_000
SEPARATOR = "\0"
"""Separator before every path of a listing. No file name can contain it."""

_SETTLED_NS = 50_000_000
_SETTLED_COARSE_NS = 2_500_000_000
"""Periods in nanoseconds after a change. A folder that was read within such a period may change again without a new
modification time. File systems with coarse timestamps, which are recognised by whole seconds, need the longer period.
"""

Signature = tuple[int, int, int]
_NO_FILE: Signature = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Listing:
    """Paths relative to the root, each preceded by a NUL."""

    files: str
    folders: str


@dataclass(frozen=True, slots=True)
class _Folder:
    """The contents of a folder, without ignored entries."""

    mtime_ns: int
    above: RuleSet | None
    rules: RuleSet | None
    signatures: tuple[Signature, ...]
    """Signatures of the folder's ignore files; empty if it has none."""
    listing: str
    folder_listing: str
    count: int
    folders: tuple[str, ...]
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A folder that the walk has not entered yet."""

    path: str
    """Path below the root as it is shown, with the links that lead to the folder."""
    place: str
    """Path of the folder below the root, without links."""
    above: RuleSet | None


@dataclass(slots=True)
class _Walk:
    """One pass over the tree."""

    disk: RootDir
    stop: Callable[[], bool]
    listings: list[str] = field(default_factory=list)
    folder_listings: list[str] = field(default_factory=list)
    count: int = 0
    followed: set[tuple[int, int]] = field(default_factory=set)


class Tree:
    """The files below one root. Not thread-safe."""

    def __init__(self, root: str, now_ns: Callable[[], int]) -> None:
        self._root = root
        self._now_ns = now_ns
        self._folders: dict[str, _Folder] = {}
        self._outer: RuleSet | None = None
        self._outer_signatures: tuple[tuple[str, Signature], ...] = ()

    def listing(self, stop: Callable[[], bool]) -> Listing | None:
        """Return all files and folders below the root; None if the walk was stopped."""
        self._refresh_outer()
        try:
            with RootDir(real_path(self._root)) as disk:
                walk = _Walk(disk, stop)
                if not self._walk(walk):
                    return None
        except OSError:  # the folder does not exist
            return Listing("", "")
        return Listing("".join(walk.listings), "".join(walk.folder_listings))

    def _walk(self, walk: _Walk) -> bool:
        """Return whether the walk was completed."""
        seen: dict[str, _Folder] = {}
        pending = [_Pending("", "", self._outer)]
        while pending and walk.count <= MAX_FILES:
            if walk.stop():
                return False
            here = pending.pop()
            folder = self._cached_or_read(walk.disk, here)
            if folder is None:
                continue
            path, place = here.path, here.place
            seen[path] = folder
            walk.listings.append(folder.listing)
            walk.folder_listings.append(folder.folder_listing)
            walk.count += folder.count
            pending += [
                _Pending(f"{path}{name}/", f"{place}{name}/", folder.rules) for name in folder.folders
            ]
            for name in folder.links:
                self._add_link(f"{path}{name}", folder.rules, walk, pending)
        self._folders = seen
        return True

    def _cached_or_read(self, disk: RootDir, here: _Pending) -> _Folder | None:
        """Return the folder from the cache if nothing in it changed, else from the disk; None if it cannot be read.

        Adding, removing or renaming an entry changes the folder's modification time. Editing an ignore file does not.
        So ignore files have signatures of their own, and the rules from above are compared by identity. A folder that
        changed too recently is cached with the time -1, which never matches, so that the next walk rereads it.
        """
        path, above = here.path, here.above
        try:
            mtime_ns = os.stat(self._root + path).st_mtime_ns
        except (OSError, ValueError):
            return None
        known = self._folders.get(path)
        if (
            known is not None
            and known.mtime_ns == mtime_ns
            and known.above is above
            and (not known.signatures or known.signatures == self._signatures(path))
        ):
            return known
        settled = self._now_ns() - mtime_ns > (
            _SETTLED_NS if mtime_ns % 1_000_000_000 else _SETTLED_COARSE_NS
        )
        return self._read_folder(disk, here, mtime_ns if settled else -1)

    def _read_folder(self, disk: RootDir, here: _Pending, mtime_ns: int) -> _Folder | None:
        path, place, above = here.path, here.place, here.above
        files: list[str] = []
        folders: list[str] = []
        links: list[str] = []
        try:
            with disk.entries(place) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        files.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_symlink():
                        links.append(entry.name)
        except OSError:
            return None
        has_ignore_files = any(name in IGNORE_FILES for name in (*files, *links))
        signatures = self._signatures(path) if has_ignore_files else ()
        rules = self._rules(path, above) if has_ignore_files else above
        if rules is not None:
            files = [name for name in files if not rules.hides(path, name, False)]
            folders = [name for name in folders if not rules.hides(path, name, True)]
        if ".git" in folders:
            folders.remove(".git")
        head = SEPARATOR + path
        return _Folder(
            mtime_ns=mtime_ns,
            above=above,
            rules=rules,
            signatures=signatures,
            listing=head + head.join(files) if files else "",
            folder_listing=head + head.join(folders) if folders else "",
            count=len(files) + 1,
            folders=tuple(folders),
            links=tuple(links),
        )

    def _add_link(self, path: str, rules: RuleSet | None, walk: _Walk, pending: list[_Pending]) -> None:
        """Add the target of a link: a file, or a folder inside the root that was not followed yet.

        An ancestor of the link is not followed, because the walk would be endless.
        """
        place = self._root + path
        try:
            status = os.stat(place)
        except (OSError, ValueError):
            return
        folder, _, name = path.rpartition("/")
        folder = folder + "/" if folder else ""
        if rules is not None and rules.hides(folder, name, False):
            return
        if stat.S_ISREG(status.st_mode):
            walk.listings.append(SEPARATOR + path)
            walk.count += 1
        elif stat.S_ISDIR(status.st_mode) and (status.st_dev, status.st_ino) not in walk.followed:
            target, root = real_path(place) + "/", real_path(self._root) + "/"
            inside = target.startswith(root) and target != root
            if inside and not (real_path(self._root + folder) + "/").startswith(target):
                walk.followed.add((status.st_dev, status.st_ino))
                walk.folder_listings.append(SEPARATOR + path)
                pending.append(_Pending(path + "/", target[len(root) :], rules))

    # --- rules
    def _refresh_outer(self) -> None:
        """Reload the rules of the folders above the root, up to the top of its repository, if they changed."""
        places = _outer_files(self._root)
        signatures = tuple((place, _signature(place)) for _, place in places)
        if signatures != self._outer_signatures:
            rules: RuleSet | None = None
            for prefix, place in places:
                rules = _with_rules_of(place, rules, prefix=prefix)
            self._outer, self._outer_signatures = rules, signatures

    def _signatures(self, path: str) -> tuple[Signature, ...]:
        return tuple(_signature(f"{self._root}{path}{name}") for name in IGNORE_FILES)

    def _rules(self, path: str, above: RuleSet | None) -> RuleSet | None:
        rules = above
        for name in IGNORE_FILES:
            rules = _with_rules_of(f"{self._root}{path}{name}", rules, base=path)
        return rules


def _outer_files(root: str) -> list[tuple[str, str]]:
    """Return the ignore files outside the root that apply to it, lowest precedence first, each with the path from its
    folder to the root.
    """
    inner = Path(root)
    for top in (inner, *inner.parents):
        if marks_repository(top / ".git"):
            break
    else:
        return []
    path = "" if top == inner else f"{inner.relative_to(top).as_posix()}/"
    found = [(path, str(top / ".git" / "info" / "exclude"))]
    folder = top
    while path:
        found += [(path, str(folder / name)) for name in IGNORE_FILES]
        part, _, path = path.partition("/")
        folder = folder / part
    return found


def _with_rules_of(place: str, above: RuleSet | None, *, base: str = "", prefix: str = "") -> RuleSet | None:
    try:
        rules = parse_rules(os.fsdecode(read_named(place, MAX_IGNORE_BYTES)))
    except OSError:  # the file is too long, or not a regular file
        return above
    return RuleSet(rules, above, base=base, prefix=prefix) if rules else above


def _signature(place: str) -> Signature:
    try:
        status = os.stat(place)
    except (OSError, ValueError):
        return _NO_FILE
    return status.st_mtime_ns, status.st_size, status.st_ino
