"""Parses the patch grammar: text -> `Patch`. Pure; raises only `PatchSyntaxError`, which is a `PatchError`, the reason
why a patch cannot be applied. It is raised before anything is written.

    patch     = "*** Begin Patch" operation* "*** End Patch"      (may be wrapped in a heredoc)
    operation = "*** Add File: " path ("+" text)*
              | "*** Delete File: " path
              | "*** Update File: " path ["*** Move to: " path] hunk+
    hunk      = ("@@" | "@@ " context)* (" " text | "-" text | "+" text | "")+ ["*** End of File"]

Only the first hunk of a file may omit "@@". An empty line in a hunk is an empty context line. The parser keeps paths as
written; the planner resolves them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, NamedTuple

from app_server.engine.support.engine_errors import CoreError
from app_server.engine.support.light_dataclasses import dataclass


class PatchError(CoreError):
    """The patch does not apply to the current files; nothing was changed."""

    def for_model(self) -> str:
        """Return the text that the model gets instead of the tool's output."""
        return f"apply_patch verification failed: {self}"


class PatchSyntaxError(PatchError):
    """The text is not a valid patch. Line 1 is `*** Begin Patch`."""


def os_reason(error: OSError) -> str:
    """Return the text of an error of the operating system, in the wording that models know from this tool."""
    if error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} (os error {error.errno})"


BEGIN = "*** Begin Patch"
END = "*** End Patch"
ADD = "*** Add File:"
DELETE = "*** Delete File:"
UPDATE = "*** Update File:"
MOVE = "*** Move to:"
END_OF_FILE = "*** End of File"

HEREDOC_STARTS = ("<<EOF", "<<'EOF'", '<<"EOF"')
"""First lines of a heredoc around a patch: models that were trained to write heredocs sometimes add one."""

Mark = Literal[" ", "-", "+"]


class HunkLine(NamedTuple):
    mark: Mark
    text: str


@dataclass(frozen=True, slots=True)
class Hunk:
    """A change at one place of a file. The place is located after the headers, by the context lines and removed
    lines.
    """

    headers: tuple[str, ...]
    """Texts after "@@": lines that occur, in this order, somewhere before the hunk."""
    lines: tuple[HunkLine, ...]
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class AddFile:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class DeleteFile:
    path: str


@dataclass(frozen=True, slots=True)
class UpdateFile:
    path: str
    hunks: tuple[Hunk, ...]
    move_to: str | None = None


FileOperation = AddFile | DeleteFile | UpdateFile


@dataclass(frozen=True, slots=True)
class Patch:
    operations: tuple[FileOperation, ...]


def parse_patch(text: str) -> Patch:
    lines = _unwrapped([line.removesuffix("\r") for line in text.strip().split("\n")])
    cursor = _Cursor(lines)
    operations: list[FileOperation] = []
    while cursor.more():
        operations.append(_operation(cursor))
    return Patch(tuple(operations))


class _Cursor:
    """A position in the lines between the first and the last one."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 1

    def more(self) -> bool:
        return self.at < len(self.lines) - 1

    def peek(self) -> str:
        return self.lines[self.at]

    def take(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]

    def error(self, problem: str, at: int | None = None) -> PatchSyntaxError:
        return PatchSyntaxError(f"invalid hunk at line {(self.at if at is None else at) + 1}, {problem}")


def _unwrapped(lines: list[str]) -> list[str]:
    if len(lines) >= 4 and lines[0] in HEREDOC_STARTS and lines[-1].endswith("EOF"):
        lines = lines[1:-1]
    if lines[0].strip() != BEGIN:
        raise PatchSyntaxError(f"invalid patch: The first line of the patch must be '{BEGIN}'")
    if len(lines) < 2 or lines[-1].strip() != END:
        raise PatchSyntaxError(f"invalid patch: The last line of the patch must be '{END}'")
    return lines


def _operation(cursor: _Cursor) -> FileOperation:
    header = cursor.peek().strip()
    readers: dict[str, Callable[[_Cursor, str], FileOperation]] = {
        ADD: _add,
        DELETE: lambda _, path: DeleteFile(path),
        UPDATE: _update,
    }
    for start, reader in readers.items():
        path = header.removeprefix(start).strip()
        if header.startswith(start) and path:
            cursor.take()
            return reader(cursor, path)
    raise cursor.error(
        f"'{header}' is not a valid hunk header. Valid hunk headers: "
        f"'{ADD} {{path}}', '{DELETE} {{path}}', '{UPDATE} {{path}}'"
    )


def _add(cursor: _Cursor, path: str) -> AddFile:
    content: list[str] = []
    while cursor.more() and cursor.peek().startswith("+"):
        content.append(cursor.take()[1:] + "\n")
    return AddFile(path, "".join(content))


def _update(cursor: _Cursor, path: str) -> UpdateFile:
    header = cursor.at - 1
    move_to = None
    if cursor.more() and cursor.peek().startswith(MOVE):
        move_to = cursor.peek().removeprefix(MOVE).strip()
        if not move_to:
            raise cursor.error("the file has nowhere to move to: no path is given")
        cursor.take()
    hunks: list[Hunk] = []
    while cursor.more() and not cursor.peek().startswith("***"):
        if cursor.peek().strip():
            hunks.append(_hunk(cursor, first=not hunks))
        else:
            cursor.take()
    if not hunks:
        raise cursor.error(f"no change is given for '{path}'", header)
    return UpdateFile(path, tuple(hunks), move_to)


def _hunk(cursor: _Cursor, *, first: bool) -> Hunk:
    start = cursor.at
    headers = _headers(cursor)
    if cursor.at == start and not first:
        raise cursor.error(f"a hunk begins with '@@', not with '{cursor.peek()}'")
    lines = _hunk_lines(cursor)
    at_end = bool(lines) and cursor.more() and cursor.peek().rstrip() == END_OF_FILE
    if at_end:
        cursor.take()
    elif not lines:
        found = f"'{cursor.peek()}'" if cursor.more() else "the end of the patch"
        raise cursor.error(f"a line of a hunk begins with ' ', '+' or '-'; found {found}")
    return Hunk(headers, lines, at_end)


def _headers(cursor: _Cursor) -> tuple[str, ...]:
    headers: list[str] = []
    while cursor.more() and (cursor.peek() == "@@" or cursor.peek().startswith("@@ ")):
        headers.append(cursor.take()[3:])
    return tuple(header for header in headers if header.strip())


def _hunk_lines(cursor: _Cursor) -> tuple[HunkLine, ...]:
    lines: list[HunkLine] = []
    while cursor.more():
        line = cursor.peek()
        match line[:1]:
            case "":
                lines.append(HunkLine(" ", ""))
            case " " | "-" | "+" as mark:
                lines.append(HunkLine(mark, line[1:]))
            case _:
                break
        cursor.take()
    return tuple(lines)
