"""A workspace on the disk, and the way from a patch's text to the changed files."""

from pathlib import Path

from app_server.engine.workspace.patch.atomic_writer import apply_document
from app_server.engine.workspace.patch.changes import shown_changes
from app_server.engine.workspace.patch.disk_files import DiskFiles
from app_server.engine.workspace.patch.parse import parse_patch
from app_server.engine.workspace.patch.planner import PatchPlan, plan_patch
from app_server_protocol.encoding import Json
from app_server_protocol.events.command_events import PatchApplyBeginEvent


def wrap(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


def plan(cwd: Path, *lines: str) -> PatchPlan:
    return plan_patch(parse_patch(wrap(*lines)), str(cwd), DiskFiles(None))


def write(made: PatchPlan, token: str = "t", *, recover: bool = False) -> tuple[int, str, str]:
    return apply_document(made.document(token, recover=recover))


def apply(cwd: Path, *lines: str) -> str:
    status, out, err = write(plan(cwd, *lines))
    assert (status, err) == (0, "")
    return out


def tree(folder: Path) -> dict[str, bytes | str]:
    """Return every file's content and every link's target, by relative path."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def shown(made: PatchPlan) -> Json:
    """Return the changes as a client gets them."""
    event = PatchApplyBeginEvent(call_id="c", auto_approved=True, changes=shown_changes(made))
    return event.to_value()["changes"]
