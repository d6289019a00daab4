"""Planning: a patch and the files as they are -> a `PatchPlan`, or a `PatchError`. Writes nothing.

All hunks of all files are worked out before there is a plan, so a patch that fits only in part has none.
The disk is asked through `Disk`; this module only decides.
"""

from __future__ import annotations

import os.path
from dataclasses import replace
from typing import Protocol, assert_never

from app_server.core.patch.errors import PatchError
from app_server.core.patch.hunks import apply_hunks
from app_server.core.patch.parse import AddFile, DeleteFile, FileOperation, Patch, UpdateFile
from app_server.core.patch.plan import EditKind, FileEdit, PatchPlan, Place
from app_server.core.patch.text import decode
from protocol.records import dataclass

IS_A_DIRECTORY = "Is a directory (os error 21)"
DENIED = "Permission denied (os error 13)"
NOT_TEXT = "the file is not UTF-8 text"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A regular file as it was read."""

    content: bytes
    mode: int
    writable: bool = True


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why there is no snapshot."""

    reason: str
    absent: bool = False


class Disk(Protocol):
    def resolve(self, path: str) -> str:
        """`path` without links and dots. Raises PatchError for what cannot be a path."""
        ...

    def read(self, real: str) -> Snapshot | Unreadable: ...


def plan_patch(patch: Patch, cwd: str, disk: Disk) -> PatchPlan:
    """`cwd` is absolute; the patch's paths are relative to it. The plan names only real paths."""
    planner = _Planner(cwd, disk)
    for operation in patch.operations:
        planner.add(operation)
    order = "AMD"
    summary = sorted(planner.summary, key=lambda line: order.index(line[0]))
    return PatchPlan(disk.resolve(cwd), tuple(planner.edits.values()), tuple(summary))


def resolve_targets(patch: Patch, cwd: str, disk: Disk) -> tuple[Place, ...]:
    """Every path of the patch with what it really is, before any file is read."""
    names: list[str] = []
    for operation in patch.operations:
        names.append(operation.path)
        if isinstance(operation, UpdateFile) and operation.move_to:
            names.append(operation.move_to)
    return tuple(resolve_place(name, cwd, disk) for name in names)


def resolve_place(label: str, cwd: str, disk: Disk) -> Place:
    shown = os.path.normpath(os.path.join(cwd, label))
    real = disk.resolve(os.path.join(cwd, label))
    # A link above the working directory is where the user lives; one below it leads somewhere.
    base = os.path.normpath(cwd)
    inside = shown == base or shown.startswith(base.rstrip("/") + "/")
    expected = os.path.normpath(disk.resolve(base) + shown[len(base) :]) if inside else shown
    linked = real != expected
    return Place(label, real if linked else shown, real, linked)


class _Planner:
    """The edits so far, by real path. A later operation on a file continues from the earlier one's result."""

    def __init__(self, cwd: str, disk: Disk) -> None:
        self.cwd = cwd
        self.disk = disk
        self.edits: dict[str, FileEdit] = {}
        self.summary: list[tuple[str, str]] = []
        self.taken: set[str] = set()
        """Where moved files go."""

    def add(self, operation: FileOperation) -> None:
        place = resolve_place(operation.path, self.cwd, self.disk)
        match operation:
            case AddFile():
                self._add(operation, place)
            case DeleteFile():
                self._delete(place)
            case UpdateFile():
                self._update(operation, place)
            case _:
                assert_never(operation)

    def _add(self, operation: AddFile, place: Place) -> None:
        if place.label.endswith("/"):
            raise PatchError(f"Failed to write file {place.path}: {IS_A_DIRECTORY}")
        new = _encoded(operation.content, place)
        earlier = self._earlier(place, EditKind.DELETE)
        found = self._found(place, earlier)
        if isinstance(found, Unreadable):
            if not found.absent:
                raise PatchError(f"Failed to write file {place.path}: {found.reason}")
            edit = FileEdit(EditKind.ADD, place, None, new)
        else:
            # Overwriting is what the tool always did; as an update it is shown for what it is.
            _check_text(found, f"Failed to write file {place.path}")
            _check_writable(found, place)
            edit = FileEdit(EditKind.UPDATE, place, found.content, new, found.mode)
        self._keep(edit, "A", place)

    def _delete(self, place: Place) -> None:
        earlier = self._earlier(place)
        found = self._found(place, earlier)
        if isinstance(found, Unreadable):
            raise PatchError(f"Failed to read {place.path}: {found.reason}")
        _check_text(found, f"Failed to read {place.path}")
        self._keep(FileEdit(EditKind.DELETE, place, found.content, None, found.mode), "D", place)

    def _update(self, operation: UpdateFile, place: Place) -> None:
        problem = f"Failed to read file to update {place.path}"
        earlier = self._earlier(place, EditKind.UPDATE)
        found = self._found(place, earlier)
        if isinstance(found, Unreadable):
            raise PatchError(f"{problem}: {found.reason}")
        _check_text(found, problem)
        before = earlier.new if earlier and earlier.new is not None else found.content
        try:
            new = apply_hunks(decode(before), operation.hunks, place.path).encode()
        except UnicodeEncodeError as error:
            raise PatchError(
                f"Failed to write file {place.path}: the new text is not valid Unicode"
            ) from error
        destination = self._destination(operation, place)
        if destination is None:
            _check_writable(found, place)
            self._keep(FileEdit(EditKind.UPDATE, place, found.content, new, found.mode), "M", place)
        else:
            edit = FileEdit(EditKind.MOVE, place, found.content, new, found.mode, destination)
            self._keep(edit, "M", destination)

    def _destination(self, operation: UpdateFile, place: Place) -> Place | None:
        """Where the file is moved; None where it stays, also if it is "moved" to where it is."""
        if operation.move_to is None:
            return None
        to = resolve_place(operation.move_to, self.cwd, self.disk)
        if to.real == place.real:
            return None
        if to.label.endswith("/"):
            raise PatchError(f"Failed to write file {to.path}: {IS_A_DIRECTORY}")
        if to.real in self.edits or to.real in self.taken:
            raise _contradiction(to)
        found = self.disk.read(to.real)
        if isinstance(found, Snapshot):
            raise PatchError(f"Failed to move {place.path}: {to.path} already exists")
        if not found.absent:
            raise PatchError(f"Failed to write file {to.path}: {found.reason}")
        return to

    def _earlier(self, place: Place, continues: EditKind | None = None) -> FileEdit | None:
        """The edit of the same file before this one, if this one may follow on it."""
        earlier = self.edits.get(place.real)
        if place.real in self.taken or (earlier is not None and earlier.kind is not continues):
            raise _contradiction(place)
        return earlier

    def _found(self, place: Place, earlier: FileEdit | None) -> Snapshot | Unreadable:
        """The file on disk; read once, however many operations it has."""
        if earlier is None or earlier.old is None:
            return self.disk.read(place.real)
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


def _check_text(found: Snapshot, problem: str) -> None:
    try:
        found.content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PatchError(f"{problem}: {NOT_TEXT}") from error


def _check_writable(found: Snapshot, place: Place) -> None:
    if not found.writable:
        raise PatchError(f"Failed to write file {place.path}: {DENIED}")


def _contradiction(place: Place) -> PatchError:
    return PatchError(f"the patch contradicts itself: it changes {place.path} more than once")
