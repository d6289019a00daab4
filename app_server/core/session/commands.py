"""Everything that can be asked of an open conversation, as one union of values, and what is refused.

Each API makes these of its own requests. What some clients want and others do not is an option of the command, which
names the wish and not the API.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from app_server.core.errors import CoreError
from app_server.core.turn.items import UserWords
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.questions import (
    AllowFiles,
    KeepRule,
    McpCallDecision,
    ToolCallAnswer,
    UserInputAnswer,
)
from app_server_protocol.engine.settings import UNCHANGED, SettingsChange
from app_server_protocol.events.review import ReviewRequest
from app_server_protocol.policy import ElicitationAction, ReviewDecision
from app_server_protocol.responses import ResponseItem
from app_server_protocol.structs import Json

FORGOTTEN_MS = 60 * 60 * 1000
"""The time limit of commands that the user can interrupt: it is for what was forgotten."""


class TurnWishes(Struct, frozen=True, kw_only=True):
    """Wishes of the clients of an API for the turns that they begin."""

    names_turn: bool = True
    """The client is told which turn its words are in: they are answered in it, and it begins and ends whatever happens.
    Words for a turn that takes none are refused. Without this, words join the turn that asks the model next, a review
    too, and begin one of their own where there is none; nothing is asked where nothing was said."""
    skills: bool = True
    """The model is sent a list of the skills that are on."""
    goals: bool = True
    """The turn counts for the goal of the conversation, which its tools can read and change."""
    compacts_at_begin: bool = True
    """A full context is compacted at the next turn's begin, and not once the model has answered."""
    relative_diff: bool = True
    """The turn's diff names files relative to its working directory."""
    sends_chosen_effort: bool = True
    """An effort that the user chose is sent to any model."""
    checks_pictures: bool = True
    """Pictures whose checksums are wrong are not sent."""
    refuses_silent_tools: bool = True
    """Where nobody is asked, tools of MCP servers that give no hints fail unless the turn has full access."""


ALL_WISHES: Final = TurnWishes()


class StartTurn(Struct, frozen=True, kw_only=True):
    """Begin a turn with these words. The settings hold for it and for later turns, the schema for it alone."""

    words: UserWords | None
    """None: nothing was said."""
    change: SettingsChange = UNCHANGED
    output_schema: Json = None
    wishes: TurnWishes = ALL_WISHES


class ContinueGoal(Struct, frozen=True):
    """Begin a turn for the goal, if there is still one to work for and nothing else to do."""


class Interrupt(Struct, frozen=True):
    """End this turn, or whichever runs; nothing happens where it has ended already."""

    turn_id: str | None = None


class ChangeSettings(Struct, frozen=True):
    """Change the settings of the turns to come."""

    change: SettingsChange
    now: bool = False
    """What commands and patches may do changes in the turn that runs, too, from the next one on."""


class AddItems(Struct, frozen=True):
    """Add items to the history, which the model sees with its next request."""

    items: tuple[ResponseItem, ...]


class Compact(Struct, frozen=True):
    """Replace the history by a summary, in a turn of its own."""


class Undo(Struct, frozen=True):
    """Take back what the last turn changed in the working tree. Refused while a turn runs, which goes on."""


class Review(Struct, frozen=True):
    """Run a review as a turn of its own."""

    request: ReviewRequest


class RunShell(Struct, frozen=True):
    """Run a command that the user typed, without the sandbox, within the turn that runs or in one of its own; the model
    is informed. `confined`: in the sandbox and in a turn of its own, unknown to the model.
    """

    command: str
    timeout_ms: int = FORGOTTEN_MS
    confined: bool = False


class Decide(Struct, frozen=True):
    """Answer a request for approval, by its call's id or by the id of an operation that has one open request."""

    id: str
    decision: ReviewDecision
    also: KeepRule | AllowFiles | None = None
    """What is allowed beside the request."""
    tool: Literal["shell", "apply_patch"] = "shell"


class Answer(Struct, frozen=True):
    """Answer the question with this id; None is no answer."""

    call_id: str
    answer: ToolCallAnswer | UserInputAnswer | McpCallDecision | None


class AnswerElicitation(Struct, frozen=True):
    """Answer a question of an MCP server."""

    server: str
    request_id: str
    action: ElicitationAction
    content: Json = None


class AddToHistory(Struct, frozen=True):
    """Keep a line in the user's message history."""

    text: str


class LookUpHistory(Struct, frozen=True):
    """Look up one line of the message history; an event brings it."""

    offset: int
    log_id: int


class ListTools(Struct, frozen=True):
    """Ask every MCP server what it offers; an event brings the list."""


class ListPrompts(Struct, frozen=True):
    """List the prompts that the user keeps as files; an event brings them."""


class Close(Struct, frozen=True):
    """End the conversation in good order."""


Lookup = AddToHistory | LookUpHistory | ListTools | ListPrompts

Command = (
    StartTurn
    | ContinueGoal
    | Interrupt
    | ChangeSettings
    | AddItems
    | Compact
    | Undo
    | Review
    | RunShell
    | Decide
    | Answer
    | AnswerElicitation
    | Lookup
    | Close
)

BEGINS_TURN = StartTurn | Compact | Review | RunShell
"""Commands by which clients begin turns whose ids they are told."""


class NoActiveTurn(CoreError):
    """Nothing runs that could be steered or interrupted."""


class OtherTurnActive(CoreError):
    """Another turn runs than the client expected."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected active turn id `{expected}` but found `{found}`")


class TurnNotSteerable(CoreError):
    """A turn of this kind takes no words."""

    def __init__(self, kind: TurnKind) -> None:
        super().__init__(f"cannot steer a {kind.value} turn")
        self.turn = kind
