"""The first event of a conversation, and the union of all events.

`Event.id` is the id of the operation that the event belongs to; events that belong to none carry an empty
id, and turns that the engine starts by itself have ids of their own ("auto-compact-0").
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from msgspec import Struct
from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.events import commands, messages, notices, tools, turn
from app_server_protocol.events.review import EnteredReviewModeEvent, ExitedReviewModeEvent
from app_server_protocol.ids import ConversationId
from app_server_protocol.policy import ReasoningEffort
from app_server_protocol.structs import EngineStruct, shown


class SessionConfiguredEvent(EngineStruct, omit_defaults=True):
    """The conversation is ready. Listeners never receive it: when they are added it is over. What it says is in the
    answer to `newConversation`, and on a resume in the notification `sessionConfigured`."""

    type: Literal["session_configured"] = shown("session_configured")
    session_id: ConversationId
    model: str
    reasoning_effort: ReasoningEffort | None = None
    history_log_id: int
    history_entry_count: int
    initial_messages: "tuple[EventMsg, ...] | None" = None
    rollout_path: str


_AnyEvent = (
    notices.ErrorEvent
    | notices.WarningEvent
    | turn.TaskStartedEvent
    | turn.TaskCompleteEvent
    | turn.TokenCountEvent
    | messages.AgentMessageEvent
    | messages.UserMessageEvent
    | messages.AgentMessageDeltaEvent
    | messages.AgentReasoningEvent
    | messages.AgentReasoningDeltaEvent
    | messages.AgentReasoningRawContentEvent
    | messages.AgentReasoningRawContentDeltaEvent
    | messages.AgentReasoningSectionBreakEvent
    | SessionConfiguredEvent
    | tools.McpToolCallBeginEvent
    | tools.McpToolCallEndEvent
    | tools.WebSearchBeginEvent
    | tools.WebSearchEndEvent
    | commands.ExecCommandBeginEvent
    | commands.ExecCommandOutputDeltaEvent
    | commands.ExecCommandEndEvent
    | commands.ViewImageToolCallEvent
    | commands.ExecApprovalRequestEvent
    | commands.ApplyPatchApprovalRequestEvent
    | tools.ElicitationRequestEvent
    | notices.DeprecationNoticeEvent
    | notices.BackgroundEventEvent
    | notices.UndoStartedEvent
    | notices.UndoCompletedEvent
    | notices.StreamErrorEvent
    | commands.PatchApplyBeginEvent
    | commands.PatchApplyEndEvent
    | commands.TurnDiffEvent
    | notices.GetHistoryEntryResponseEvent
    | tools.McpListToolsResponseEvent
    | notices.ListCustomPromptsResponseEvent
    | tools.PlanUpdateEvent
    | turn.TurnAbortedEvent
    | notices.ShutdownCompleteEvent
    | EnteredReviewModeEvent
    | ExitedReviewModeEvent
    | turn.RawResponseItemEvent
    | turn.ItemStartedEvent
    | turn.ItemCompletedEvent
    | messages.AgentMessageContentDeltaEvent
    | messages.ReasoningContentDeltaEvent
    | messages.ReasoningRawContentDeltaEvent
)

EventMsg = TypeAliasType("EventMsg", Annotated[_AnyEvent, Field(discriminator="type")])

EVENTS: Final[Mapping[str, type[EventMsg]]] = {
    get_args(kind.__annotations__["type"])[0]: kind for kind in get_args(_AnyEvent)
}
"""Classes of all events by their `type`."""


class Event(Struct, frozen=True):
    """One event of a conversation: which operation it belongs to, and what happened."""

    id: str
    msg: EventMsg
