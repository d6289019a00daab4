"""What clients of this protocol are sent about a session, whatever the version they speak: data, and the texts
and diffs in it as editors show them. Pure.

`session_view` makes these of the engine's events, `replay` of stored turns; `updates` writes them for version 1.
File changes are whole texts while they are live and short, else hunk by hunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import Final, Literal, assert_never

from msgspec import Struct

from app_server.core.patch.diff import unified_hunks
from app_server.core.rollout.stored_events import capped
from protocol.acp.tool_calls import ToolCallStatus, ToolKind
from protocol.base import Json
from protocol.engine.items import FileTexts
from protocol.events.commands import AddFileChange, DeleteFileChange, FileChange, UpdateFileChange
from protocol.records import dataclass


class Speaker(Enum):
    USER = "user"
    AGENT = "agent"
    THOUGHT = "thought"


class MessageText(Struct, frozen=True):
    """A piece of a message. Pieces of one message have the same id."""

    speaker: Speaker
    message_id: str
    text: str


class ShownBlock(Struct, frozen=True):
    """A part of a message that is no text: a content block as it is sent."""

    speaker: Speaker
    message_id: str
    block: Json


class FilePlace(Struct, frozen=True):
    """A file, and where in it something is of interest."""

    path: str
    line: int | None = None


class TextPart(Struct, frozen=True):
    text: str


class OutputPart(Struct, frozen=True):
    """What a command printed."""

    text: str


class DiffPart(Struct, frozen=True):
    """None: there is no such file."""

    path: str
    old: str | None
    new: str | None


class BlockPart(Struct, frozen=True):
    """A content block as an MCP server gave it."""

    block: Json


Part = TextPart | OutputPart | DiffPart | BlockPart


@dataclass(slots=True, kw_only=True)
class ShownCall:
    """One tool call as it is now. Its id is unique in the session."""

    id: str
    title: str
    kind: ToolKind
    status: ToolCallStatus = ToolCallStatus.PENDING
    name: str | None = None
    raw_input: Json = None
    raw_output: Json = None
    places: tuple[FilePlace, ...] = ()
    parts: tuple[Part, ...] = ()
    cwd: str | None = None
    """Of a command."""
    exit_code: int | None = None
    printed: list[str] = field(default_factory=list, repr=False)
    """The end of what a command has printed so far; older pieces are dropped."""

    @property
    def runs_command(self) -> bool:
        return self.cwd is not None

    @property
    def is_over(self) -> bool:
        return self.status in (ToolCallStatus.COMPLETED, ToolCallStatus.FAILED)


class CallStep(Enum):
    ANNOUNCED = "announced"
    RUNNING = "running"
    OVER = "over"


class CallChanged(Struct, frozen=True):
    call: ShownCall
    step: CallStep


class Printed(Struct, frozen=True):
    """A command printed something."""

    call: ShownCall
    text: str


class PlanLine(Struct, frozen=True):
    text: str
    status: Literal["pending", "in_progress", "completed"]


class PlanMade(Struct, frozen=True):
    """The whole plan."""

    steps: tuple[PlanLine, ...]


class UsageChanged(Struct, frozen=True):
    used: int
    size: int


class Severity(Enum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Notice(Struct, frozen=True):
    """`passing`: only for clients that have a place for notices."""

    severity: Severity
    text: str
    details: str | None = None
    passing: bool = False
    message_id: str = ""
    """For clients that take it as a message."""


class Compaction(Struct, frozen=True):
    """`status` None: it has begun."""

    id: str
    succeeded: bool | None = None


class Titled(Struct, frozen=True):
    title: str


Change = (
    MessageText | ShownBlock | CallChanged | Printed | PlanMade | UsageChanged | Notice | Compaction | Titled
)


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


TITLE: Final = 80
CALL_TITLE: Final = 120

_CONTROL: Final = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_TICKS: Final = re.compile(r"`{3,}")
LONGEST_LOOK: Final = 1 << 16
"""So much of a text is looked at for its first line."""


def one_line(text: str, limit: int = TITLE) -> str:
    words = " ".join(text[:LONGEST_LOOK].split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def plain_output(text: str) -> str:
    """Without terminal control; of a line that was written over, what was left in the end."""
    if "\x1b" in text or not text.isprintable():
        text = _CONTROL.sub("", text)
        if "\r" in text:
            text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return text


def fenced(text: str, language: str = "") -> str:
    """A fenced block that nothing in the text can end."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}"
