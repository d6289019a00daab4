"""Conversations and their turns: begin, subscribe, send a message, interrupt."""

from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import EngineModel, WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnAbortReason
from app_server_protocol.ids import ConversationId, PathText
from app_server_protocol.method_table import ClientRequest, NoResult
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.policy import AskForApproval, ReasoningEffort, ReasoningSummary, SandboxMode
from app_server_protocol.wire_fields import CleanText, Flag, KnownId, SandboxPolicy, UuidText


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


class AddConversationListenerParams(InConversation):
    """Asks for the events of a conversation; with raw events also for each entry of the history."""

    experimental_raw_events: Flag = False


class AddConversationSubscriptionResponse(WireStruct):
    subscription_id: str


class RemoveConversationListenerParams(WireModel):
    subscription_id: UuidText


NEW_CONVERSATION: Final = ClientRequest(
    "newConversation",
    NewConversationParams,
    NewConversationResponse,
    "Begins a conversation. Its events flow once a listener was added; none comes before this answer.",
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
EVENT_PREFIX: Final = "codex/event/"


def event_method(event_type: str) -> str:
    """Return the notification's method for an event of a conversation."""
    return EVENT_PREFIX + event_type


class TextData(EngineModel):
    text: CleanText


class ImageData(EngineModel):
    image_url: CleanText


class LocalImageData(EngineModel):
    path: PathText


class TextInputItem(EngineModel):
    type: Literal["text"] = "text"
    data: TextData


class ImageInputItem(EngineModel):
    """An image by URL, which may be a data URL."""

    type: Literal["image"] = "image"
    data: ImageData


class LocalImageInputItem(EngineModel):
    """An image file on the server's machine."""

    type: Literal["localImage"] = "localImage"
    data: LocalImageData


InputItem = TypeAliasType(
    "InputItem", Annotated[TextInputItem | ImageInputItem | LocalImageInputItem, Field(discriminator="type")]
)


class SendUserMessageParams(InConversation):
    """Says something under the present settings; while a turn runs it joins that turn."""

    items: tuple[InputItem, ...]


class SendUserTurnParams(SendUserMessageParams):
    """Says something and sets the conversation's settings for this turn and those after it."""

    cwd: PathText
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    model: str
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary


class InterruptConversationResponse(WireStruct):
    """Written when the turn has ended."""

    abort_reason: TurnAbortReason


SEND_USER_MESSAGE: Final = ClientRequest(
    "sendUserMessage",
    SendUserMessageParams,
    NoResult,
    "Says something under the conversation's present settings. The turn's events come after the answer.",
)
SEND_USER_TURN: Final = ClientRequest(
    "sendUserTurn",
    SendUserTurnParams,
    NoResult,
    "Says something and sets cwd, policies and model. The turn's events come after the answer.",
)
INTERRUPT_CONVERSATION: Final = ClientRequest(
    "interruptConversation",
    InConversation,
    InterruptConversationResponse,
    "Stops the running turn. The answer comes when the turn has ended, near its `turn_aborted`.",
)
