"""Requests of the server: whether a command may run, files change, or a turn do more than its sandbox permits;
questions of an MCP server or the model to the user; and calls of the tools that a client brings.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, RootModel
from typing_extensions import TypeAliasType

from app_server_protocol.base import EngineModel, Foreign, WireModel, unserved
from app_server_protocol.encoding import Json
from app_server_protocol.method_table import ServerRequest
from app_server_protocol.outgoing import WireStruct, always_written
from app_server_protocol.v2.fields import Experimental, LegacyAppPathString, without
from app_server_protocol.v2.item_parts import CommandAction, DynamicToolCallOutputContentItem
from app_server_protocol.wire_fields import Flag

COMMON_FIELDS: Final = ("threadId", "turnId", "serverName", "environmentId")
"""Fields of every question of an MCP server, which the schema declares once."""


class _Elicitation(WireModel):
    """Base of every question of an MCP server; the turn is null where it belongs to none."""

    model_config = ConfigDict(json_schema_extra=without(*COMMON_FIELDS))
    thread_id: str
    turn_id: str | None = None
    server_name: str
    environment_id: str | None = None


class FormElicitation(_Elicitation):
    """Asks for values; `requestedSchema` is the form, as the server wrote it."""

    mode: Literal["form"] = "form"
    message: str
    requested_schema: Json
    meta: Json = Field(default=None, alias="_meta")


class UrlElicitation(_Elicitation):
    """Asks the user to visit a page."""

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str
    meta: Json = Field(default=None, alias="_meta")


McpServerElicitation = Annotated[FormElicitation | UrlElicitation, Field(discriminator="mode")]


def _with_common_fields(schema: dict[str, Json]) -> None:
    text: Json = {"type": "string"}
    schema["type"] = "object"
    schema["properties"] = {
        "threadId": text,
        "turnId": {"anyOf": [text, {"type": "null"}]},
        "serverName": text,
        "environmentId": {"anyOf": [text, {"type": "null"}]},
    }
    schema["required"] = ["threadId", "serverName"]


class McpServerElicitationRequestParams(WireModel, RootModel[McpServerElicitation]):
    """A question of an MCP server, or whether one of its tools may run (`_meta.codex_approval_kind`)."""

    model_config = ConfigDict(json_schema_extra=_with_common_fields)


McpServerElicitationAction = TypeAliasType(
    "McpServerElicitationAction", Literal["accept", "decline", "cancel"]
)


class McpServerElicitationRequestResponse(WireModel):
    """Only `accept` is a yes."""

    action: McpServerElicitationAction
    content: Json = None
    meta: Json = Field(default=None, alias="_meta")


class ToolRequestUserInputOption(WireStruct):
    label: str
    description: str


class ToolRequestUserInputQuestion(WireStruct):
    id: str
    header: str
    question: str
    is_other: bool = False
    is_secret: bool = False
    options: tuple[ToolRequestUserInputOption, ...] | None = None


class ToolRequestUserInputAnswer(WireModel):
    answers: tuple[str, ...]


class ToolRequestUserInputParams(WireStruct):
    """Questions of the model to the user."""

    thread_id: str
    turn_id: str
    item_id: str
    questions: tuple[ToolRequestUserInputQuestion, ...]
    is_blocking: bool
    auto_resolution_ms: int | None = None


class ToolRequestUserInputResponse(WireModel):
    """The answers, by the ids of the questions."""

    answers: dict[str, ToolRequestUserInputAnswer]


class DynamicToolCallParams(WireStruct):
    """The model calls a tool that the client brought."""

    thread_id: str
    turn_id: str
    call_id: str
    namespace: str | None = None
    tool: str
    arguments: Json


class DynamicToolCallResponse(WireModel):
    """Outcome of the tool, for the model."""

    content_items: tuple[DynamicToolCallOutputContentItem, ...]
    success: Flag


ITEM_TOOL_REQUEST_USER_INPUT: Final = ServerRequest(
    "item/tool/requestUserInput",
    ToolRequestUserInputParams,
    ToolRequestUserInputResponse,
    "The model asks the user.",
)
ITEM_TOOL_CALL: Final = ServerRequest(
    "item/tool/call",
    DynamicToolCallParams,
    DynamicToolCallResponse,
    "The model calls a tool that the client brought.",
)
MCP_SERVER_ELICITATION_REQUEST: Final = ServerRequest(
    "mcpServer/elicitation/request",
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
    "An MCP server asks the user, or one of its tools wants to run.",
)


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

    kind: CommandExecutionApprovalKind = always_written("command")
    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: int
    approval_id: str | None = None
    environment_id: str | None = always_written(None)
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
