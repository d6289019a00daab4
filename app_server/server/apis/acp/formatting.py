"""Texts and changed files as editors show them: titles, output of commands, fenced blocks. A file is shown as a whole
text if it is known and short, else hunk by hunk. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from app_server.engine.storage.encode import capped
from app_server.engine.workspace.patch import diff
from app_server_protocol.acp.tool_calls import DiffOfCall, ToolCallLocation
from app_server_protocol.engine.item_values import (
    AddFileChange,
    DeleteFileChange,
    FileChange,
    UpdateFileChange,
)
from app_server_protocol.engine.items import FileTexts

TITLE: Final = 80
CALL_TITLE: Final = 120

_CONTROL: Final = (
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles and links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_TICKS: Final = r"`{3,}"
LONGEST_READ: Final = 1 << 16
"""Maximum length of the part of a text that is searched for its first line, in characters."""


def one_line(text: str, limit: int = TITLE) -> str:
    """Return the beginning of a text in one line, of at most `limit` characters."""
    words = " ".join(text[:LONGEST_READ].split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def plain_output(text: str) -> str:
    """Return output without terminal control sequences; of a line that was overwritten, its last state."""
    if "\x1b" in text or not text.isprintable():
        text = re.sub(_CONTROL, "", text)
        if "\r" in text:
            text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return text


def fenced(text: str, language: str = "") -> str:
    """Return a fenced block, with a fence that the text cannot end."""
    longest = max((len(run) for run in re.findall(_TICKS, text)), default=2)
    fence = "`" * (longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}"


WHOLE: Final = 64 * 1024
"""Maximum size of a file that is shown whole, in characters."""
CONTEXT: Final = 3
"""Number of lines shown around a change of a longer file."""

_HUNK: Final = r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@"


def diffs_of(changes: Mapping[str, FileChange], texts: Mapping[str, FileTexts]) -> tuple[DiffOfCall, ...]:
    """Return the diffs of some files. `texts` has the texts of the files, by the same paths, if they are known."""
    return tuple(diff for path, change in changes.items() for diff in _diffs(path, change, texts.get(path)))


def changed_places(changes: Mapping[str, FileChange]) -> tuple[ToolCallLocation, ...]:
    """Return each file with the first line that was changed."""
    return tuple(_place(path, change) for path, change in changes.items())


def _diffs(path: str, change: FileChange, texts: FileTexts | None) -> Iterator[DiffOfCall]:
    match change:
        case AddFileChange():
            yield DiffOfCall(path=path, new_text=change.content)
        case DeleteFileChange():
            yield DiffOfCall(path=path, old_text=capped(change.content, WHOLE), new_text="")
        case UpdateFileChange(move_path=target):
            yield from _update(target or path, change, texts)
            if target and texts is not None and len(texts.old or "") <= WHOLE:
                yield DiffOfCall(path=path, old_text=texts.old or "", new_text="")


def _update(path: str, change: UpdateFileChange, texts: FileTexts | None) -> Iterator[DiffOfCall]:
    if texts is not None and texts.old is not None and texts.new is not None:
        if len(texts.old) <= WHOLE and len(texts.new) <= WHOLE:
            yield DiffOfCall(path=path, old_text=texts.old, new_text=texts.new)
            return
        hunks = diff.unified_hunks(texts.old, texts.new, CONTEXT)
    else:
        hunks = change.unified_diff
    for old, new in _hunks(hunks):
        yield DiffOfCall(path=path, old_text=old, new_text=new)


def _hunks(diff: str) -> Iterator[tuple[str, str]]:
    """Yield the old and the new text of each hunk."""
    for hunk in re.split(r"^(?=@@)", diff, flags=re.MULTILINE):
        if not hunk.startswith("@@"):
            continue
        old: list[str] = []
        new: list[str] = []
        sides: list[list[str]] = []
        for line in hunk.split("\n")[1:]:
            mark, text = line[:1], line[1:] + "\n"
            if mark == "\\":  # the line before has no line end
                for side in sides:
                    side[-1] = side[-1].removesuffix("\n")
                continue
            sides = {" ": [old, new], "-": [old], "+": [new]}.get(mark, [])
            for side in sides:
                side.append(text)
        yield "".join(old), "".join(new)


def _place(path: str, change: FileChange) -> ToolCallLocation:
    match change:
        case AddFileChange():
            return ToolCallLocation(path=path, line=1)
        case DeleteFileChange():
            return ToolCallLocation(path=path)
        case UpdateFileChange():
            return ToolCallLocation(path=change.move_path or path, line=_first_changed(change.unified_diff))


def _first_changed(diff: str) -> int | None:
    """Return the first changed line in the new text, counted from 1; None if only the name changed."""
    head = re.match(_HUNK, diff)
    if head is None:
        return None
    line = int(head[3])
    for text in diff.split("\n")[1:]:
        if text[:1] != " ":
            return max(line, 1)
        line += 1
    return max(line, 1)
