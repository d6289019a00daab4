"""The values inside of items: what a command line does, changes of files, the plan, and the result of a review. Pure.

Clients of the conversation API and rollouts have them in this form; the thread API and ACP have shapes of their own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.event_items import ExternallyTagged
from app_server_protocol.outgoing import EngineStruct


class ReadCommand(EngineStruct):
    """Shows a file."""

    type: Literal["read"] = "read"
    cmd: str
    name: str
    path: str


class ListFilesCommand(EngineStruct):
    type: Literal["list_files"] = "list_files"
    cmd: str
    path: str | None = None


class SearchCommand(EngineStruct):
    """Looks for text or for files."""

    type: Literal["search"] = "search"
    cmd: str
    query: str | None = None
    path: str | None = None


class UnknownCommand(EngineStruct):
    type: Literal["unknown"] = "unknown"
    cmd: str


ParsedCommand = TypeAliasType(
    "ParsedCommand",
    Annotated[ReadCommand | ListFilesCommand | SearchCommand | UnknownCommand, Field(discriminator="type")],
)


class ExecOutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class AddFileChange(EngineStruct):
    """A new file with this content."""

    content: str


class DeleteFileChange(EngineStruct):
    """The file goes; this was its content."""

    content: str


class UpdateFileChange(EngineStruct):
    """The file changes, and is moved if `move_path` says where to."""

    unified_diff: str
    move_path: str | None = None


TAGGED_CHANGE: Final = ExternallyTagged(
    {"add": AddFileChange, "delete": DeleteFileChange, "update": UpdateFileChange}
)
FileChange = TypeAliasType(
    "FileChange", Annotated[AddFileChange | DeleteFileChange | UpdateFileChange, TAGGED_CHANGE]
)


class StepStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class PlanItemArg(EngineStruct, forbid_unknown_fields=True):
    """One step of the plan. Written by the model, so unknown fields are an error that it is sent."""

    step: str
    status: StepStatus


class ReviewRequest(EngineStruct):
    prompt: str
    user_facing_hint: str


class ReviewLineRange(EngineStruct):
    start: int
    end: int


class ReviewCodeLocation(EngineStruct):
    absolute_file_path: str
    line_range: ReviewLineRange


class ReviewFinding(EngineStruct):
    title: str
    body: str
    confidence_score: float
    priority: int
    code_location: ReviewCodeLocation


class ReviewOutputEvent(EngineStruct):
    """The result of a review."""

    always = ("findings", "overall_correctness", "overall_explanation", "overall_confidence_score")

    findings: tuple[ReviewFinding, ...] = ()
    overall_correctness: str = ""
    overall_explanation: str = ""
    overall_confidence_score: float = 0.0
