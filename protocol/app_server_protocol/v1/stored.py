"""Stored conversations: resume, list, summarise, archive."""

from typing import Final, Self

from pydantic import ConfigDict, model_validator

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.ids import ConversationId, PathText
from app_server_protocol.method_table import ClientRequest, NoResult, ServerNotification
from app_server_protocol.outgoing import EngineStruct, WireStruct
from app_server_protocol.policy import ReasoningEffort
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import SessionSource
from app_server_protocol.v1.conversation import InConversation, NewConversationParams
from app_server_protocol.wire_fields import Count, KnownId


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


class SessionConfiguredNotification(WireStruct):
    """A resumed conversation is ready; written before the answer to `resumeConversation`."""

    session_id: ConversationId
    model: str
    reasoning_effort: ReasoningEffort | None = None
    history_log_id: int
    history_entry_count: int
    initial_messages: tuple[EventMsg, ...] | None = None
    rollout_path: str


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
SESSION_CONFIGURED: Final = ServerNotification(
    "sessionConfigured",
    SessionConfiguredNotification,
    "A resumed conversation is ready. Before the answer to `resumeConversation`.",
)
