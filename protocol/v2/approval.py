"""Questions whether something may be done: run a command, change files, or do more than the sandbox of the turn
permits.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypeAliasType

from protocol.base import EngineModel, Json, WireModel, omit_none
from protocol.fields import Count, Flag
from protocol.structs import WireStruct, shown
from protocol.table import ServerRequest
from protocol.v2.fields import Experimental, LegacyAppPathString
from protocol.v2.item_parts import CommandAction


class CommandExecutionApprovalKind(StrEnum):
    COMMAND = "command"
    WRITE_STDIN = "writeStdin"
    HUMAN_COMMAND = "humanCommand"


class NetworkApprovalProtocol(StrEnum):
    HTTP = "http"
    HTTPS = "https"
    SOCKS5_TCP = "socks5Tcp"
    SOCKS5_UDP = "socks5Udp"


class NetworkApprovalContext(WireStruct):
    host: str
    protocol: NetworkApprovalProtocol


class NetworkPolicyRuleAction(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


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

    kind: CommandExecutionApprovalKind = shown(CommandExecutionApprovalKind.COMMAND)
    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: int
    approval_id: str | None = None
    environment_id: str | None = shown(None)
    reason: str | None = None
    network_approval_context: NetworkApprovalContext | None = None
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
    """The decision in a client's answer, or None where there is none in the right place.

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


class FileSystemAccessMode(StrEnum):
    READ = "read"
    WRITE = "write"
    DENY = "deny"


class RootFileSystemSpecialPath(WireModel):
    kind: Literal["root"] = "root"


class MinimalFileSystemSpecialPath(WireModel):
    kind: Literal["minimal"] = "minimal"


class ProjectRootsFileSystemSpecialPath(WireModel):
    kind: Literal["project_roots"] = "project_roots"
    subpath: LegacyAppPathString | None = None


class TmpdirFileSystemSpecialPath(WireModel):
    kind: Literal["tmpdir"] = "tmpdir"


class SlashTmpFileSystemSpecialPath(WireModel):
    kind: Literal["slash_tmp"] = "slash_tmp"


class UnknownFileSystemSpecialPath(WireModel):
    kind: Literal["unknown"] = "unknown"
    path: str
    subpath: LegacyAppPathString | None = None


FileSystemSpecialPath = TypeAliasType(
    "FileSystemSpecialPath",
    Annotated[
        RootFileSystemSpecialPath
        | MinimalFileSystemSpecialPath
        | ProjectRootsFileSystemSpecialPath
        | TmpdirFileSystemSpecialPath
        | SlashTmpFileSystemSpecialPath
        | UnknownFileSystemSpecialPath,
        Field(discriminator="kind"),
    ],
)


class PathFileSystemPath(WireModel):
    type: Literal["path"] = "path"
    path: LegacyAppPathString


class GlobPatternFileSystemPath(WireModel):
    type: Literal["glob_pattern"] = "glob_pattern"
    pattern: str


class SpecialFileSystemPath(WireModel):
    type: Literal["special"] = "special"
    value: FileSystemSpecialPath


FileSystemPath = TypeAliasType(
    "FileSystemPath",
    Annotated[
        PathFileSystemPath | GlobPatternFileSystemPath | SpecialFileSystemPath, Field(discriminator="type")
    ],
)


class FileSystemSandboxEntry(WireModel):
    path: FileSystemPath
    access: FileSystemAccessMode


class AdditionalFileSystemPermissions(WireModel):
    read: tuple[LegacyAppPathString, ...] | None = None
    write: tuple[LegacyAppPathString, ...] | None = None
    glob_scan_max_depth: Count | None = omit_none()
    entries: tuple[FileSystemSandboxEntry, ...] | None = omit_none()


class AdditionalNetworkPermissions(WireModel):
    enabled: Flag | None = None


class AdditionalPermissionProfile(WireModel):
    network: AdditionalNetworkPermissions | None = None
    file_system: AdditionalFileSystemPermissions | None = None


class RequestPermissionProfile(WireStruct, forbid_unknown_fields=True):
    network: AdditionalNetworkPermissions | None = None
    file_system: AdditionalFileSystemPermissions | None = None


class GrantedPermissionProfile(WireModel):
    network: AdditionalNetworkPermissions | None = omit_none()
    file_system: AdditionalFileSystemPermissions | None = omit_none()


class PermissionGrantScope(StrEnum):
    TURN = "turn"
    SESSION = "session"


class PermissionsRequestApprovalParams(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    environment_id: str | None = None
    started_at_ms: int
    cwd: LegacyAppPathString
    reason: str | None = None
    permissions: RequestPermissionProfile


class PermissionsRequestApprovalResponse(WireModel):
    """What is granted; nothing of it means no."""

    permissions: GrantedPermissionProfile
    scope: PermissionGrantScope = PermissionGrantScope.TURN
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
