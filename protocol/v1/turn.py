"""Turns: say something, interrupt, and the extension that submits any operation."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import EngineModel, WireModel
from protocol.events.turn import TurnAbortReason
from protocol.fields import CleanText, KnownId
from protocol.ops import Op
from protocol.paths import PathText
from protocol.policy import AskForApproval, ReasoningEffort, ReasoningSummary
from protocol.policy_fields import SandboxPolicy
from protocol.structs import WireStruct


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


class SendUserMessageParams(WireModel):
    """Says something under the present settings; while a turn runs it joins that turn."""

    conversation_id: KnownId
    items: tuple[InputItem, ...]


class SendUserMessageResponse(WireStruct):
    pass


class SendUserTurnParams(WireModel):
    """Says something and sets the conversation's settings for this turn and those after it."""

    conversation_id: KnownId
    items: tuple[InputItem, ...]
    cwd: PathText
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    model: str
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary


class SendUserTurnResponse(WireStruct):
    pass


class InterruptConversationParams(WireModel):
    conversation_id: KnownId


class InterruptConversationResponse(WireStruct):
    """Written when the turn has ended."""

    abort_reason: TurnAbortReason


class SubmitParams(WireModel):
    """An operation as the engine understands it, for everything that has no method of its own."""

    conversation_id: KnownId
    op: Op


class SubmitResponse(WireStruct):
    """Events that answer the operation carry this id."""

    submission_id: str
