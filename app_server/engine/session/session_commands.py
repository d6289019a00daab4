"""All commands of an open conversation, as one union of values, and the errors with which they are refused.

Each API translates its own requests into these commands. Where clients differ in what they want, the command has an
option, whose name states the wish and not the API.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from app_server.engine.support.engine_errors import CoreError
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.item_values import ReviewRequest
from app_server_protocol.engine.questions import (
    FileGrant,
    McpCallDecision,
    RuleAmendment,
    ToolCallAnswer,
    UserInputAnswer,
)
from app_server_protocol.engine.thread_settings import UNCHANGED, SettingsPatch
from app_server_protocol.policy import ElicitationAction, ReviewDecision
from app_server_protocol.responses import ResponseItem

FORGOTTEN_MS = 60 * 60 * 1000
"""Time limit of commands that the user can interrupt, in milliseconds. It only ends commands that the user forgot."""


class ApiBehaviour(Struct, frozen=True, kw_only=True):
    """Wishes of the clients of an API for the turns that they begin."""

    names_turn: bool = True
    """Whether the client learns the id of the turn that its input belongs to. The input is then answered in that turn,
    which begins and ends in any case, and input for a turn that accepts none is refused. Otherwise input joins the turn
    that makes the next request to the model, including a review, and begins a new turn if there is none; without input,
    no request is made.
    """
    skills: bool = True
    """Whether the model is sent a list of the enabled skills."""
    goals: bool = True
    """Whether the turn counts for the goal of the conversation; the turn's tools can then read and change the goal."""
    compacts_at_begin: bool = True
    """Whether a full context is compacted at the start of the next turn, instead of after the model's answer."""
    relative_diff: bool = True
    """Whether the turn's diff names files relative to its working directory."""
    sends_chosen_effort: bool = True
    """Whether an effort that the user chose is sent to any model."""
    checks_pictures: bool = True
    """Whether pictures with wrong checksums are left out."""
    ghost_commits: bool = False
    """Whether a turn leaves commits of the working tree in the repository and in the history, as codex 0.58 does."""
    refuses_silent_tools: bool = True
    """Whether, if no user can be asked, tools of MCP servers that give no hints fail unless the turn has full
    access.
    """


ALL_WISHES: Final = ApiBehaviour()


class StartTurn(Struct, frozen=True, kw_only=True):
    """Begin a turn with the user's input. The settings hold for this turn and later ones, the schema for this turn
    only.
    """

    turn_input: TurnInput | None
    """The user's input; None if there is none."""
    change: SettingsPatch = UNCHANGED
    output_schema: Json = None
    wishes: ApiBehaviour = ALL_WISHES


class ContinueGoal(Struct, frozen=True):
    """Begin a turn for the goal, if the goal is still open and the conversation is idle."""


class Interrupt(Struct, frozen=True):
    """End the given turn, or the current one; nothing happens if it has already ended."""

    turn_id: str | None = None


class ChangeSettings(Struct, frozen=True):
    """Change the settings of later turns."""

    change: SettingsPatch
    now: bool = False
    """Whether the permissions of commands and patches change in the current turn, too, from the next command or patch
    on.
    """


class AddItems(Struct, frozen=True):
    """Add items to the history, which the model receives with its next request."""

    items: tuple[ResponseItem, ...]


class Compact(Struct, frozen=True):
    """Replace the history by a summary, in a turn of its own."""


class Undo(Struct, frozen=True):
    """Put the files back to the time before the last turn that changed some. Refused during a turn, which continues."""

    back: bool = False
    """Whether the last undo is taken back instead."""


class Review(Struct, frozen=True):
    """Run a review as a turn of its own."""

    request: ReviewRequest


class RunShell(Struct, frozen=True):
    """Run a command that the user typed, without the sandbox, within the current turn or in a turn of its own; the
    model is informed. `confined`: run it in the sandbox and in a turn of its own, without informing the model.
    """

    command: str
    timeout_ms: int = FORGOTTEN_MS
    confined: bool = False


class ResolveApproval(Struct, frozen=True):
    """Answer a request for approval, by its call's id or by the id of an operation that has one open request."""

    id: str
    decision: ReviewDecision
    also: RuleAmendment | FileGrant | None = None
    """Permission that is granted in addition to the request; None if there is none."""
    tool: Literal["shell", "apply_patch"] = "shell"


class ResolveUserInput(Struct, frozen=True):
    """Answer the question with this id; None if the user gave no answer."""

    call_id: str
    answer: ToolCallAnswer | UserInputAnswer | McpCallDecision | None


class AnswerElicitation(Struct, frozen=True):
    """Answer an elicitation of an MCP server."""

    server: str
    request_id: str
    action: ElicitationAction
    content: Json = None


class AddToHistory(Struct, frozen=True):
    """Add a line to the user's message history."""

    text: str


class LookUpHistory(Struct, frozen=True):
    """Look up one line of the message history; an event has the result."""

    offset: int
    log_id: int


class ListTools(Struct, frozen=True):
    """List the tools of every MCP server; an event has the list."""


class ListPrompts(Struct, frozen=True):
    """List the user's custom prompts, which are files; an event has the list."""


class Close(Struct, frozen=True):
    """Close the conversation in good order."""


Lookup = AddToHistory | LookUpHistory | ListTools | ListPrompts

ClientTask = Compact | Undo | Review | RunShell
"""Commands other than input with which a client begins a task."""

BeginsTask = StartTurn | ContinueGoal | ClientTask
"""Commands that begin a task."""

BeginsNoTask = (
    Interrupt
    | ChangeSettings
    | AddItems
    | ResolveApproval
    | ResolveUserInput
    | AnswerElicitation
    | Lookup
    | Close
)
"""Commands that are carried out at once, also while a task runs."""

Command = BeginsTask | BeginsNoTask

BEGINS_TURN = StartTurn | Compact | Review | RunShell
"""Commands with which a client begins a turn and receives its id."""


class NoActiveTurn(CoreError):
    """There is no current turn to steer or to interrupt."""


class OtherTurnActive(CoreError):
    """The current turn is not the one that the client named."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected active turn id `{expected}` but found `{found}`")


class TurnNotSteerable(CoreError):
    """A turn of this kind accepts no input."""

    def __init__(self, kind: TurnKind) -> None:
        super().__init__(f"cannot steer a {kind.value} turn")
        self.turn = kind
