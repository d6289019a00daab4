"""Turns: start one, steer it, interrupt it; and how a turn looks."""

from enum import StrEnum

from pydantic import ConfigDict

from protocol.base import Json, WireModel, requires
from protocol.fields import CleanText
from protocol.paths import AbsolutePath, PathText
from protocol.policy import ReasoningSummary
from protocol.structs import WireStruct
from protocol.v2.errors import TurnError
from protocol.v2.fields import ReasoningEffort, experimental
from protocol.v2.input import UserInput
from protocol.v2.items import ThreadItem
from protocol.v2.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy
from protocol.v2.settings import CollaborationMode, Personality


class TurnStatus(StrEnum):
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    IN_PROGRESS = "inProgress"


class TurnItemsView(StrEnum):
    """How much of a turn is shown: nothing, its first and last words, or everything."""

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


class AdditionalContextKind(StrEnum):
    UNTRUSTED = "untrusted"
    APPLICATION = "application"


class AdditionalContextEntry(WireModel):
    """Something for the model to know, beside what the user said."""

    value: CleanText
    kind: AdditionalContextKind
    name: str | None = None


class TurnStartParams(WireModel):
    """Words and, where given, settings; these hold for the turns after this one too, but for `outputSchema`."""

    thread_id: str
    client_user_message_id: str | None = None
    input: tuple[UserInput, ...]
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    additional_context: dict[str, AdditionalContextEntry] | None = experimental()
    cwd: PathText | None = None
    runtime_workspace_roots: tuple[AbsolutePath, ...] | None = experimental()
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_policy: SandboxPolicy | None = None
    permissions: str | None = experimental()
    model: str | None = None
    service_tier: str | None = None
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    personality: Personality | None = None
    output_schema: Json = None
    collaboration_mode: CollaborationMode | None = experimental()


class TurnStartResponse(WireStruct):
    """Written before everything that the turn brings about; every notification of the turn has its id."""

    turn: Turn


class TurnSteerParams(WireModel):
    """More words for the turn that runs, which must be the expected one."""

    thread_id: str
    client_user_message_id: str | None = None
    input: tuple[UserInput, ...]
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    additional_context: dict[str, AdditionalContextEntry] | None = experimental()
    expected_turn_id: str


class TurnSteerResponse(WireStruct):
    turn_id: str


class TurnInterruptParams(WireModel):
    """Which turn; an empty or absent id means the one that runs. Where no thread is named, its id finds it."""

    model_config = ConfigDict(json_schema_extra=requires("threadId", "turnId"))
    thread_id: str = ""
    turn_id: str = ""


class TurnInterruptResponse(WireStruct):
    pass


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
