"""What the server asks the client: may this command run, may this patch be applied, what does the user
answer.

A yes is a yes only in this protocol's words, exactly as spelled; the thread API's `decline` and `cancel` are
understood, its words for yes are not. Everything else that a client answers counts as no.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator

from protocol.base import Json, WireModel
from protocol.events.commands import ParsedCommand, SandboxCommandAssessment
from protocol.events.patches import FileChange
from protocol.ids import ConversationId
from protocol.ops import ElicitationAction
from protocol.policy import ReviewDecision
from protocol.structs import WireStruct

_DECISIONS: Final[Mapping[str, ReviewDecision]] = {
    **{decision.value: decision for decision in ReviewDecision},
    "decline": ReviewDecision.DENIED,
    "cancel": ReviewDecision.ABORT,
}


def _either_vocabulary(raw: Json) -> Json:
    return _DECISIONS.get(raw, raw) if isinstance(raw, str) else raw


Decision = Annotated[ReviewDecision, BeforeValidator(_either_vocabulary)]


def parse_decision(result: Json) -> ReviewDecision | None:
    """The decision in a client's answer, or None where there is no such word in the right place."""
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
