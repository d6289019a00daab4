"""Files with unsaved text in the client's editor, which a patch must neither lose nor overwrite.

The disk is the truth, except for a file that a patch updates and whose text in the editor differs from the disk's: if
the patch fits the editor's text, it is made there and written through the editor. The editor writes with the user's
rights and follows links, so it is used only while no command of this server runs that could put one in its way, and
the patch is judged and asked about as any other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import anyio
import msgspec
from msgspec import Struct

from app_server.core.patch.disk_files import MAX_FILE_BYTES
from app_server.core.patch.hunks import BOM, apply_hunks, decode
from app_server.core.patch.parse import Patch, PatchError, UpdateFile
from app_server.core.patch.planner import (
    FileEdit,
    NoSnapshot,
    PatchFiles,
    PatchPlan,
    Place,
    Snapshot,
    plan_patch,
    resolve_place,
)
from app_server.core.patch.safety import WriteScope, may_write
from app_server.core.threads import run_in_thread
from app_server.core.tools.contract import DiskChanges, EditorAccess, EditorFiles
from app_server.light_dataclasses import replace
from app_server_protocol.structs import Discreet

READ_SECONDS: Final = 0.3
"""An editor that takes longer to say what it has is not waited for."""
WRITE_SECONDS: Final = 5.0
MOST_FILES: Final = 64
"""A patch of more files is written to the disk."""


class OverlaidFiles(Struct, frozen=True):
    """The disk, with other texts for some files."""

    disk: PatchFiles
    texts: Mapping[str, bytes]
    """By real path."""

    def resolve_path(self, path: str) -> str:
        return self.disk.resolve_path(path)

    def read_file(self, real: str) -> Snapshot | NoSnapshot:
        found = self.disk.read_file(real)
        text = self.texts.get(real)
        return found if text is None or isinstance(found, NoSnapshot) else replace(found, content=text)


class PlannedPatch(Discreet, frozen=True):
    HIDDEN = ("on_disk",)
    plan: PatchPlan
    unsaved: frozenset[str] = frozenset()
    """Real paths of the files that are written through the editor."""
    on_disk: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    """What those files are on the disk."""

    def through_editor(self) -> list[FileEdit]:
        return [edit for edit in self.plan.edits if edit.place.real in self.unsaved]

    def for_disk(self) -> PatchPlan:
        """Return the rest, with the summary of all: it is what the model is sent."""
        edits = tuple(edit for edit in self.plan.edits if edit.place.real not in self.unsaved)
        return replace(self.plan, edits=edits)

    def fallback(self, failed: list[FileEdit]) -> PatchPlan:
        """Writes to the disk what the editor did not take."""
        edits = tuple(replace(edit, old=self.on_disk[edit.place.real]) for edit in failed)
        return replace(self.plan, edits=edits)


class _Candidate(Struct, frozen=True):
    place: Place
    content: bytes
    operation: UpdateFile


async def plan_with_editor(
    patch: Patch, cwd: str, disk: PatchFiles, editor: EditorAccess | None, scope: WriteScope | None = None
) -> PlannedPatch:
    """Plan a patch of the disk, or of the editor's text where it fits that. The editor is asked for files of `scope`
    only, if there is one. Raises PatchError.
    """
    if editor is not None:
        overlay, on_disk = await _unsaved(patch, cwd, disk, editor, scope)
        if overlay:
            try:
                overlaid = OverlaidFiles(disk, overlay)
                plan = await run_in_thread(plan_patch, patch, cwd, overlaid, abandon_on_cancel=True)
                return PlannedPatch(plan, frozenset(overlay), on_disk)
            except PatchError:
                pass  # it fits only the disk, or neither; then the error names what is on the disk
    return PlannedPatch(await run_in_thread(plan_patch, patch, cwd, disk, abandon_on_cancel=True))


async def check_unchanged(editor: EditorAccess, edits: list[FileEdit]) -> None:
    """Raises PatchError where the editor's text is another one than when the patch was planned."""
    now = await _texts(editor.files, [edit.place.path for edit in edits])
    for edit in edits:
        if _encoded(now.get(edit.place.path)) != edit.old:
            raise PatchError(f"{edit.place.path} has changed in the editor since the patch was planned")


async def write_through_editor(editor: EditorAccess, edits: list[FileEdit]) -> list[FileEdit]:
    """Return those that the editor did not take."""
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
    """Return, by real path, the texts of the editor that differ from the disk's and fit the patch; and the disk's."""
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
    """Return files that the patch updates once, in place, and that nothing of this conversation has changed last."""
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
    """Return what the editor says of these files in time."""
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
    """Return a text without line ends and byte order marks, which editors show in their own way."""
    return content.removeprefix(BOM.encode()).replace(b"\r\n", b"\n")


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
