"""What models may pass to the built-in tools, with what they are told of each argument.

One struct for each tool gives the schema for the LLM, the validation and the types, apart from the code of the tools,
which is loaded with the first call. The rules are the same for every tool. Null for an optional argument means that it
is absent. Unknown fields are ignored. A value of a wrong type is an error that names its path. Nothing is converted:
the text "5" is not a number. The one exception is an integer written with a zero fraction, because JSON has only one
kind of number.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum, StrEnum
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, Final, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import fields
from pydantic_core import from_json

from app_server.engine.tools.tool_base import ToolFailure
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import StepStatus
from app_server_protocol.outgoing import Struct

PREFIX = "failed to parse function arguments: "
MAX_QUOTED = 200

_NAMES: Final[Mapping[object, str]] = {str: "string", bool: "boolean", float: "number", int: "number"}


class ToolArguments(Struct):
    """The arguments of one tool. A field without a default is required; the default of any other is None."""

    told: ClassVar[str] = ""
    """What the model is told of the tool."""


Arguments = TypeVar("Arguments", bound=ToolArguments)


def _number(text: str) -> float | str:
    """Convert a number with a fraction; one that is out of range stays text, which no field accepts."""
    value = float(text)
    return int(value) if value.is_integer() else value if isfinite(value) else text


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)


def parse_arguments(text: str, kind: type[Arguments]) -> Arguments:
    """Parse and validate; an empty text means no arguments. Raises ToolFailure with the path and the expected type."""
    try:
        return msgspec.convert(_DECODER.decode(text.strip() or "{}"), kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        raise ToolFailure(f"{PREFIX}{place.rstrip('`') or '$'}: {_short(problem)}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _not_json(error) from error


def parse_json(text: str) -> Json:
    """Parse without validation, for arguments that an MCP server validates. None if empty. Raises ToolFailure."""
    if not text.strip():
        return None
    try:
        return from_json(text.encode(), allow_inf_nan=False)
    except ValueError as error:
        raise _not_json(error) from error


@cache
def parameters(kind: type[ToolArguments]) -> dict[str, Json]:
    """Return the JSON Schema for the LLM. Raises TypeError for a field type that it does not support."""
    in_order = sorted(fields(kind), key=lambda field: not field.required)
    required = [field.name for field in in_order if field.required]
    properties = {field.name: _schema(field.type) for field in in_order}
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {}) | {"additionalProperties": False}


def _schema(annotation: Any) -> dict[str, Json]:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, meta = get_args(annotation)
        return _schema(inner) | ({"description": meta.description} if meta.description else {})
    if origin in (Union, types.UnionType) and get_args(annotation)[1:] == (types.NoneType,):
        return _schema(get_args(annotation)[0])
    if origin is tuple:
        return {"type": "array", "items": _schema(get_args(annotation)[0])}
    if annotation in _NAMES:
        return {"type": _NAMES[annotation]}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"type": "string", "enum": [member.value for member in annotation]}
    if isinstance(annotation, type) and issubclass(annotation, ToolArguments):
        return parameters(annotation)
    raise TypeError(f"no schema for {annotation!r}")


def _not_json(error: Exception) -> ToolFailure:
    return ToolFailure(f"{PREFIX}not JSON: {_short(str(error))}")


def _short(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"


def says(description: str) -> Meta:
    """Describe an argument to the model."""
    return Meta(description=description)


Amount = Annotated[float, Meta(ge=0)]
Levels = Annotated[int, Meta(ge=0)]


WORKDIR = says("Where to run it; relative to the working directory.")
TIMEOUT = says("Milliseconds after which it is ended; 10000 by default.")
ESCALATED = says("Ask the user to run it outside of the sandbox; give a justification.")
JUSTIFICATION = says("One sentence for the user: why it must leave the sandbox.")
SHOWN_TOKENS = says("How much of the output you want to see; 10000 by default.")
WAIT = "Milliseconds to wait for output before you are answered; {} by default."


# --- commands
class RunArguments(ToolArguments):
    """The arguments that `shell` and `shell_command` share."""

    workdir: Annotated[str | None, WORKDIR] = None
    timeout_ms: Annotated[Amount | None, TIMEOUT] = None
    with_escalated_permissions: Annotated[bool | None, ESCALATED] = None
    justification: Annotated[str | None, JUSTIFICATION] = None


class ShellArguments(RunArguments):
    told = "Runs a command and returns its output and exit code."
    command: Annotated[
        tuple[str, ...],
        says('The program and its arguments. For shell syntax pass ["bash", "-lc", SCRIPT].'),
    ]


class ShellCommandArguments(RunArguments):
    told = "Runs a line of shell and returns its output and exit code."
    command: Annotated[str, says("A line for the user's shell.")]


class TinyShellArguments(ToolArguments):
    """The arguments of `shell_command` that a model with a tiny window is told of."""

    told = "Runs a shell command; returns output and exit code."
    command: str
    with_escalated_permissions: Annotated[
        bool | None, says("Ask the user to run it without the sandbox.")
    ] = None
    justification: Annotated[str | None, says("Why, for the user.")] = None


class ExecCommandArguments(ToolArguments):
    told = (
        "Runs a line of shell on a terminal. If it has not ended when the time is up, it goes on, and "
        "you are given a session ID for `write_stdin`."
    )
    cmd: Annotated[str, says("A line for the shell.")]
    workdir: Annotated[str | None, WORKDIR] = None
    shell: Annotated[str | None, says("The shell's path; the user's shell by default.")] = None
    login: Annotated[bool | None, says("Whether it is a login shell; it is by default.")] = None
    yield_time_ms: Annotated[Amount | None, says(WAIT.format(10000))] = None
    max_output_tokens: Annotated[Amount | None, SHOWN_TOKENS] = None
    with_escalated_permissions: Annotated[bool | None, ESCALATED] = None
    justification: Annotated[str | None, JUSTIFICATION] = None


class WriteStdinArguments(ToolArguments):
    told = "Types into a running session and returns what it says."
    session_id: Annotated[int, says("The session ID that `exec_command` gave.")]
    chars: Annotated[
        str | None, says("What to type, control characters as they are; nothing, to read only.")
    ] = None
    yield_time_ms: Annotated[Amount | None, says(WAIT.format(250))] = None
    max_output_tokens: Annotated[Amount | None, SHOWN_TOKENS] = None


class PatchArguments(ToolArguments):
    told = "Adds, changes, moves and deletes files. All of the patch is applied, or nothing of it."
    input: Annotated[str, says("The whole patch, from *** Begin Patch to *** End Patch.")]


# --- files
class Mode(StrEnum):
    """Which lines of a file are read."""

    SLICE = "slice"
    INDENTATION = "indentation"


class BlockArguments(ToolArguments):
    anchor_line: Annotated[int | None, says("A line of the block; the offset by default.")] = None
    max_levels: Annotated[
        Levels | None, says("How many enclosing blocks to go up from there; as far as it goes by default.")
    ] = None
    include_siblings: Annotated[
        bool | None, says("Also what stands beside the block, indented like it; not by default.")
    ] = None
    include_header: Annotated[
        bool | None, says("Also comments and attributes right above the block; they are by default.")
    ] = None
    max_lines: Annotated[
        int | None, says("How many lines at most, those nearest to the anchor; the limit by default.")
    ] = None


class ReadFileArguments(ToolArguments):
    told = "Reads lines of a text file; each comes with its number."
    file_path: Annotated[str, says("The file's absolute path.")]
    offset: Annotated[int | None, says("The first line, counted from 1.")] = None
    limit: Annotated[int | None, says("How many lines at most; 2000 by default.")] = None
    mode: Annotated[
        Mode | None,
        says(
            "`slice`, the default, for the lines from offset on; `indentation` for the block that a "
            "line belongs to."
        ),
    ] = None
    indentation: Annotated[BlockArguments | None, says("What the block is, in the mode `indentation`.")] = (
        None
    )


class ListDirArguments(ToolArguments):
    told = "Lists a folder's entries: `/` marks folders, `@` links."
    dir_path: Annotated[str, says("The folder's absolute path.")]
    offset: Annotated[int | None, says("The first entry, counted from 1.")] = None
    limit: Annotated[int | None, says("How many entries at most; 25 by default.")] = None
    depth: Annotated[int | None, says("How deep to go; 2 by default, 1 is the folder only.")] = None


class GrepFilesArguments(ToolArguments):
    told = "Lists the files with a line that matches, the one changed last first."
    pattern: Annotated[str, says("A regular expression, tried on each line.")]
    include: Annotated[str | None, says('Only files whose name fits, such as "*.{ts,tsx}".')] = None
    path: Annotated[str | None, says("File or folder; the working directory by default.")] = None
    limit: Annotated[int | None, says("How many files at most; 100 by default.")] = None


class ViewImageArguments(ToolArguments):
    told = "Attaches an image file, so that you can look at it."
    path: Annotated[str, says("The file; relative to the working directory.")]


# --- resources of MCP servers
class ListingArguments(ToolArguments):
    told = "Lists what MCP servers offer to read, such as files or schemas."
    server: Annotated[str | None, says("The server's name; without it those of all servers are listed.")] = (
        None
    )
    cursor: Annotated[str | None, says("Where to go on: the `nextCursor` of the page before.")] = None


class TemplateArguments(ListingArguments):
    told = "Lists the URI templates of what MCP servers offer to read."


class ReadingArguments(ToolArguments):
    told = "Reads one resource of an MCP server."
    server: Annotated[str, says("The server's name in the configuration.")]
    uri: Annotated[str, says("The resource, as it was listed.")]


# --- the user
class PlanStep(ToolArguments):
    step: str
    status: StepStatus


class PlanArguments(ToolArguments):
    told = "Shows the user the steps of the task and how far each is. Send the whole plan each time."
    explanation: str | None = None
    plan: Annotated[tuple[PlanStep, ...], says("All steps, in order; at most one is in progress.")]


ASKS_IN_DEFAULT_MODE: Final = "default_mode_request_user_input"
"""The feature with which the model may ask the user outside of plan mode."""


class UserInputChoice(ToolArguments):
    label: Annotated[str, says("One to five words.")]
    description: Annotated[str, says("What choosing it means, in a sentence.")]


class UserInputInquiry(ToolArguments):
    id: Annotated[str, says("Names the question in the result; snake_case.")]
    header: Annotated[str, says("At most twelve characters.")]
    question: Annotated[str, says("One sentence.")]
    options: Annotated[
        tuple[UserInputChoice, ...],
        says(
            "Two or three answers that exclude each other, the recommended one first. "
            "The user can always write another one, so do not offer that."
        ),
    ]


class UserInputArguments(ToolArguments):
    told = "Asks the user and waits for the answers. Ask only what you cannot find out yourself."
    questions: Annotated[tuple[UserInputInquiry, ...], says("One to three questions.")]


# --- goals
class NoArguments(ToolArguments):
    told = "The goal of this thread: its objective, status, and what it has used of its budget."


class NewGoal(ToolArguments):
    told = (
        "Gives this thread a goal, for which turns are begun until it is reached. Only where the user asked for a "
        "goal: an ordinary task is none. Fails where there is one that is not complete."
    )
    objective: Annotated[str, says("What is to be reached, concretely.")]
    token_budget: Annotated[
        int | None, says("How many tokens may be used for it. Only where the user named a budget.")
    ] = None


class ReportedStatus(StrEnum):
    """Status of the goal that a model may report."""

    COMPLETE = "complete"
    BLOCKED = "blocked"
    PAUSED = "paused"


class GoalReport(ToolArguments):
    told = "Says that the goal of this thread is complete, blocked or paused; no more turns begin then."
    status: Annotated[
        ReportedStatus,
        says(
            "complete: every part is done and checked. blocked: nothing useful can be done without the "
            "user. paused: the user asked for a pause."
        ),
    ]
