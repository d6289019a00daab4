"""Conversations: begin, resume, list, summarise, archive, listen."""

from typing import Final, Self

from pydantic import ConfigDict, model_validator

from protocol.base import WireModel
from protocol.events.msg import EventMsg
from protocol.fields import CleanText, Count, Flag, KnownId, UuidText
from protocol.ids import ConversationId, PathText
from protocol.policy import AskForApproval, ReasoningEffort, SandboxMode
from protocol.responses import ResponseItem
from protocol.rollout import SessionSource
from protocol.structs import EngineStruct, Json, WireStruct
from protocol.table import ClientRequest, NoResult, ServerNotification


class InConversation(WireModel):
    """Parameters of a method that waits for those before it about the same conversation."""

    ordered_by = "conversationId"
    ordered_for_all = True
    conversation_id: KnownId


class NewConversationParams(WireModel):
    """Settings of a conversation; what is null comes from the user's configuration.

    `config` holds further settings by their dotted name in the configuration file.
    """

    model: str | None = None
    model_provider: str | None = None
    profile: str | None = None
    cwd: PathText | None = None
    approval_policy: AskForApproval | None = None
    sandbox: SandboxMode | None = None
    config: dict[str, Json] | None = None
    base_instructions: CleanText | None = None
    developer_instructions: CleanText | None = None
    compact_prompt: CleanText | None = None
    include_apply_patch_tool: Flag | None = None


class NewConversationResponse(WireStruct):
    conversation_id: ConversationId
    model: str
    reasoning_effort: ReasoningEffort | None = None
    rollout_path: str


class ResumeConversationParams(WireModel):
    """Which stored conversation goes on: by history, else by path, else by id (the first that is given)."""

    ordered_by = "conversationId"
    ordered_for_all = True
    path: PathText | None = None
    conversation_id: KnownId | None = None
    history: tuple[ResponseItem, ...] | None = None
    overrides: NewConversationParams | None = None


class ResumeConversationResponse(WireStruct):
    conversation_id: ConversationId
    model: str
    initial_messages: tuple[EventMsg, ...] | None = None
    rollout_path: str


class ListConversationsParams(WireModel):
    """A page of stored conversations, newest first. Without providers only those of the configured one;
    with an empty list those of all."""

    page_size: Count | None = None
    cursor: str | None = None
    model_providers: tuple[str, ...] | None = None


class ConversationGitInfo(EngineStruct):
    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ConversationSummary(WireStruct):
    """A stored conversation in a list; `preview` is the first thing that the user said."""

    conversation_id: ConversationId
    path: str
    preview: str
    timestamp: str | None = None
    model_provider: str
    cwd: str
    cli_version: str
    source: SessionSource
    git_info: ConversationGitInfo | None = None


class ListConversationsResponse(WireStruct):
    items: tuple[ConversationSummary, ...]
    next_cursor: str | None = None


def _either_of_both(schema: dict[str, Json]) -> None:
    fields = schema.pop("properties")
    schema.pop("type", None)
    schema["anyOf"] = [
        {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]} for name in fields
    ]


class GetConversationSummaryParams(WireModel):
    """Which conversation: by the path of its file, or by id."""

    model_config = ConfigDict(json_schema_extra=_either_of_both)
    rollout_path: PathText | None = None
    conversation_id: KnownId | None = None

    @model_validator(mode="after")
    def names_one(self) -> Self:
        if self.rollout_path is None and self.conversation_id is None:
            raise ValueError("expected `rolloutPath` or `conversationId`")
        return self


class GetConversationSummaryResponse(WireStruct):
    summary: ConversationSummary


class ArchiveConversationParams(InConversation):
    rollout_path: PathText


class AddConversationListenerParams(InConversation):
    """Asks for the events of a conversation; with raw events also for each entry of the history."""

    experimental_raw_events: Flag = False


class AddConversationSubscriptionResponse(WireStruct):
    subscription_id: str


class RemoveConversationListenerParams(WireModel):
    subscription_id: UuidText


class SessionConfiguredNotification(WireStruct):
    """A resumed conversation is ready; written before the answer to `resumeConversation`."""

    session_id: ConversationId
    model: str
    reasoning_effort: ReasoningEffort | None = None
    history_log_id: int
    history_entry_count: int
    initial_messages: tuple[EventMsg, ...] | None = None
    rollout_path: str


NEW_CONVERSATION: Final = ClientRequest(
    "newConversation",
    NewConversationParams,
    NewConversationResponse,
    "Begins a conversation. Its events flow once a listener was added; none comes before this answer.",
)
GET_CONVERSATION_SUMMARY: Final = ClientRequest(
    "getConversationSummary",
    GetConversationSummaryParams,
    GetConversationSummaryResponse,
    "Describes one stored conversation.",
)
LIST_CONVERSATIONS: Final = ClientRequest(
    "listConversations",
    ListConversationsParams,
    ListConversationsResponse,
    "Lists stored conversations, newest first, by pages.",
)
RESUME_CONVERSATION: Final = ClientRequest(
    "resumeConversation",
    ResumeConversationParams,
    ResumeConversationResponse,
    "Opens a stored conversation again. `sessionConfigured` is written before the answer.",
)
ARCHIVE_CONVERSATION: Final = ClientRequest(
    "archiveConversation",
    ArchiveConversationParams,
    NoResult,
    "Ends a conversation if it is open and moves its file to the archive.",
)
ADD_CONVERSATION_LISTENER: Final = ClientRequest(
    "addConversationListener",
    AddConversationListenerParams,
    AddConversationSubscriptionResponse,
    "Subscribes to the events of a conversation.",
)
REMOVE_CONVERSATION_LISTENER: Final = ClientRequest(
    "removeConversationListener", RemoveConversationListenerParams, NoResult, "Ends a subscription."
)
SESSION_CONFIGURED: Final = ServerNotification(
    "sessionConfigured",
    SessionConfiguredNotification,
    "A resumed conversation is ready. Before the answer to `resumeConversation`.",
)

EVENT_PREFIX: Final = "codex/event/"


def event_method(event_type: str) -> str:
    """Return the notification's method for an event of a conversation."""
    return EVENT_PREFIX + event_type
