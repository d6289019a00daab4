"""The first event of a conversation, and the union of all events.

`Event.id` is the id of the operation that the event belongs to; events that belong to none carry an empty
id, and turns that the engine starts by itself have ids of their own ("auto-compact-0").
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from msgspec import Struct
from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.events import command_events, messages, notice_events, tools, turn_events
from app_server_protocol.events.review_events import EnteredReviewModeEvent, ExitedReviewModeEvent
from app_server_protocol.ids import ConversationId
from app_server_protocol.outgoing import EngineStruct, always_written
from app_server_protocol.policy import ReasoningEffort


class SessionConfiguredEvent(EngineStruct, omit_defaults=True):
    """The conversation is ready. Listeners never receive it: when they are added it is over. What it says is in the
    answer to `newConversation`, and on a resume in the notification `sessionConfigured`."""

    type: Literal["session_configured"] = always_written("session_configured")
    session_id: ConversationId
    model: str
    reasoning_effort: ReasoningEffort | None = None
    history_log_id: int
    history_entry_count: int
    initial_messages: "tuple[EventMsg, ...] | None" = None
    rollout_path: str


_AnyEvent = (
    notice_events.ErrorEvent
    | notice_events.WarningEvent
    | turn_events.TaskStartedEvent
    | turn_events.TaskCompleteEvent
    | turn_events.TokenCountEvent
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
    | command_events.ExecCommandBeginEvent
    | command_events.ExecCommandOutputDeltaEvent
    | command_events.ExecCommandEndEvent
    | command_events.ViewImageToolCallEvent
    | command_events.ExecApprovalRequestEvent
    | command_events.ApplyPatchApprovalRequestEvent
    | tools.ElicitationRequestEvent
    | notice_events.DeprecationNoticeEvent
    | notice_events.BackgroundEventEvent
    | notice_events.UndoStartedEvent
    | notice_events.UndoCompletedEvent
    | notice_events.StreamErrorEvent
    | command_events.PatchApplyBeginEvent
    | command_events.PatchApplyEndEvent
    | command_events.TurnDiffEvent
    | notice_events.GetHistoryEntryResponseEvent
    | tools.McpListToolsResponseEvent
    | notice_events.ListCustomPromptsResponseEvent
    | tools.PlanUpdateEvent
    | turn_events.TurnAbortedEvent
    | notice_events.ShutdownCompleteEvent
    | EnteredReviewModeEvent
    | ExitedReviewModeEvent
    | turn_events.RawResponseItemEvent
    | turn_events.ItemStartedEvent
    | turn_events.ItemCompletedEvent
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
