"""Turns: say something, interrupt, submit any operation; and what the server asks meanwhile: may this command run, may
this patch be applied, what does the user answer an MCP server.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field
from typing_extensions import TypeAliasType

from protocol.base import EngineModel, WireModel
from protocol.events.commands import FileChange, ParsedCommand, SandboxCommandAssessment
from protocol.events.turn import TurnAbortReason
from protocol.fields import CleanText, SandboxPolicy
from protocol.ids import ConversationId, PathText
from protocol.policy import (
    AskForApproval,
    ElicitationAction,
    ReasoningEffort,
    ReasoningSummary,
    ReviewDecision,
)
from protocol.structs import Json, WireStruct
from protocol.table import ClientRequest, NoResult, ServerRequest
from protocol.v1.conversation import InConversation


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


_DECISIONS: Final[Mapping[str, ReviewDecision]] = {
    **{decision.value: decision for decision in ReviewDecision},
    "decline": ReviewDecision.DENIED,
    "cancel": ReviewDecision.ABORT,
}


def _either_vocabulary(raw: Json) -> Json:
    return _DECISIONS.get(raw, raw) if isinstance(raw, str) else raw


Decision = Annotated[ReviewDecision, BeforeValidator(_either_vocabulary)]


def parse_decision(result: Json) -> ReviewDecision | None:
    """Return the decision in a client's answer, or None where there is no such word in the right place."""
    match result:
        case {"decision": str(word)}:
            return _DECISIONS.get(word)
        case _:
            return None


class ExecCommandApprovalParams(WireStruct):
    """May this command run? `conversationId` and `callId` match the event `exec_approval_request`
    before it."""

    conversation_id: ConversationId
    call_id: str
    command: tuple[str, ...]
    cwd: str
    reason: str | None = None
    risk: SandboxCommandAssessment | None = None
    parsed_cmd: tuple[ParsedCommand, ...]


class ExecCommandApprovalResponse(WireModel):
    decision: Decision


class ApplyPatchApprovalParams(WireModel):
    """May this patch be applied? With `grantRoot` the user is asked to allow writes below it from then on."""

    conversation_id: ConversationId
    call_id: str
    file_changes: dict[str, FileChange]
    reason: str | None = None
    grant_root: str | None = None


class ApplyPatchApprovalResponse(WireModel):
    decision: Decision


class ElicitationRequestParams(WireStruct):
    """A question of an MCP server to the user; `requestedSchema` describes the content of an answer."""

    conversation_id: ConversationId
    server_name: str
    request_id: str
    message: str
    requested_schema: Json = None


class ElicitationRequestResponse(WireModel):
    action: ElicitationAction
    content: Json = None


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
EXEC_COMMAND_APPROVAL: Final = ServerRequest(
    "execCommandApproval",
    ExecCommandApprovalParams,
    ExecCommandApprovalResponse,
    "May a command run? After the event `exec_approval_request` of the same call.",
)
APPLY_PATCH_APPROVAL: Final = ServerRequest(
    "applyPatchApproval",
    ApplyPatchApprovalParams,
    ApplyPatchApprovalResponse,
    "May a patch be applied? After the event `apply_patch_approval_request` of the same call.",
)
ELICITATION_REQUEST: Final = ServerRequest(
    "elicitationRequest",
    ElicitationRequestParams,
    ElicitationRequestResponse,
    "An MCP server asks the user. Only sent to clients with the capability `elicitation`.",
    extension=True,
)
