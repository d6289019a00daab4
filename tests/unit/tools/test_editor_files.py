"""Patches of files with unsaved text: where they are made, and where not."""

import os
from pathlib import Path

import anyio
import pytest

from app_server.core.patch.disk_files import DiskFiles
from app_server.core.patch.parse import PatchError, parse_patch
from app_server.core.patch.safety import WriteScope
from app_server.core.tools.editor_access import DiskChanges, EditorAccess
from app_server.core.tools.editor_files import (
    PlannedPatch,
    check_unchanged,
    plan_with_editor,
    write_through_editor,
)

PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-{0}\n+patched\n*** End Patch"


class Editor:
    """With texts by file name; what it does not have it does not answer for."""

    def __init__(self, folder: Path, **texts: str) -> None:
        self.texts = {str(folder / name.replace("_", ".")): text for name, text in texts.items()}
        self.refuses = False

    async def read(self, path: str) -> str | None:
        if path not in self.texts:
            await anyio.sleep_forever()
        return self.texts[path]

    async def write(self, path: str, text: str) -> bool:
        self.texts[path] = text
        return not self.refuses


def access(editor: Editor, now_ns: int = 0) -> EditorAccess:
    return EditorAccess(editor, DiskChanges(lambda: now_ns))


async def plan(folder: Path, line: str, editor: EditorAccess | None) -> PlannedPatch:
    return await plan_text(folder, PATCH.format(line), editor)


async def plan_text(folder: Path, text: str, editor: EditorAccess | None) -> PlannedPatch:
    return await plan_with_editor(parse_patch(text), str(folder), DiskFiles(None), editor)


async def test_a_patch_that_fits_the_unsaved_text_is_made_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    editor = Editor(tmp_path, a_txt="unsaved\nrest\n")
    planned = await plan(tmp_path, "unsaved", access(editor))
    (edit,) = planned.through_editor()
    assert (edit.old, edit.new) == (b"unsaved\nrest\n", b"patched\nrest\n")
    assert planned.for_disk().edits == ()
    assert planned.for_disk().summary == (("M", "a.txt"),)
    assert await write_through_editor(access(editor), [edit]) == []
    assert editor.texts[str(tmp_path / "a.txt")] == "patched\nrest\n"


async def test_the_editor_is_asked_for_nothing_outside_of_the_scope(tmp_path: Path) -> None:
    inside, outside = tmp_path / "ws", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.txt").write_text("saved\n")
    editor = Editor(tmp_path)
    asked: list[str] = []

    async def read(path: str) -> str | None:
        asked.append(path)
        return "saved\nunsaved\n"

    editor.read = read  # type: ignore[method-assign]
    update = "*** Update File: {}\n@@\n-saved\n+patched\n"
    both = f"*** Begin Patch\n{update.format(outside / 'a.txt')}{update.format('a.txt')}*** End Patch"
    scope = WriteScope((str(inside),))
    planned = await plan_with_editor(parse_patch(both), str(inside), DiskFiles(None), access(editor), scope)
    assert asked == [str(inside / "a.txt")]
    assert [edit.place.path for edit in planned.through_editor()] == asked


async def test_what_the_editor_does_not_take_is_written_to_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    editor = Editor(tmp_path, a_txt="unsaved\n")
    editor.refuses = True
    planned = await plan(tmp_path, "unsaved", access(editor))
    failed = await write_through_editor(access(editor), planned.through_editor())
    (edit,) = planned.fallback(failed).edits
    assert (edit.old, edit.new) == (b"saved\n", b"patched\n")


async def test_what_is_typed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    editor = Editor(tmp_path, a_txt="unsaved\n")
    planned = await plan(tmp_path, "unsaved", access(editor))
    editor.texts[str(tmp_path / "a.txt")] = "unsaved\nmore\n"
    with pytest.raises(PatchError, match="has changed in the editor"):
        await check_unchanged(access(editor), planned.through_editor())


@pytest.mark.parametrize("shown", ["saved\n", "saved\r\n", "\ufeffsaved\n"])
async def test_a_text_that_is_saved_is_patched_on_the_disk(tmp_path: Path, shown: str) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    planned = await plan(tmp_path, "saved", access(Editor(tmp_path, a_txt=shown)))
    assert planned.through_editor() == []
    assert [edit.old for edit in planned.plan.edits] == [b"saved\n"]


async def test_a_patch_that_fits_only_the_disk_is_written_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    planned = await plan(tmp_path, "saved", access(Editor(tmp_path, a_txt="something else\n")))
    assert planned.through_editor() == []


async def test_a_file_that_a_command_changed_is_taken_from_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("line\nby a command\n")
    changed = os.stat(tmp_path / "a.txt").st_mtime_ns
    editor = access(Editor(tmp_path, a_txt="line\n"), now_ns=changed)
    with editor.changes.span():
        pass
    planned = await plan(tmp_path, "line", editor)
    assert planned.through_editor() == []
    assert not editor.changes.cover(changed + 1)
    editor.changes.open_end()
    assert editor.changes.cover(changed + 1)


async def test_an_editor_that_does_not_answer_in_time_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    planned = await plan(tmp_path, "saved", access(Editor(tmp_path)))
    assert planned.through_editor() == []


async def test_a_link_is_never_written_through_the_editor(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("saved\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").symlink_to(tmp_path / "outside.txt")
    editor = Editor(tmp_path, outside_txt="unsaved\n")
    with pytest.raises(PatchError):
        await plan(tmp_path / "work", "unsaved", access(editor))
    planned = await plan(tmp_path / "work", "saved", access(editor))
    assert planned.through_editor() == []


async def test_files_that_are_added_moved_or_deleted_are_the_disks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    text = (
        "*** Begin Patch\n*** Update File: a.txt\n*** Move to: c.txt\n@@\n-one\n+patched\n"
        "*** Delete File: b.txt\n*** Add File: d.txt\n+new\n*** End Patch"
    )
    editor = Editor(tmp_path, a_txt="one\nunsaved\n", b_txt="unsaved\n")
    planned = await plan_text(tmp_path, text, access(editor))
    assert planned.through_editor() == []
