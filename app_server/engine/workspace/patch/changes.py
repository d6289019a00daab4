"""The changes of patches as clients display them: the files of one patch, and the diff of all patches of a turn so far.

The diff of a turn compares each file as it was before the first patch changed it with the disk, so later changes by
commands to such a file appear, too. Object ids are computed here; git is not run.
"""

from __future__ import annotations

import hashlib
import os
import os.path
import stat
from collections.abc import Sequence

from msgspec import Struct

from app_server.engine.config.project_trust import marks_repository
from app_server.engine.workspace.patch.diff import unified_hunks
from app_server.engine.workspace.patch.disk_files import read_regular
from app_server.engine.workspace.patch.parse import AddFile, DeleteFile, FileOperation, Patch, UpdateFile
from app_server.engine.workspace.patch.planner import (
    FileEdit,
    NoSnapshot,
    PatchPlan,
    Place,
    Snapshot,
    is_text,
    text_of,
)
from app_server_protocol.engine.item_values import (
    AddFileChange,
    DeleteFileChange,
    FileChange,
    UpdateFileChange,
)
from app_server_protocol.engine.items import FileTexts

SHOWN_CONTEXT = 1
"""Number of context lines in the diffs of an approval request."""


def shown_changes(plan: PatchPlan) -> dict[str, FileChange]:
    return {edit.place.path: _change(edit) for edit in plan.edits}


def refused_changes(patch: Patch, cwd: str) -> dict[str, FileChange]:
    """Return the changes that the text of a refused patch describes, without any content of the files that it names."""
    return {_absolute(each.path, cwd): _wish(each, cwd) for each in patch.operations}


def shown_texts(plan: PatchPlan) -> dict[str, FileTexts]:
    return {edit.place.path: FileTexts(old=text_of(edit.old), new=text_of(edit.new)) for edit in plan.edits}


def _change(edit: FileEdit) -> FileChange:
    old, new = _text(edit.old), _text(edit.new)
    if edit.new is None:
        return DeleteFileChange(content=old)
    if edit.old is None:
        return AddFileChange(content=new)
    return UpdateFileChange(
        unified_diff=unified_hunks(old, new, SHOWN_CONTEXT),
        move_path=edit.to.path if edit.to else None,
    )


def _wish(operation: FileOperation, cwd: str) -> FileChange:
    match operation:
        case AddFile(content=content):
            return AddFileChange(content=content)
        case DeleteFile():
            return DeleteFileChange(content="")
        case UpdateFile(move_to=target):
            move_path = None if target is None else _absolute(target, cwd)
            return UpdateFileChange(unified_diff="", move_path=move_path)


def _absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, path))


def _text(content: bytes | None) -> str:
    return text_of(content) or ""


CONTEXT = 3
NO_OBJECT = "0" * 40
NO_FILE = "/dev/null"


class _Tracked(Struct, eq=False):
    first: Place
    """Place of the file before the turn."""
    before: Snapshot | None
    now: Place
    """Place to which patches moved the file."""


def turn_diff(plans: Sequence[PatchPlan], home: str | None, base: str | None) -> str | None:
    """Compare the files that these patches changed with the disk; return their diff, None if nothing differs. Blocks.

    `home` is the server's home, whose credentials are not shown. `base` is a directory: all names are relative to its
    repository, or to the directory itself if it is in no repository. Without a `base`, each name is relative to the
    repository of its file.
    """
    return _TurnDiff(plans, home, base).text()


class _TurnDiff:
    """Files that patches changed, with their state before the first of the patches."""

    def __init__(self, plans: Sequence[PatchPlan], home: str | None, base: str | None) -> None:
        self._home, self._base = home, base
        self._files: list[_Tracked] = []
        self._at: dict[str, _Tracked] = {}
        self._roots: dict[str, str | None] = {}
        for edit in (edit for plan in plans for edit in plan.edits):
            tracked = self._track(edit)
            if edit.to is not None:
                self._follow(tracked, edit.place, edit.to)

    def text(self) -> str | None:
        """Return the diff; None if nothing differs."""
        by_new_name = self._base is None
        parts = sorted(
            (self._name(tracked.now if by_new_name else tracked.first), n, tracked)
            for n, tracked in enumerate(self._files)
        )
        return "".join([self._file_diff(self._name(tracked.now), tracked) for _, _, tracked in parts]) or None

    def _track(self, edit: FileEdit) -> _Tracked:
        tracked = self._at.get(edit.place.real)
        if tracked is None:
            before = None if edit.old is None else Snapshot(edit.old, edit.mode or 0)
            tracked = _Tracked(edit.place, before, edit.place)
            self._files.append(tracked)
            self._at[edit.place.real] = tracked
        return tracked

    def _follow(self, tracked: _Tracked, source: Place, to: Place) -> None:
        there = self._at.get(to.real)
        if there is not None and there.before is not None:
            return  # the target existed before the turn: it counts as changed, and the source as deleted
        if there is not None:
            self._files.remove(there)
        del self._at[source.real]
        tracked.now = to
        self._at[to.real] = tracked

    def _file_diff(self, name: str, tracked: _Tracked) -> str:
        old, found = tracked.before, read_regular(tracked.now.real, self._home)
        if isinstance(found, NoSnapshot) and not found.absent:
            return ""
        new = None if isinstance(found, NoSnapshot) else found
        old_name = self._name(tracked.first)
        renamed = old is not None and new is not None and old_name != name
        if not renamed and _same(old, new):
            return ""
        head = [f"diff --git a/{old_name} b/{name}\n", *_mode_lines(old, new)]
        if old is not None and new is not None and old.content == new.content:
            if renamed:
                head += [f"similarity index 100%\nrename from {old_name}\nrename to {name}\n"]
            return "".join(head)
        head.append(f"index {_object_id(old)}..{_object_id(new)}\n")
        return "".join([*head, _body(old, new, f"a/{old_name}", f"b/{name}")])

    def _name(self, place: Place) -> str:
        """Return the name of a file for the diff: relative, or the whole path if the file is outside of that
        directory.
        """
        root = self._repository(self._base or os.path.dirname(place.path)) or self._base
        below = root and os.path.relpath(place.path, root)
        return below if below and not below.startswith("../") else place.path

    def _repository(self, folder: str) -> str | None:
        if folder not in self._roots:
            parent = os.path.dirname(folder)
            if marks_repository(os.path.join(folder, ".git")):
                self._roots[folder] = folder
            else:
                self._roots[folder] = self._repository(parent) if parent != folder else None
        return self._roots[folder]


def _same(old: Snapshot | None, new: Snapshot | None) -> bool:
    if old is None or new is None:
        return old is new
    return old.content == new.content and _git_mode(old) == _git_mode(new)


def _git_mode(found: Snapshot) -> str:
    return "100755" if found.mode & stat.S_IXUSR else "100644"


def _mode_lines(old: Snapshot | None, new: Snapshot | None) -> list[str]:
    if old is None:
        return [f"new file mode {_git_mode(new)}\n"] if new is not None else []
    if new is None:
        return [f"deleted file mode {_git_mode(old)}\n"]
    if _git_mode(old) != _git_mode(new):
        return [f"old mode {_git_mode(old)}\nnew mode {_git_mode(new)}\n"]
    return []


def _object_id(found: Snapshot | None) -> str:
    """Return the id of this content as a git blob."""
    if found is None:
        return NO_OBJECT
    digest = hashlib.sha1(b"blob %d\0" % len(found.content), usedforsecurity=False)
    digest.update(found.content)
    return digest.hexdigest()


def _body(old: Snapshot | None, new: Snapshot | None, old_name: str, new_name: str) -> str:
    """Return the file names and the hunks; empty for an empty file that is added or deleted."""
    before, after = _snapshot_text(old), _snapshot_text(new)
    names = f"--- {old_name if old else NO_FILE}\n+++ {new_name if new else NO_FILE}\n"
    if before is None or after is None:
        return names + "Binary files differ\n"
    hunks = unified_hunks(before, after, CONTEXT)
    return names + hunks if hunks else ""


def _snapshot_text(found: Snapshot | None) -> str | None:
    if found is None:
        return ""
    return text_of(found.content) if is_text(found.content) else None
