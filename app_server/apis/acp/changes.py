"""What clients of this protocol are sent about a session, whatever the version they speak. Data only.

`session_view` makes these of the engine's events, `replay` of stored turns; `updates` writes them for version 1.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Literal

from protocol.acp.tool_calls import ToolCallStatus, ToolKind
from protocol.base import Json
from protocol.records import dataclass


class Speaker(Enum):
    USER = "user"
    AGENT = "agent"
    THOUGHT = "thought"


@dataclass(frozen=True, slots=True)
class MessageText:
    """A piece of a message. Pieces of one message have the same id."""

    speaker: Speaker
    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownBlock:
    """A part of a message that is no text: a content block as it is sent."""

    speaker: Speaker
    message_id: str
    block: Json


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file, and where in it something is of interest."""

    path: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class OutputPart:
    """What a command printed."""

    text: str


@dataclass(frozen=True, slots=True)
class DiffPart:
    """None: there is no such file."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class BlockPart:
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


@dataclass(frozen=True, slots=True)
class CallChanged:
    call: ShownCall
    step: CallStep


@dataclass(frozen=True, slots=True)
class Printed:
    """A command printed something."""

    call: ShownCall
    text: str


@dataclass(frozen=True, slots=True)
class PlanLine:
    text: str
    status: Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The whole plan."""

    steps: tuple[PlanLine, ...]


@dataclass(frozen=True, slots=True)
class UsageChanged:
    used: int
    size: int


class Severity(Enum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Notice:
    """`passing`: only for clients that have a place for notices."""

    severity: Severity
    text: str
    details: str | None = None
    passing: bool = False
    message_id: str = ""
    """For clients that take it as a message."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """`status` None: it has begun."""

    id: str
    succeeded: bool | None = None


@dataclass(frozen=True, slots=True)
class Titled:
    title: str


Change = (
    MessageText | ShownBlock | CallChanged | Printed | PlanMade | UsageChanged | Notice | Compaction | Titled
)
