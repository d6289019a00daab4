"""A patch as clients display it: what is added, removed or changed in each file. Pure."""

from __future__ import annotations

import os.path
from typing import assert_never

from app_server.core.patch.diff import unified_hunks
from app_server.core.patch.parse import AddFile, DeleteFile, FileOperation, Patch, UpdateFile
from app_server.core.patch.patch_plan import FileEdit, PatchPlan
from protocol.engine.items import FileTexts
from protocol.events.patches import AddFileChange, DeleteFileChange, FileChange, UpdateFileChange

SHOWN_CONTEXT = 1
"""Lines of context in the diffs of an approval request."""


def shown_changes(plan: PatchPlan) -> dict[str, FileChange]:
    return {edit.place.path: _change(edit) for edit in plan.edits}


def refused_changes(patch: Patch, cwd: str) -> dict[str, FileChange]:
    """Show what a refused patch says itself: nothing of the files that it names."""
    return {_absolute(each.path, cwd): _wish(each, cwd) for each in patch.operations}


def shown_texts(plan: PatchPlan) -> dict[str, FileTexts]:
    return {
        edit.place.path: FileTexts(
            None if edit.old is None else _text(edit.old), None if edit.new is None else _text(edit.new)
        )
        for edit in plan.edits
    }


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
        case _:
            assert_never(operation)


def _absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, path))


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8")
