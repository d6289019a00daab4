"""Files with unsaved text in the client's editor, which a patch must neither lose nor overwrite.

The disk is authoritative, with one exception: a file that a patch updates and whose text in the editor differs from the
text on the disk. If the patch fits the editor's text, it is applied there and written through the editor. The editor
writes with the user's rights and follows links. So it is used only while no command of this server runs, which could
put a link in its way. Such a patch is judged and approved like any other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.support.light_dataclasses import replace
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools.tool_base import DiskChanges, EditorAccess, EditorFiles
from app_server.engine.workspace.patch.disk_files import MAX_FILE_BYTES
from app_server.engine.workspace.patch.hunks import BOM, apply_hunks, decode
from app_server.engine.workspace.patch.parse import Patch, PatchError, UpdateFile
from app_server.engine.workspace.patch.planner import (
    FileEdit,
    NoSnapshot,
    PatchFiles,
    PatchPlan,
    Place,
    Snapshot,
    plan_patch,
    resolve_place,
)
from app_server.engine.workspace.patch.safety import WriteScope, may_write
from app_server_protocol.values import Redacted

READ_SECONDS: Final = 0.3
"""Timeout of reading texts from the editor, in seconds. Texts that arrive later are ignored."""
WRITE_SECONDS: Final = 5.0
MOST_FILES: Final = 64
"""Maximum number of files in a patch that goes through the editor. A patch with more files is written to the disk."""


class OverlaidFiles(Struct, frozen=True):
    """The files on the disk, with the editor's texts in place of some of them."""

    disk: PatchFiles
    texts: Mapping[str, bytes]
    """Texts of the editor, by real path."""

    def resolve_path(self, path: str) -> str:
        return self.disk.resolve_path(path)

    def read_file(self, real: str) -> Snapshot | NoSnapshot:
        found = self.disk.read_file(real)
        text = self.texts.get(real)
        return found if text is None or isinstance(found, NoSnapshot) else replace(found, content=text)


class PlannedPatch(Redacted, frozen=True):
    HIDDEN = ("on_disk",)
    plan: PatchPlan
    unsaved: frozenset[str] = frozenset()
    """Real paths of the files that are to be written through the editor."""
    on_disk: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    """Contents of those files on the disk, by real path."""

    def through_editor(self) -> list[FileEdit]:
        return [edit for edit in self.plan.edits if edit.place.real in self.unsaved]

    def for_disk(self) -> PatchPlan:
        """Return the plan without the editor's files, but with the summary of all files, because the model is sent
        it.
        """
        edits = tuple(edit for edit in self.plan.edits if edit.place.real not in self.unsaved)
        return replace(self.plan, edits=edits)

    def fallback(self, failed: list[FileEdit]) -> PatchPlan:
        """Return the plan that writes to the disk the files that the editor did not save."""
        edits = tuple(replace(edit, old=self.on_disk[edit.place.real]) for edit in failed)
        return replace(self.plan, edits=edits)


class _Candidate(Struct, frozen=True):
    place: Place
    content: bytes
    operation: UpdateFile


async def plan_with_editor(
    patch: Patch, cwd: str, disk: PatchFiles, editor: EditorAccess | None, scope: WriteScope | None = None
) -> PlannedPatch:
    """Plan a patch of the disk, or of the editor's text if the patch fits it. If `scope` is given, the editor is asked
    only for files within it. Raises PatchError.
    """
    if editor is not None:
        overlay, on_disk = await _unsaved(patch, cwd, disk, editor, scope)
        if overlay:
            try:
                overlaid = OverlaidFiles(disk, overlay)
                plan = await run_in_thread(plan_patch, patch, cwd, overlaid, abandon_on_cancel=True)
                return PlannedPatch(plan, frozenset(overlay), on_disk)
            except PatchError:
                pass  # it fits only the disk, or neither; then the error below names the content of the disk
    return PlannedPatch(await run_in_thread(plan_patch, patch, cwd, disk, abandon_on_cancel=True))


async def check_unchanged(editor: EditorAccess, edits: list[FileEdit]) -> None:
    """Raise PatchError if the editor's text has changed since the patch was planned."""
    now = await _texts(editor.files, [edit.place.path for edit in edits])
    for edit in edits:
        if _encoded(now.get(edit.place.path)) != edit.old:
            raise PatchError(f"{edit.place.path} has changed in the editor since the patch was planned")


async def write_through_editor(editor: EditorAccess, edits: list[FileEdit]) -> list[FileEdit]:
    """Write the edits, and return those that the editor did not save."""
    failed = []
    for edit in edits:
        taken = False
        with anyio.move_on_after(WRITE_SECONDS):
            taken = await editor.files.write(edit.place.path, (edit.new or b"").decode("utf-8"))
        if not taken:
            failed.append(edit)
    return failed


async def _unsaved(
    patch: Patch, cwd: str, disk: PatchFiles, editor: EditorAccess, scope: WriteScope | None
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return two mappings by real path: the editor's texts that differ from the disk's and fit the patch, and the
    contents of the same files on the disk.
    """
    try:
        candidates = await run_in_thread(
            _candidates, patch, cwd, disk, editor.changes, abandon_on_cancel=True
        )
    except PatchError:
        return {}, {}
    if scope is not None:
        candidates = [each for each in candidates if may_write(each.place.real, scope)]
    texts = await _texts(editor.files, [each.place.path for each in candidates])
    overlay: dict[str, bytes] = {}
    on_disk: dict[str, bytes] = {}
    for each in candidates:
        content = _encoded(texts.get(each.place.path))
        if content is None or _plain(content) == _plain(each.content):
            continue
        try:
            apply_hunks(decode(content), each.operation.hunks, each.place.path)
        except PatchError:
            continue
        overlay[each.place.real], on_disk[each.place.real] = content, each.content
    return overlay, on_disk


def _candidates(patch: Patch, cwd: str, disk: PatchFiles, changes: DiskChanges) -> list[_Candidate]:
    """Return the files that the patch updates once and in place, and whose last change does not come from this
    conversation.
    """
    found, operations = list[_Candidate](), patch.operations
    if len(operations) > MOST_FILES:
        return []
    names = [resolve_place(operation.path, cwd, disk) for operation in operations]
    for place, operation in zip(names, operations, strict=True):
        once = sum(other.real == place.real for other in names) == 1
        if not once or place.linked or not isinstance(operation, UpdateFile) or operation.move_to:
            continue
        snapshot = disk.read_file(place.real)
        if isinstance(snapshot, NoSnapshot) or not _is_text(snapshot.content):
            continue
        if not changes.cover(os.lstat(place.real).st_mtime_ns):
            found.append(_Candidate(place, snapshot.content, operation))
    return found


async def _texts(files: EditorFiles, paths: list[str]) -> dict[str, str]:
    """Return the texts that the editor reports for these files before the timeout."""
    texts: dict[str, str] = {}

    async def ask(path: str) -> None:
        text = await files.read(path)
        if text is not None and len(text) <= MAX_FILE_BYTES:
            texts[path] = text

    with anyio.move_on_after(READ_SECONDS):
        async with anyio.create_task_group() as group:
            for path in paths:
                group.start_soon(ask, path)
    return texts


def _encoded(text: str | None) -> bytes | None:
    try:
        return None if text is None else text.encode("utf-8")
    except UnicodeEncodeError:
        return None


def _plain(content: bytes) -> bytes:
    """Return a text without byte order mark and with normalized line ends: editors show both in their own way."""
    return content.removeprefix(BOM.encode()).replace(b"\r\n", b"\n")


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
