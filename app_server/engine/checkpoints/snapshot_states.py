"""The states of files in snapshots of a repository, and the differences between the two snapshots of a turn."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from app_server.engine.checkpoints.folder_scan import Observed
from app_server.engine.checkpoints.history import FileVersion, State
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.workspace.git.ghost import TakenSnapshot
from app_server.engine.workspace.git.worktree_files import look_at


def differences(
    home: Path, begin: TakenSnapshot, end: TakenSnapshot, seen: Mapping[str, State]
) -> list[Observed]:
    """Return the files that differ between two snapshots of a working tree. `seen` has the states of files that were
    looked at since the first one. A file that is still there but not in the second one does not count, nor does one
    that was there but not in the first. Blocks.
    """
    root, before, after = begin.repository.root, manifest_of(begin), manifest_of(end)
    for path, state in seen.items():
        if state is not None:
            before[path] = state
        else:
            before.pop(path, None)
    known = _Names(begin)
    private = {*begin.worktree.private, *end.worktree.private}
    found = []
    with RootDir(root, home) as disk:
        for path in sorted(name for name in {*before, *after} if before.get(name) != after.get(name)):
            name = os.fsencode(path[len(str(root).rstrip("/")) + 1 :])
            file = look_at(disk, name)
            if path not in after and file is not None:
                continue  # it cannot be read, or is too large
            if path not in before and (name in known or file is None):
                continue
            ctime_ns = 0 if file is None else file.ctime_ns
            found.append(Observed(path, before.get(path), after.get(path), ctime_ns, name in private))
    return found


class _Names:
    """Names that were in a working tree and not in its snapshot, by themselves or in a folder."""

    def __init__(self, taken: TakenSnapshot) -> None:
        names = set(taken.missing)
        self._files = {name for name in names if not name.endswith(b"/")}
        self._folders = {name for name in names if name.endswith(b"/")}

    def __contains__(self, name: bytes) -> bool:
        if name in self._files:
            return True
        at = name.find(b"/")
        while at >= 0:
            if name[: at + 1] in self._folders:
                return True
            at = name.find(b"/", at + 1)
        return False


def manifest_of(taken: TakenSnapshot) -> dict[str, FileVersion]:
    """Return the states of the files of a snapshot by their absolute paths. Nested repositories are left out."""
    root = str(taken.repository.root).rstrip("/") + "/"
    return dict(_states(root, taken.worktree.entries))


def _states(root: str, entries: Iterable[bytes]) -> Iterator[tuple[str, FileVersion]]:
    for entry in entries:
        head, _, name = entry[:-1].partition(b"\t")
        mode, _, digest = head.partition(b" ")
        if mode != b"160000":
            yield root + os.fsdecode(name), FileVersion(digest.decode(), int(mode, 8))
