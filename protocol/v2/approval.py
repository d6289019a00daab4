"""Questions whether something may be done: run a command, change files, or do more than the sandbox of the turn
permits.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict
from typing_extensions import TypeAliasType

from protocol.base import EngineModel, Foreign, WireModel, unserved
from protocol.fields import Flag
from protocol.structs import Json, WireStruct, shown
from protocol.table import ServerRequest
from protocol.v2.fields import Experimental, LegacyAppPathString
from protocol.v2.item_parts import CommandAction

CommandExecutionApprovalKind = TypeAliasType(
    "CommandExecutionApprovalKind", Literal["command", "writeStdin", "humanCommand"]
)


NetworkPolicyRuleAction = TypeAliasType("NetworkPolicyRuleAction", Literal["allow", "deny"])


class NetworkPolicyAmendment(WireModel):
    host: str
    action: NetworkPolicyRuleAction


class FileChangeApprovalDecision(StrEnum):
    """Go on; go on and do not ask again for the same in this thread; not this, go on without; end the turn."""

    ACCEPT = "accept"
    ACCEPT_FOR_SESSION = "acceptForSession"
    DECLINE = "decline"
    CANCEL = "cancel"


class ExecpolicyAmendment(EngineModel):
    """The first words of the commands that need no question from now on."""

    execpolicy_amendment: tuple[str, ...]


class AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision(WireModel):
    """Go on, and keep the rule for the next time."""

    model_config = ConfigDict(extra="forbid")
    accept_with_execpolicy_amendment: ExecpolicyAmendment


class NetworkAmendment(EngineModel):
    network_policy_amendment: NetworkPolicyAmendment


class ApplyNetworkPolicyAmendmentCommandExecutionApprovalDecision(WireModel):
    """Keep the rule for a host, which says whether to go on."""

    model_config = ConfigDict(extra="forbid")
    apply_network_policy_amendment: NetworkAmendment


CommandExecutionApprovalDecision = TypeAliasType(
    "CommandExecutionApprovalDecision",
    FileChangeApprovalDecision
    | AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision
    | ApplyNetworkPolicyAmendmentCommandExecutionApprovalDecision,
)


class CommandExecutionRequestApprovalParams(WireStruct, omit_defaults=True):
    """May this command run? Always after the `item/started` of the same item."""

    kind: CommandExecutionApprovalKind = shown("command")
    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: int
    approval_id: str | None = None
    environment_id: str | None = shown(None)
    reason: str | None = None
    network_approval_context: Annotated[Foreign, unserved("NetworkApprovalContext")] | None = None
    command: str | None = None
    cwd: LegacyAppPathString | None = None
    command_actions: tuple[CommandAction, ...] | None = None
    proposed_execpolicy_amendment: tuple[str, ...] | None = None
    proposed_network_policy_amendments: tuple[NetworkPolicyAmendment, ...] | None = None
    available_decisions: Annotated[tuple[CommandExecutionApprovalDecision, ...] | None, Experimental] = None


class CommandExecutionRequestApprovalResponse(WireModel):
    decision: CommandExecutionApprovalDecision


class FileChangeRequestApprovalParams(WireStruct):
    """May these files change? The changes are in the `item/started` of the same item."""

    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: int
    reason: str | None = None
    grant_root: str | None = None


class FileChangeRequestApprovalResponse(WireModel):
    decision: FileChangeApprovalDecision


_WORDS: Final[Mapping[str, FileChangeApprovalDecision]] = {
    **{decision.value: decision for decision in FileChangeApprovalDecision},
    "denied": FileChangeApprovalDecision.DECLINE,
    "abort": FileChangeApprovalDecision.CANCEL,
}


def parse_decision(result: Json) -> CommandExecutionApprovalDecision | None:
    """Return the decision in a client's answer, or None where there is none in the right place.

    The conversation API's words for no are understood, its words for yes are not.
    """
    match result:
        case {"decision": str(word)}:
            return _WORDS.get(word)
        case {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": [*words]}, **rest}} if (
            words and not rest and all(isinstance(word, str) for word in words)
        ):
            return AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision(
                accept_with_execpolicy_amendment=ExecpolicyAmendment(execpolicy_amendment=tuple(words))
            )
        case _:
            return None


PermissionGrantScope = TypeAliasType("PermissionGrantScope", Literal["turn", "session"])


class PermissionsRequestApprovalParams(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    environment_id: str | None = None
    started_at_ms: int
    cwd: LegacyAppPathString
    reason: str | None = None
    permissions: Annotated[Foreign, unserved("RequestPermissionProfile")]


class PermissionsRequestApprovalResponse(WireModel):
    """Permissions that are granted; nothing of it means no."""

    permissions: Annotated[Foreign, unserved("GrantedPermissionProfile")]
    scope: PermissionGrantScope = "turn"
    strict_auto_review: Flag | None = None


ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL: Final = ServerRequest(
    "item/commandExecution/requestApproval",
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    "May a command run?",
)
ITEM_FILE_CHANGE_REQUEST_APPROVAL: Final = ServerRequest(
    "item/fileChange/requestApproval",
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
    "May files change?",
)
ITEM_PERMISSIONS_REQUEST_APPROVAL: Final = ServerRequest(
    "item/permissions/requestApproval",
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
    "May a turn have more than its sandbox gives?",
)
