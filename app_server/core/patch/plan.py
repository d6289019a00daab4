"""What a patch comes to: every file with its bytes before and after. Data only.

`document` is what the writer is handed. Nothing here touches the disk, nor imports more than the standard library:
`program` plans in a process of its own.
"""

from __future__ import annotations

import json
import os.path
from enum import StrEnum

from protocol.records import dataclass

_HERE = os.path.dirname(os.path.abspath(__file__))
WRITER, PROGRAM = os.path.join(_HERE, "writer.py"), os.path.join(_HERE, "program.py")


def writer_command(python: str) -> tuple[str, ...]:
    """What to run where the patch's rights are; it reads `PatchPlan.document` on stdin."""
    return (python, "-I", "-S", WRITER)


def program_command(python: str) -> tuple[str, ...]:
    """`apply_patch` for commands, but for the patch. Texts and names are UTF-8 whatever the command's locale is."""
    return (python, "-I", "-S", "-X", "utf8", PROGRAM)


class EditKind(StrEnum):
    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Place:
    """One path of the patch."""

    label: str
    """As the patch spells it; what the model reads back."""
    path: str
    """Absolute, as the user is shown it; the real path where a link leads elsewhere than the name says."""
    real: str
    """Absolute, without links: what is judged and what is written."""
    linked: bool = False
    """A link led away from the name in the patch."""


@dataclass(frozen=True, slots=True)
class FileEdit:
    kind: EditKind
    place: Place
    old: bytes | None
    """None for a file that does not exist yet."""
    new: bytes | None
    """None for a file that goes."""
    mode: int | None = None
    """Permission bits of the file as it was found."""
    to: Place | None = None
    """Where a moved file goes."""


@dataclass(frozen=True, slots=True)
class PatchPlan:
    cwd: str
    """The working directory, a real path."""
    edits: tuple[FileEdit, ...]
    summary: tuple[tuple[str, str], ...]
    """Letter and label for each operation: added first, then modified, then deleted."""

    def places(self) -> tuple[Place, ...]:
        """Every path that is written or removed."""
        return tuple(place for edit in self.edits for place in (edit.place, edit.to) if place is not None)

    def document(self, token: str, *, recover: bool = False) -> bytes:
        """What `writer.py` reads. `token` makes the names of temporary files unique.

        `recover` lets the writer first undo what a killed one left behind in the same directory. Only where
        it has no more rights than the commands that have been running there: they could forge such leftovers.
        """
        value = {
            "token": token,
            "cwd": self.cwd,
            "recover": recover,
            "edits": [_written(edit) for edit in self.edits],
            "summary": self.summary,
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def _written(edit: FileEdit) -> dict[str, str | None]:
    return {
        "label": edit.place.label,
        "path": edit.place.real,
        "old": None if edit.old is None else _text(edit.old),
        "new": None if edit.new is None else _text(edit.new),
        "to_label": edit.to.label if edit.to else None,
        "to_path": edit.to.real if edit.to else None,
    }


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8")
