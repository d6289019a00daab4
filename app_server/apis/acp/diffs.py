"""File changes as the diffs that editors show: whole texts while they are live and short, else hunk by hunk. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from app_server.apis.acp.changes import DiffPart, FilePlace
from app_server.core.patch.diff import unified_hunks
from app_server.core.rollout.stored_events import capped
from protocol.engine.items import FileTexts
from protocol.events.patches import AddFileChange, DeleteFileChange, FileChange, UpdateFileChange

WHOLE: Final = 64 * 1024
"""Characters of a file that is shown whole."""
CONTEXT: Final = 3
"""Lines around a change of a longer one."""

_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def diff_parts(changes: Mapping[str, FileChange], texts: Mapping[str, FileTexts]) -> tuple[DiffPart, ...]:
    """`texts` by the same paths, where they are known."""
    return tuple(part for path, change in changes.items() for part in _parts(path, change, texts.get(path)))


def changed_places(
    changes: Mapping[str, FileChange], texts: Mapping[str, FileTexts]
) -> tuple[FilePlace, ...]:
    """Each file with the first line that changed."""
    return tuple(_place(path, change, texts.get(path)) for path, change in changes.items())


def _parts(path: str, change: FileChange, texts: FileTexts | None) -> Iterator[DiffPart]:
    match change:
        case AddFileChange():
            yield DiffPart(path, None, change.content)
        case DeleteFileChange():
            yield DiffPart(path, capped(change.content, WHOLE), None)
        case UpdateFileChange(move_path=target):
            yield from _update(target or path, change, texts)
            if target and texts is not None and len(texts.old or "") <= WHOLE:
                yield DiffPart(path, texts.old or "", None)
        case _:
            assert_never(change)


def _update(path: str, change: UpdateFileChange, texts: FileTexts | None) -> Iterator[DiffPart]:
    if texts is not None and texts.old is not None and texts.new is not None:
        if len(texts.old) <= WHOLE and len(texts.new) <= WHOLE:
            yield DiffPart(path, texts.old, texts.new)
            return
        hunks = unified_hunks(texts.old, texts.new, CONTEXT)
    else:
        hunks = change.unified_diff
    for old, new in _hunks(hunks):
        yield DiffPart(path, old, new)


def _hunks(diff: str) -> Iterator[tuple[str, str]]:
    """Both sides of each hunk."""
    for hunk in re.split(r"^(?=@@)", diff, flags=re.MULTILINE):
        if not hunk.startswith("@@"):
            continue
        old: list[str] = []
        new: list[str] = []
        sides: list[list[str]] = []
        for line in hunk.split("\n")[1:]:
            mark, text = line[:1], line[1:] + "\n"
            if mark == "\\":  # the line before has no end
                for side in sides:
                    side[-1] = side[-1].removesuffix("\n")
                continue
            sides = {" ": [old, new], "-": [old], "+": [new]}.get(mark, [])
            for side in sides:
                side.append(text)
        yield "".join(old), "".join(new)


def _place(path: str, change: FileChange, texts: FileTexts | None) -> FilePlace:
    match change:
        case AddFileChange() | DeleteFileChange():
            return FilePlace(path, 1 if isinstance(change, AddFileChange) else None)
        case UpdateFileChange():
            return FilePlace(change.move_path or path, _first_changed(change.unified_diff))
        case _:
            assert_never(change)


def _first_changed(diff: str) -> int | None:
    """The line of the new text, from 1; None where nothing but the name changed."""
    head = _HUNK.match(diff)
    if head is None:
        return None
    line = int(head[3])
    for text in diff.split("\n")[1:]:
        if text[:1] != " ":
            return max(line, 1)
        line += 1
    return max(line, 1)
