"""The result of planning a patch: every file with its bytes before and after. Data only.

The writer receives `document`. Nothing here touches the disk or imports more than the standard library:
`apply_patch` plans in a process of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from protocol.light_dataclasses import dataclass

if TYPE_CHECKING:
    from app_server.core.patch.atomic_writer import EditDocument


@dataclass(frozen=True, slots=True)
class Place:
    """One path of the patch."""

    label: str
    """As the patch spells it, for the model."""
    path: str
    """Absolute, for the user; the real path where a link redirects the name."""
    real: str
    """Absolute, without links: what the assessment and the writer use."""
    linked: bool = False
    """Whether a link redirects the name in the patch."""


@dataclass(frozen=True, slots=True)
class FileEdit:
    place: Place
    old: bytes | None
    """None for a file that does not exist yet."""
    new: bytes | None
    """None for a file that is deleted."""
    mode: int | None = None
    """Permission bits of the file as it was found."""
    to: Place | None = None
    """The target of a move."""


@dataclass(frozen=True, slots=True)
class PatchPlan:
    cwd: str
    """The working directory, a real path."""
    edits: tuple[FileEdit, ...]
    summary: tuple[tuple[str, str], ...]
    """Letter and label of each operation: added first, then modified, then deleted."""

    def places(self) -> tuple[Place, ...]:
        """Return every path that is written or removed."""
        return tuple(place for edit in self.edits for place in (edit.place, edit.to) if place is not None)

    def document(self, token: str, *, recover: bool = False) -> bytes:
        """Return the input of `atomic_writer.py`. `token` makes the names of temporary files unique.

        With `recover`, the writer first undoes what a killed writer left in the same directory. Use it only where the
        writer has no more rights than the commands that ran there: they could forge such leftovers.
        """
        value = {
            "token": token,
            "cwd": self.cwd,
            "recover": recover,
            "edits": [_written(edit) for edit in self.edits],
            "summary": self.summary,
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def _written(edit: FileEdit) -> EditDocument:
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
