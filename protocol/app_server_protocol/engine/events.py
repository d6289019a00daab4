"""What the engine emits; and a conversation as turns with items: what is read back of it, and what a subscriber that
joins late is shown. Per turn: `TurnStarted`, then items and deltas, then exactly one `TurnEnded`.

Each thing is emitted once. What an API shows twice, or in another form, its outbound module makes of these. Events of
the conversation API's vocabulary stand for themselves where they belong to no item: notices, token counts, questions,
answers of queries.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from app_server_protocol.engine.errors import TurnError
from app_server_protocol.engine.items import FileChange, Item
from app_server_protocol.engine.questions import McpCallQuestion, ToolCallQuestion, UserInputQuestion
from app_server_protocol.engine.settings import Settings
from app_server_protocol.events.commands import (
    ApplyPatchApprovalRequestEvent,
    ExecApprovalRequestEvent,
    ExecOutputStream,
    TurnDiffEvent,
)
from app_server_protocol.events.notices import (
    BackgroundEventEvent,
    DeprecationNoticeEvent,
    ErrorEvent,
    GetHistoryEntryResponseEvent,
    ListCustomPromptsResponseEvent,
    ShutdownCompleteEvent,
    UndoCompletedEvent,
    UndoStartedEvent,
    WarningEvent,
)
from app_server_protocol.events.tools import (
    ElicitationRequestEvent,
    McpListToolsResponseEvent,
    PlanUpdateEvent,
)
from app_server_protocol.events.turn import RawResponseItemEvent, TokenCountEvent, TurnAbortReason


class GoalStatus(StrEnum):
    ACTIVE = "active"
    """Turns are begun for it whenever nothing else runs."""
    PAUSED = "paused"
    BLOCKED = "blocked"
    """It cannot go on without the user: the model says so, or its turn failed."""
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
    """Seconds since 1970, as `updated_at`."""
    updated_at: int

    @property
    def is_spent(self) -> bool:
        return self.token_budget is not None and self.tokens_used >= self.token_budget

    @property
    def tokens_left(self) -> int | None:
        """Return the tokens that are left; None without a bound."""
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


class TurnStarted(Struct, frozen=True):
    """First event of a turn, and once."""

    kind: TurnKind
    model_context_window: int | None
    started_at: float
    """Seconds since 1970."""


class TurnEnded(Struct, frozen=True, kw_only=True):
    """Last event of a turn, and once. Every item of the turn has ended before it, but for terminals that go on."""

    status: TurnStatus
    started_at: float | None
    """None: the turn was ended before it started."""
    ended_at: float
    seconds: float | None
    last_agent_message: str | None = None
    error: TurnError | None = None
    """Set where, and only where, the turn failed."""
    reason: TurnAbortReason | None = None
    """Set where, and only where, it was interrupted. Neither it nor the message is read of turns that were stored."""


class ItemStarted(Struct, frozen=True):
    """Before every delta, question and end of the item. Its content may still be empty."""

    item: Item
    at_ms: int
    """Milliseconds since 1970."""
    announced: bool = True
    """False: the provider sent deltas or the whole item without announcing it, or the user's words joined a turn that
    runs. The conversation API does not show such a begin by itself."""
    own_id: bool = False
    """The provider gave the item no id, so we did."""


class ItemCompleted(Struct, frozen=True):
    """The item's end; `started_at_ms` is that of its begin."""

    item: Item
    started_at_ms: int
    at_ms: int
    cut: bool = False
    """The item did not come to its end: its turn was interrupted, or the attempt it belonged to is made anew."""
    announced: bool = True
    """False for words that joined a turn: the conversation API does not report them."""


class AgentMessageDelta(Struct, frozen=True):
    item_id: str
    delta: str


class ReasoningSummaryDelta(Struct, frozen=True):
    item_id: str
    index: int
    delta: str


class ReasoningSummaryPart(Struct, frozen=True):
    """The summary begins a part; its deltas follow."""

    item_id: str
    index: int


class ReasoningTextDelta(Struct, frozen=True):
    """Raw reasoning."""

    item_id: str
    index: int
    delta: str
    show_content: bool = True
    """As in its item."""


class CommandOutput(Struct, frozen=True):
    """A piece of output of a command, or of the writer of a patch."""

    item_id: str
    stream: ExecOutputStream
    chunk: bytes


class TerminalInput(Struct, frozen=True):
    """The model types into a command that goes on."""

    item_id: str
    process_id: str
    text: str


class CommandRunning(Struct, frozen=True):
    """The command was allowed and is being run now; once more where it is run again without the sandbox."""

    item_id: str


class PatchWriting(Struct, frozen=True):
    """The patch was allowed and is being written now; `asked` says that the user was asked."""

    item: FileChange
    asked: bool


class AttemptFailed(Struct, frozen=True):
    """A request to the model broke and is made anew. Items that it left open were completed as cut."""

    error: TurnError
    attempt: int
    """The retry that follows, from 1."""
    attempts: int
    """At most so many."""


class GoalUpdated(Struct, frozen=True):
    goal: Goal


class GoalCleared(Struct, frozen=True):
    pass


class SettingsChanged(Struct, frozen=True):
    """Settings that the next turn starts from, after a change."""

    settings: Settings
    model_provider: str


class ModelRerouted(Struct, frozen=True):
    """The provider answers with another model than the turn asked for. At most once a turn for each model."""

    from_model: str
    to_model: str


class McpServerState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """It is started anew before it was ready."""


class McpServerStateChanged(Struct, frozen=True):
    """An MCP server of the conversation starts, has started, or failed to."""

    server: str
    state: McpServerState
    error: str | None = None
    """Set where, and only where, it failed; for the user."""
    login_required: bool = False


class McpServersSettled(Struct, frozen=True):
    """Every MCP server has started or failed to. `McpServerStateChanged` has reported the same one by one."""

    failures: tuple[str, ...]


Delta = AgentMessageDelta | ReasoningSummaryDelta | ReasoningTextDelta
UserQuestion = ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent | ElicitationRequestEvent
"""What every API can ask."""
ToolQuestion = ToolCallQuestion | UserInputQuestion | McpCallQuestion
"""What only APIs can ask that have words for it."""
Question = UserQuestion | ToolQuestion
Notice = (
    BackgroundEventEvent
    | DeprecationNoticeEvent
    | ErrorEvent
    | WarningEvent
    | UndoStartedEvent
    | UndoCompletedEvent
    | ShutdownCompleteEvent
    | TokenCountEvent
    | PlanUpdateEvent
    | TurnDiffEvent
    | RawResponseItemEvent
    | GetHistoryEntryResponseEvent
    | ListCustomPromptsResponseEvent
    | McpListToolsResponseEvent
)
EngineEvent = (
    TurnStarted
    | TurnEnded
    | ItemStarted
    | ItemCompleted
    | Delta
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
    | Notice
)


class SessionEvent(Struct, frozen=True, gc=False):
    """An event, and what it belongs to."""

    operation_id: str
    """The id of the operation that caused it; empty for what belongs to none."""
    turn_id: str | None
    """The turn's own id (UUIDv7); None outside of turns."""
    event: EngineEvent


class EndedItem(Struct, frozen=True, gc=False):
    """An item that came to its end, well or not. Its id is unique within the conversation."""

    item: Item
    started_ms: int | None
    """Milliseconds since 1970; None where old files do not say."""
    ended_ms: int | None
    cut: bool = False


class TurnRenamed(Struct, frozen=True, gc=False):
    """A stored turn whose first lines do not name it: its id was `before` to whoever read them."""

    before: str
    after: str


class TurnRecord(Struct, frozen=True, kw_only=True, gc=False):
    id: str
    kind: TurnKind = TurnKind.REGULAR
    state: TurnStatus = TurnStatus.IN_PROGRESS
    items: tuple[EndedItem, ...] = ()
    error: TurnError | None = None
    started_at: float | None = None
    """Seconds since 1970; None where old files do not say."""
    ended_at: float | None = None
    seconds: float | None = None
