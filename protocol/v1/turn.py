"""Turns: say something, interrupt."""

from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import EngineModel
from protocol.events.turn import TurnAbortReason
from protocol.fields import CleanText, SandboxPolicy
from protocol.ids import PathText
from protocol.policy import AskForApproval, ReasoningEffort, ReasoningSummary
from protocol.structs import WireStruct
from protocol.table import ClientRequest, NoResult
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
