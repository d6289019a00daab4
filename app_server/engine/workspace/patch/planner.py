"""Plans a patch: makes a `PatchPlan` from the patch and the current files, or raises `PatchError`. Writes nothing.

The planner applies all hunks of all files before it returns a plan, so a patch that applies only in part has no plan.
It reads files through `PatchFiles`. The writer gets `PatchPlan.document`.
"""

from __future__ import annotations

import json
import os.path
from typing import TYPE_CHECKING, Protocol

from app_server.engine.support.light_dataclasses import dataclass, replace
from app_server.engine.support.real_path import within
from app_server.engine.workspace.patch.hunks import ANY_BYTES, apply_hunks, decode
from app_server.engine.workspace.patch.parse import (
    AddFile,
    DeleteFile,
    FileOperation,
    Patch,
    PatchError,
    UpdateFile,
)

if TYPE_CHECKING:
    from app_server.engine.workspace.patch.atomic_writer import EditDocument

IS_A_DIRECTORY = "Is a directory (os error 21)"
DENIED = "Permission denied (os error 13)"
NOT_TEXT = "the file is not text"
OTHER_ENCODING = "the file is not in UTF-8, so only lines in ASCII can be added to it"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content and status of a regular file."""

    content: bytes
    mode: int
    writable: bool = True


@dataclass(frozen=True, slots=True)
class NoSnapshot:
    """The reason why a file could not be read."""

    reason: str
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """One path of the patch."""

    label: str
    """Path as written in the patch, for the model."""
    path: str
    """Absolute path for the user; the real path if a link redirects the name."""
    real: str
    """Absolute path without links, for the assessment and the writer."""
    linked: bool = False
    """Whether a link redirects the name in the patch."""


@dataclass(frozen=True, slots=True)
class FileEdit:
    place: Place
    old: bytes | None
    """Content before the patch; None if the file does not exist yet."""
    new: bytes | None
    """Content after the patch; None if the file is deleted."""
    mode: int | None = None
    """Permission bits of the file before the patch; None if it does not exist yet."""
    to: Place | None = None
    """Target of a move; None if the file is not moved."""


@dataclass(frozen=True, slots=True)
class PatchPlan:
    cwd: str
    """Real path of the working directory."""
    edits: tuple[FileEdit, ...]
    summary: tuple[tuple[str, str], ...]
    """Letter and label of each operation: added files first, then modified ones, then deleted ones."""

    def places(self) -> tuple[Place, ...]:
        """Return every path that is written or removed."""
        return tuple(place for edit in self.edits for place in (edit.place, edit.to) if place is not None)

    def document(self, token: str, *, recover: bool = False) -> bytes:
        """Return the input of `atomic_writer.py`. `token` makes the names of temporary files unique.

        With `recover`, the writer first undoes the incomplete work of a killed writer in the same directory. Use it
        only if the writer has no more rights than the commands that ran there: they could forge such leftovers.
        """
        value = {
            "token": token,
            "cwd": self.cwd,
            "recover": recover,
            "edits": [_written(edit) for edit in self.edits],
            "summary": self.summary,
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def text_of(content: bytes | None) -> str | None:
    """Return the text of a file in a plan, for people; None if there is no file."""
    return None if content is None else content.decode("utf-8", "replace")


def _exact(content: bytes | None) -> str | None:
    """Return the text of a file in a plan, from which the writer restores the same bytes; None if there is no file."""
    return None if content is None else content.decode("utf-8", ANY_BYTES)


def _written(edit: FileEdit) -> EditDocument:
    return {
        "label": edit.place.label,
        "path": edit.place.real,
        "old": _exact(edit.old),
        "new": _exact(edit.new),
        "to_label": edit.to.label if edit.to else None,
        "to_path": edit.to.real if edit.to else None,
    }


class PatchFiles(Protocol):
    def resolve_path(self, path: str) -> str:
        """Return `path` without links and dots. Raises PatchError for an invalid path."""
        ...

    def read_file(self, real: str) -> Snapshot | NoSnapshot: ...


def plan_patch(patch: Patch, cwd: str, files: PatchFiles) -> PatchPlan:
    """Plan all operations of a patch. `cwd` is absolute, and relative paths in the patch start there. The plan contains
    only real paths.
    """
    planner = _Planner(cwd, files)
    for operation in patch.operations:
        planner.add(operation)
    order = "AMD"
    summary = sorted(planner.summary, key=lambda line: order.index(line[0]))
    return PatchPlan(files.resolve_path(cwd), tuple(planner.edits.values()), tuple(summary))


def named_places(patch: Patch, cwd: str, files: PatchFiles) -> list[Place]:
    """Return every path of a patch, including targets of moves, resolved. No file is read."""
    names = [
        name
        for operation in patch.operations
        for name in (operation.path, operation.move_to if isinstance(operation, UpdateFile) else None)
        if name is not None
    ]
    return [resolve_place(name, cwd, files) for name in names]


def resolve_place(label: str, cwd: str, files: PatchFiles) -> Place:
    shown = os.path.normpath(os.path.join(cwd, label))
    real = files.resolve_path(os.path.join(cwd, label))
    # Links above the working directory are the user's own layout. Only links below it redirect a path of the patch.
    base = os.path.normpath(cwd)
    expected = shown
    if within(shown, base):
        expected = os.path.normpath(files.resolve_path(base) + shown[len(base) :])
    linked = real != expected
    return Place(label, real if linked else shown, real, linked)


class _Planner:
    """Collects the edits of a patch by real path. A later operation on a file continues from the earlier one's
    result.
    """

    def __init__(self, cwd: str, files: PatchFiles) -> None:
        self.cwd = cwd
        self.files = files
        self.edits: dict[str, FileEdit] = {}
        self.summary: list[tuple[str, str]] = []
        self.taken: set[str] = set()
        """Real paths of the targets of moves."""

    def add(self, operation: FileOperation) -> None:
        place = resolve_place(operation.path, self.cwd, self.files)
        match operation:
            case AddFile():
                self._add(operation, place)
            case DeleteFile():
                self._delete(place)
            case UpdateFile():
                self._update(operation, place)

    def _add(self, operation: AddFile, place: Place) -> None:
        if place.label.endswith("/"):
            raise PatchError(f"Failed to write file {place.path}: {IS_A_DIRECTORY}")
        new = _encoded(operation.content, place)
        earlier = self._earlier(place, deleted=True)
        found = self._found(place, earlier)
        if isinstance(found, NoSnapshot):
            if not found.absent:
                raise PatchError(f"Failed to write file {place.path}: {found.reason}")
            edit = FileEdit(place, None, new)
        else:
            # The tool overwrites an existing file; the plan calls that an update, so the user sees what is lost.
            _check_text(found, f"Failed to write file {place.path}")
            _check_writable(found, place)
            edit = FileEdit(place, found.content, new, found.mode)
        self._keep(edit, "A", place)

    def _delete(self, place: Place) -> None:
        if place.real in self.edits or place.real in self.taken:
            raise _contradiction(place)
        found = self.files.read_file(place.real)
        if isinstance(found, NoSnapshot):
            raise PatchError(f"Failed to read {place.path}: {found.reason}")
        _check_text(found, f"Failed to read {place.path}")
        self._keep(FileEdit(place, found.content, None, found.mode), "D", place)

    def _update(self, operation: UpdateFile, place: Place) -> None:
        problem = f"Failed to read file to update {place.path}"
        earlier = self._earlier(place, deleted=False)
        found = self._found(place, earlier)
        if isinstance(found, NoSnapshot):
            raise PatchError(f"{problem}: {found.reason}")
        _check_text(found, problem)
        before = earlier.new if earlier and earlier.new is not None else found.content
        added = "".join(line.text for hunk in operation.hunks for line in hunk.lines if line.mark == "+")
        if not (_encoded(added, place).isascii() or _is_utf8(before)):
            raise PatchError(f"Failed to write file {place.path}: {OTHER_ENCODING}")
        new = apply_hunks(decode(before), operation.hunks, place.path).encode()
        destination = self._destination(operation, place)
        if destination is None:
            _check_writable(found, place)
            self._keep(FileEdit(place, found.content, new, found.mode), "M", place)
        else:
            edit = FileEdit(place, found.content, new, found.mode, destination)
            self._keep(edit, "M", destination)

    def _destination(self, operation: UpdateFile, place: Place) -> Place | None:
        """Return the target of the move; None if there is no move, or if the target is the file itself."""
        if operation.move_to is None:
            return None
        to = resolve_place(operation.move_to, self.cwd, self.files)
        if to.real == place.real:
            return None
        if to.label.endswith("/"):
            raise PatchError(f"Failed to write file {to.path}: {IS_A_DIRECTORY}")
        if to.real in self.edits or to.real in self.taken:
            raise _contradiction(to)
        found = self.files.read_file(to.real)
        if isinstance(found, Snapshot):
            raise PatchError(f"Failed to move {place.path}: {to.path} already exists")
        if not found.absent:
            raise PatchError(f"Failed to write file {to.path}: {found.reason}")
        return to

    def _earlier(self, place: Place, *, deleted: bool) -> FileEdit | None:
        """Return the previous edit of the same file, from which this one continues; None if there is none. It must be a
        deletion if `deleted`, else an update.
        """
        earlier = self.edits.get(place.real)
        if place.real in self.taken:
            raise _contradiction(place)
        if earlier and (earlier.old is None or earlier.to or (earlier.new is None) is not deleted):
            raise _contradiction(place)
        return earlier

    def _found(self, place: Place, earlier: FileEdit | None) -> Snapshot | NoSnapshot:
        """Return the file on disk, which is read once for all operations on it."""
        if earlier is None or earlier.old is None:
            return self.files.read_file(place.real)
        return Snapshot(earlier.old, earlier.mode or 0)

    def _keep(self, edit: FileEdit, letter: str, place: Place) -> None:
        earlier = self.edits.get(edit.place.real)
        if earlier is not None:
            edit = replace(edit, place=earlier.place)
        self.edits[edit.place.real] = edit
        if edit.to is not None:
            self.taken.add(edit.to.real)
        self.summary.append((letter, place.label))


def _encoded(text: str, place: Place) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PatchError(f"Failed to write file {place.path}: the new text is not valid Unicode") from error


def is_text(content: bytes) -> bool:
    """Return whether a file is text. A text in an older encoding than UTF-8 contains no NUL."""
    return b"\0" not in content or _is_utf8(content)


def _check_text(found: Snapshot, problem: str) -> None:
    if not is_text(found.content):
        raise PatchError(f"{problem}: {NOT_TEXT}")


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _check_writable(found: Snapshot, place: Place) -> None:
    if not found.writable:
        raise PatchError(f"Failed to write file {place.path}: {DENIED}")


def _contradiction(place: Place) -> PatchError:
    return PatchError(f"the patch contradicts itself: it changes {place.path} more than once")
