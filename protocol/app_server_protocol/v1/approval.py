"""Requests of the server in a turn: whether a command may run, whether a patch may be applied, and the user's answer to
an MCP server. Loaded with the first question.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import FileChange, ParsedCommand
from app_server_protocol.events.command_events import SandboxCommandAssessment
from app_server_protocol.ids import ConversationId
from app_server_protocol.method_table import ServerRequest
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.policy import ElicitationAction, ReviewDecision

_DECISIONS: Final[Mapping[str, ReviewDecision]] = {
    **{decision.value: decision for decision in ReviewDecision},
    "decline": ReviewDecision.DENIED,
    "cancel": ReviewDecision.ABORT,
}


def _either_vocabulary(raw: Json) -> Json:
    return _DECISIONS.get(raw, raw) if isinstance(raw, str) else raw


Decision = Annotated[ReviewDecision, BeforeValidator(_either_vocabulary)]


def parse_decision(result: Json) -> ReviewDecision | None:
    """Return the decision in a client's answer; None if there is no valid word in the right place."""
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
