"""Turns: start one, steer it, interrupt it, and the shape of a turn. A review, for which the model inspects changes and
reports its findings, is a turn, too.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel, requires
from app_server_protocol.encoding import Json
from app_server_protocol.ids import AbsolutePath
from app_server_protocol.method_table import ClientRequest, NoResult, ServerNotification
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import InThread, experimental
from app_server_protocol.v2.item_parts import UserInput
from app_server_protocol.v2.items import ThreadItem
from app_server_protocol.v2.server import TurnError
from app_server_protocol.v2.settings import (
    CollaborationMode,
    TurnSettings,
)
from app_server_protocol.wire_fields import CleanText


class TurnStatus(StrEnum):
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    IN_PROGRESS = "inProgress"


class TurnItemsView(StrEnum):
    """Part of a turn that is shown: nothing, its first and last words, or everything."""

    NOT_LOADED = "notLoaded"
    SUMMARY = "summary"
    FULL = "full"


class Turn(WireStruct):
    """One task of a thread. `items` hold what `itemsView` says; times are in seconds."""

    id: str
    root_turn_id: str | None = None
    items: tuple[ThreadItem, ...]
    items_view: TurnItemsView = TurnItemsView.FULL
    status: TurnStatus
    error: TurnError | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None


AdditionalContextKind = TypeAliasType("AdditionalContextKind", Literal["untrusted", "application"])


class AdditionalContextEntry(WireModel):
    """Something for the model to know, beside what the user said."""

    value: CleanText
    kind: AdditionalContextKind
    name: str | None = None


class TurnStartParams(TurnSettings, InThread):
    """Words and, where given, settings; these hold for the turns after this one too, but for `outputSchema`."""

    client_user_message_id: str | None = None
    input: tuple[UserInput, ...]
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    additional_context: dict[str, AdditionalContextEntry] | None = experimental()
    runtime_workspace_roots: tuple[AbsolutePath, ...] | None = experimental()
    permissions: str | None = experimental()
    output_schema: Json = None
    collaboration_mode: CollaborationMode | None = experimental()


class TurnStartResponse(WireStruct):
    """Written before everything that the turn brings about; every notification of the turn has its id."""

    turn: Turn


class TurnSteerParams(InThread):
    """More words for the turn that runs, which must be the expected one."""

    client_user_message_id: str | None = None
    input: tuple[UserInput, ...]
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    additional_context: dict[str, AdditionalContextEntry] | None = experimental()
    expected_turn_id: str


class TurnSteerResponse(WireStruct):
    turn_id: str


class TurnInterruptParams(InThread):
    """Which turn; an empty or absent id means the one that runs. Where no thread is named, its id finds it."""

    model_config = ConfigDict(json_schema_extra=requires("threadId", "turnId"))
    thread_id: str = ""
    turn_id: str = ""


class TurnStartedNotification(WireStruct):
    thread_id: str
    turn: Turn


class TurnCompletedNotification(WireStruct):
    thread_id: str
    turn: Turn


class TurnDiffUpdatedNotification(WireStruct):
    """All changes of the turn so far, as one diff."""

    thread_id: str
    turn_id: str
    diff: str


class TurnPlanStepStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"


class TurnPlanStep(WireStruct):
    step: str
    status: TurnPlanStepStatus


class TurnPlanUpdatedNotification(WireStruct):
    thread_id: str
    turn_id: str
    explanation: str | None = None
    plan: tuple[TurnPlanStep, ...]


class UncommittedChangesReviewTarget(WireModel):
    type: Literal["uncommittedChanges"] = "uncommittedChanges"


class BaseBranchReviewTarget(WireModel):
    type: Literal["baseBranch"] = "baseBranch"
    branch: str


class CommitReviewTarget(WireModel):
    type: Literal["commit"] = "commit"
    sha: str
    title: str | None = None


class CustomReviewTarget(WireModel):
    type: Literal["custom"] = "custom"
    instructions: CleanText


ReviewTarget = TypeAliasType(
    "ReviewTarget",
    Annotated[
        UncommittedChangesReviewTarget | BaseBranchReviewTarget | CommitReviewTarget | CustomReviewTarget,
        Field(discriminator="type"),
    ],
)


class ReviewDelivery(StrEnum):
    INLINE = "inline"


class ReviewStartParams(InThread):
    target: ReviewTarget
    delivery: ReviewDelivery | None = None


class ReviewStartResponse(WireStruct):
    """`reviewThreadId` is the same thread."""

    turn: Turn
    review_thread_id: str


TURN_START: Final = ClientRequest(
    "turn/start",
    TurnStartParams,
    TurnStartResponse,
    "Says something; begins a turn, or joins the one that runs. All notifications of the turn come after the answer.",
)
TURN_STEER: Final = ClientRequest(
    "turn/steer",
    TurnSteerParams,
    TurnSteerResponse,
    "Says something to the turn that runs. Refused if that is not the expected one.",
)
TURN_INTERRUPT: Final = ClientRequest(
    "turn/interrupt",
    TurnInterruptParams,
    NoResult,
    "Ends a turn. Answered at once; `turn/completed` follows.",
)
REVIEW_START: Final = ClientRequest(
    "review/start", ReviewStartParams, ReviewStartResponse, "Begins a review of changes, as a turn."
)
TURN_STARTED: Final = ServerNotification(
    "turn/started",
    TurnStartedNotification,
    "A turn begins; after the answer to the request that began it.",
)
TURN_COMPLETED: Final = ServerNotification(
    "turn/completed",
    TurnCompletedNotification,
    "A turn ended, in whatever way. Once per turn, and the last of its notifications.",
)
TURN_DIFF_UPDATED: Final = ServerNotification(
    "turn/diff/updated", TurnDiffUpdatedNotification, "The changes of the turn so far."
)
TURN_PLAN_UPDATED: Final = ServerNotification(
    "turn/plan/updated", TurnPlanUpdatedNotification, "The model changed its plan."
)
