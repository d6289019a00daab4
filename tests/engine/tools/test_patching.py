"""The course of a patch: it is parsed, judged, approved, written; also for files with unsaved text."""

import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.tools.editor_files import (
    PlannedPatch,
    check_unchanged,
    plan_with_editor,
)
from app_server.engine.tools.patch_tool import PatchFlow
from app_server.engine.tools.tool_base import DiskChanges, EditorAccess, ToolFailure
from app_server.engine.workspace.patch.disk_files import DiskFiles
from app_server.engine.workspace.patch.parse import PatchError, parse_patch
from app_server.engine.workspace.patch.safety import WriteScope
from app_server_protocol.engine.questions import PatchApprovalQuestion
from app_server_protocol.events.command_events import PatchApplyEndEvent
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    ReviewDecision,
    SandboxPolicy,
)
from app_server_protocol.values import replace
from tests.engine.tools.conftest import MakeScene, Scene, ran

YES, SESSION, NO = ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION, ReviewDecision.DENIED
UNTRUSTED, ON_FAILURE = AskForApproval.UNTRUSTED, AskForApproval.ON_FAILURE
ON_REQUEST, NEVER = AskForApproval.ON_REQUEST, AskForApproval.NEVER

REFUSED = ExecResult(
    exit_code=1,
    stdout=b"",
    stderr=b"Failed to write file f",
    aggregated=b"Failed to write file f",
    duration_s=0.1,
)


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def adds(name: str) -> str:
    return patch(f"*** Add File: {name}", "+x")


async def apply(on: Scene, text: str, call_id: str = "c1") -> ExecResult:
    return await PatchFlow(call_id, text, str(on.ws), on.turn).apply()


def end(on: Scene) -> PatchApplyEndEvent:
    [found] = [event for event in on.said if isinstance(event, PatchApplyEndEvent)]
    return found


async def test_a_patch_is_handed_to_a_writer_in_the_sandbox(scene: MakeScene) -> None:
    on = scene()
    on.runner.results = [ran(b"Success")]
    await apply(on, adds("new.txt"))
    assert on.kinds()[0] == "patch_apply_begin"
    assert on.kinds()[-1] == "patch_apply_end"
    assert end(on).success
    [spec] = on.runner.asked
    assert spec.sandbox is not None
    assert sys.executable in spec.argv
    assert not (on.ws / "new.txt").exists()  # the server itself writes nothing
    assert list((on.root / "home/tmp").iterdir()) == []  # and leaves nothing


async def test_the_writer_receives_the_whole_plan_at_once(scene: MakeScene) -> None:
    on = scene()
    told: list[str] = []

    def look(spec: CommandSpec) -> None:
        [document] = (on.root / "home/tmp").iterdir()
        assert str(document) in spec.argv
        assert document.stat().st_mode & 0o077 == 0
        told.extend(edit["path"] for edit in json.loads(document.read_bytes())["edits"])

    on.runner.witness = look
    await apply(on, patch("*** Add File: a", "+x", "*** Add File: b/c", "+y"))
    assert told == [str(on.ws / "a"), str(on.ws / "b/c")]


@pytest.mark.parametrize("approval", list(AskForApproval))
async def test_what_does_not_fit_asks_nobody_and_writes_nothing(
    scene: MakeScene, approval: AskForApproval
) -> None:
    on = scene(approval)
    with pytest.raises(ToolFailure):
        await apply(on, patch("*** Add File: ok", "+x", "*** Update File: missing", "@@", "-a", "+b"))
    assert (on.said, on.runner.asked) == ([], [])


@pytest.mark.parametrize("name", [".git/config", ".codex/config.toml", ".agents/x", "../outside/f"])
async def test_outside_is_asked_where_somebody_can_be_and_refused_where_not(
    scene: MakeScene, name: str
) -> None:
    asked = scene(ON_REQUEST, answers=[NO])
    with pytest.raises(ToolFailure, match="patch rejected by user"):
        await apply(asked, adds(name))
    alone = scene(NEVER)
    with pytest.raises(ToolFailure, match="patch rejected: writing outside of the project"):
        await apply(alone, adds(name))
    assert (len(asked.questions()), len(alone.questions())) == (1, 0)
    assert asked.runner.asked == alone.runner.asked == []


@pytest.mark.parametrize("line", ["secret", "guess"])
async def test_of_a_rejected_patch_no_file_is_read(scene: MakeScene, line: str) -> None:
    """Not even whether the patch fits is reported."""
    on = scene(NEVER)
    (on.root / "outside/f").write_text("secret\n")
    changes = "*** Delete File: ../outside/f", "*** Update File: ../outside/g", "@@", f"-{line}", "+x"
    (on.root / "outside/g").write_text("secret\n")
    with pytest.raises(ToolFailure, match="patch rejected: writing outside of the project"):
        await apply(on, patch(*changes, "*** Add File: new", "+mine"))
    assert "secret" not in repr(on.said)


async def test_a_link_out_of_the_workspace_is_asked_about_by_its_target(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[NO])
    target = on.root / "outside/f"
    target.write_text("a\n")
    (on.ws / "link").symlink_to(target)
    with pytest.raises(ToolFailure):
        await apply(on, patch("*** Update File: link", "@@", "-a", "+b"))
    [question] = on.questions()
    assert isinstance(question, PatchApprovalQuestion)
    assert str(target) in (question.reason or "")


async def test_read_only_lets_no_patch_through_unasked(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, ReadOnly(), [NO])
    with pytest.raises(ToolFailure):
        await apply(on, adds("new.txt"))
    assert on.runner.asked == []


async def test_full_access_writes_anywhere_without_a_sandbox(scene: MakeScene) -> None:
    on = scene(NEVER, DangerFullAccess())
    await apply(on, adds("../outside/f"))
    assert on.runner.confined == [False]


async def test_what_the_user_approved_is_written_again_without_the_sandbox(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[YES])
    on.runner.results = [REFUSED]
    await apply(on, adds("../outside/f"))
    assert on.runner.confined == [True, False]
    assert end(on).success


@pytest.mark.parametrize(
    ("approval", "answers", "confined"),
    [(ON_FAILURE, [YES], [True, False]), (ON_REQUEST, [], [True]), (NEVER, [], [True])],
)
async def test_what_nobody_approved_leaves_the_sandbox_only_after_a_yes(
    scene: MakeScene, approval: AskForApproval, answers: list[ReviewDecision], confined: list[bool]
) -> None:
    on = scene(approval, answers=answers)
    on.runner.results = [REFUSED]
    result = await apply(on, adds("f"))
    assert on.runner.confined == confined
    assert end(on).success is (result.exit_code == 0)


async def test_another_failure_of_the_writer_is_no_reason_to_leave_the_sandbox(scene: MakeScene) -> None:
    on = scene(ON_FAILURE)
    on.runner.results = [
        ExecResult(
            exit_code=1, stdout=b"", stderr=b"f has changed", aggregated=b"f has changed", duration_s=0.1
        )
    ]
    await apply(on, adds("f"))
    assert on.runner.confined == [True]
    assert not end(on).success


@pytest.mark.parametrize("sandbox", [None, DangerFullAccess()])
async def test_leftovers_of_a_killed_writer_are_finished_only_inside_the_sandbox(
    scene: MakeScene, sandbox: SandboxPolicy | None
) -> None:
    """Commands could forge them: a writer with more rights would act for those commands."""
    on = scene(ON_REQUEST, sandbox, [YES])
    on.runner.results = [REFUSED]
    recovers: list[tuple[bool, bool]] = []

    def look(spec: CommandSpec) -> None:
        [document] = (on.root / "home/tmp").iterdir()
        recovers.append((spec.sandbox is not None, json.loads(document.read_bytes())["recover"]))

    on.runner.witness = look
    await apply(on, adds("../outside/f"))
    assert recovers == ([(True, True), (False, False)] if sandbox is None else [(False, False)])


async def test_the_names_of_temporary_files_are_not_the_models_to_choose(scene: MakeScene) -> None:
    on = scene()
    tokens: list[str] = []

    def look(spec: CommandSpec) -> None:
        [document] = (on.root / "home/tmp").iterdir()
        tokens.append(json.loads(document.read_bytes())["token"])

    on.runner.witness = look
    for call_id in ("../../up", "c", "c"):
        await apply(on, adds("f"), call_id)
    assert not any("up" in token or "/" in token for token in tokens)
    assert len(set(tokens)) == 3


async def test_the_same_patch_elsewhere_is_another_question(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[SESSION, NO])
    for name in ("fine", "elsewhere"):
        (on.root / name).mkdir()
    link = on.ws / "link"
    link.symlink_to(on.root / "fine")
    await apply(on, adds("link/f"))
    await apply(on, adds("link/f"), "c2")
    assert len(on.questions()) == 1
    link.unlink()
    link.symlink_to(on.root / "elsewhere")
    with pytest.raises(ToolFailure):
        await apply(on, adds("link/f"), "c3")
    question = on.questions()[1]
    assert isinstance(question, PatchApprovalQuestion)
    assert str(on.root / "elsewhere/f") in (question.reason or "")
    assert len(on.runner.asked) == 2


async def test_a_stricter_policy_ends_what_was_approved_for_the_session(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, answers=[SESSION, NO])
    await apply(on, adds("f"))
    on.turn.settings = replace(on.turn.settings, sandbox_policy=ReadOnly())
    with pytest.raises(ToolFailure):
        await apply(on, adds("f"), "c2")


async def test_a_yes_for_the_session_covers_this_very_patch_only(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, answers=[SESSION, NO])
    await apply(on, adds("f"))
    await apply(on, adds("f"), "c2")
    assert len(on.questions()) == 1
    with pytest.raises(ToolFailure):
        await apply(on, adds("g"), "c3")
    assert len(on.questions()) == 2


PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-{0}\n+patched\n*** End Patch"


class Editor:
    """Editor with texts by file name. It does not answer for a file that it does not have."""

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
