"""The events that the engine emits; and a conversation as turns with items, which is read back from them and shown to
subscribers that join late. Per turn: `TurnStarted`, then items and deltas, then exactly one `TurnEnded`.

Each event is emitted once, in the engine's own words. If an API shows one twice, or in another form, its outbound
module converts it. Events that belong to no item are in `notices`, questions to a client in `questions`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from app_server_protocol.engine.errors import TurnError
from app_server_protocol.engine.hook_runs import HookCompleted, HookStarted
from app_server_protocol.engine.item_text import ItemText, Part
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.engine.items import FileChange, Item
from app_server_protocol.engine.notices import Notice
from app_server_protocol.engine.questions import Question
from app_server_protocol.engine.thread_settings import ThreadSettings


class GoalStatus(StrEnum):
    ACTIVE = "active"
    """Turns are begun for the goal whenever no other turn runs."""
    PAUSED = "paused"
    BLOCKED = "blocked"
    """The goal needs the user: the model says so, or its turn failed."""
    USAGE_LIMITED = "usage_limited"
    """The provider's limit for the account is reached."""
    BUDGET_LIMITED = "budget_limited"
    COMPLETE = "complete"


class Goal(Struct, frozen=True, kw_only=True):
    objective: str
    status: GoalStatus = GoalStatus.ACTIVE
    token_budget: int | None = None
    tokens_used: int = 0
    seconds_used: float = 0.0
    created_at: int
    """Time in seconds since 1970, as `updated_at`."""
    updated_at: int

    @property
    def is_spent(self) -> bool:
        return self.token_budget is not None and self.tokens_used >= self.token_budget

    @property
    def tokens_left(self) -> int | None:
        """Number of tokens that are left; None without a budget."""
        return None if self.token_budget is None else max(self.token_budget - self.tokens_used, 0)


class TurnStatus(StrEnum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class TurnKind(StrEnum):
    REGULAR = "regular"
    COMPACT = "compact"
    REVIEW = "review"
    USER_SHELL = "user_shell"
    UNDO = "undo"


class TurnAbortReason(StrEnum):
    INTERRUPTED = "interrupted"
    """The user said stop."""
    REPLACED = "replaced"
    """A new turn took its place."""
    REVIEW_ENDED = "review_ended"
    """The review that the turn belonged to was left."""


class TurnStarted(Struct, frozen=True):
    """First event of a turn, emitted once."""

    kind: TurnKind
    model_context_window: int | None
    started_at: float
    """Time in seconds since 1970."""


class TurnEnded(Struct, frozen=True, kw_only=True):
    """Last event of a turn, emitted once. Every item of the turn has ended before it, except terminals that go on."""

    status: TurnStatus
    started_at: float | None
    """Time in seconds since 1970; None if the turn was ended before it started."""
    ended_at: float
    seconds: float | None
    last_agent_message: str | None = None
    error: TurnError | None = None
    """Error of the turn if it failed, else None."""
    reason: TurnAbortReason | None = None
    """Reason of the interruption if the turn was interrupted, else None. A stored turn without an end has none."""


class ItemStarted(Struct, frozen=True):
    """Begin of an item, emitted before every delta, question and end of it. Its content may still be empty."""

    item: Item
    at_ms: int
    """Time in milliseconds since 1970."""
    announced: bool = True
    """Whether the item was announced. It was not if the provider sent deltas or the whole item without a begin, or if
    the item is a user message that joined a running turn. The conversation API does not show such a begin by itself.
    """
    own_id: bool = False
    """Whether the id is the server's own, because the provider gave the item none."""


class ItemCompleted(Struct, frozen=True):
    """The item's end; `started_at_ms` is that of its begin."""

    item: Item
    started_at_ms: int
    at_ms: int
    cut: bool = False
    """Whether the item was interrupted before its own end: its turn was interrupted, or its attempt is retried."""
    announced: bool = True
    """Whether the conversation API reports the end. It does not for a user message that joined a turn, nor for a stored
    item that was cut, unless a crash cut it.
    """


class ItemTextGrown(Struct, frozen=True):
    """A text of an item has grown up to `end`: subscribers are sent the pieces that they lack until there."""

    item_id: str
    part: Part
    text: ItemText
    end: int
    """Offset in `text`, which may have grown further since."""


class ReasoningSummaryPart(Struct, frozen=True):
    """Begin of a part of the summary; its deltas follow."""

    item_id: str
    index: int


class CommandOutput(Struct, frozen=True):
    """A piece of output of a command, or of the writer of a patch."""

    item_id: str
    stream: ExecOutputStream
    chunk: bytes


class TerminalInput(Struct, frozen=True):
    """Text that the model typed into a command that goes on."""

    item_id: str
    process_id: str
    text: str


class CommandRunning(Struct, frozen=True):
    """A command was allowed and is starting; emitted again if it is run again without the sandbox."""

    item_id: str


class PatchWriting(Struct, frozen=True):
    """A patch was allowed and is being written; `asked` says whether the user was asked."""

    item: FileChange
    asked: bool


class AttemptFailed(Struct, frozen=True):
    """A request to the model failed and is retried. Items that it left open were completed as interrupted."""

    error: TurnError
    attempt: int
    """Number of the retry that follows, counted from 1."""
    attempts: int
    """Maximum number of retries."""


class GoalUpdated(Struct, frozen=True):
    goal: Goal


class GoalCleared(Struct, frozen=True):
    pass


class SettingsChanged(Struct, frozen=True):
    """Settings of the next turn, after a change."""

    settings: ThreadSettings
    model_provider: str


class ModelRerouted(Struct, frozen=True):
    """The provider responds with another model than the turn requested. Emitted at most once per turn and model."""

    from_model: str
    to_model: str


class McpServerState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """The server was started again before it was ready."""


class McpServerStateChanged(Struct, frozen=True):
    """An MCP server of the conversation is starting, has started, or failed to start."""

    server: str
    state: McpServerState
    error: str | None = None
    """Error text for the user if the server failed, else None."""
    login_required: bool = False
    revision: str | None = None
    """Revision of MCP that is spoken with the server; None until it has started."""


class McpServersSettled(Struct, frozen=True):
    """Every MCP server has started or failed to. `McpServerStateChanged` has reported each of them before."""

    failures: tuple[str, ...]


EngineEvent = (
    TurnStarted
    | TurnEnded
    | ItemStarted
    | ItemCompleted
    | ItemTextGrown
    | ReasoningSummaryPart
    | CommandOutput
    | TerminalInput
    | CommandRunning
    | PatchWriting
    | AttemptFailed
    | SettingsChanged
    | ModelRerouted
    | McpServerStateChanged
    | McpServersSettled
    | Question
    | GoalUpdated
    | GoalCleared
    | HookStarted
    | HookCompleted
    | Notice
)


class SessionEvent(Struct, frozen=True, gc=False):
    """An event with the operation and the turn that it belongs to."""

    operation_id: str
    """Id of the operation that caused the event; empty if it belongs to none."""
    turn_id: str | None
    """The turn's own id (UUIDv7); None outside of turns."""
    event: EngineEvent


class EndedItem(Struct, frozen=True, gc=False):
    """An item that has ended, normally or by an interruption. Its id is unique within the conversation."""

    item: Item
    started_ms: int | None
    """Time in milliseconds since 1970; None if an old file does not have it."""
    ended_ms: int | None
    cut: bool = False


class TurnRenamed(Struct, frozen=True, gc=False):
    """A stored turn whose first lines do not name it. `before` is the id that readers of these lines used."""

    before: str
    after: str


class TurnRecord(Struct, frozen=True, kw_only=True, gc=False):
    id: str
    kind: TurnKind = TurnKind.REGULAR
    state: TurnStatus = TurnStatus.IN_PROGRESS
    items: tuple[EndedItem, ...] = ()
    error: TurnError | None = None
    started_at: float | None = None
    """Time in seconds since 1970; None if an old file does not have it."""
    ended_at: float | None = None
    seconds: float | None = None
