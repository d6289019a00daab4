"""The server's requests to the client: one class for each kind of request, each with methods for its possible answers.

Pure. An `on_approval` handler receives a request and returns the result of one of its methods, or True or False.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.parse import read
from app_server_protocol.v2 import item_parts, question
from app_server_protocol.v2.items import CommandExecutionThreadItem, FileChangeThreadItem


class ApprovalReply(Struct, frozen=True):
    """The answer to a request of the server. The methods of the requests make it."""

    result: WireModel


class AskedInThread(Protocol):
    @property
    def thread_id(self) -> str: ...


class WithReason(AskedInThread, Protocol):
    @property
    def reason(self) -> str | None: ...


P = TypeVar("P", bound=AskedInThread)
R = TypeVar("R", bound=WithReason)


class AskedRequest(Struct, Generic[P], frozen=True):
    """Any request of the server in a thread."""

    params: P

    @property
    def thread_id(self) -> str:
        return self.params.thread_id


class ActionRequest(AskedRequest[R], Generic[R], frozen=True):
    """A request to approve an action of the model."""

    response: ClassVar[Callable[..., WireModel]]

    @property
    def reason(self) -> str | None:
        return self.params.reason

    def accept(self) -> ApprovalReply:
        return self._decided(question.FileChangeApprovalDecision.ACCEPT)

    def accept_for_thread(self) -> ApprovalReply:
        """Accept, and allow the same for the rest of this thread."""
        return self._decided(question.FileChangeApprovalDecision.ACCEPT_FOR_SESSION)

    def decline(self) -> ApprovalReply:
        """Decline the action; the turn continues."""
        return self._decided(question.FileChangeApprovalDecision.DECLINE)

    def cancel(self) -> ApprovalReply:
        """Decline the action, and interrupt the turn."""
        return self._decided(question.FileChangeApprovalDecision.CANCEL)

    def _decided(self, decision: question.CommandExecutionApprovalDecision) -> ApprovalReply:
        return ApprovalReply(type(self).response(decision=decision))


class CommandApprovalRequest(ActionRequest[question.CommandExecutionRequestApprovalParams], frozen=True):
    """A request to run a command. `command` is one line, quoted for a shell; `item` is the command as it was
    started.
    """

    response = question.CommandExecutionRequestApprovalResponse
    item: CommandExecutionThreadItem | None = None

    @property
    def command(self) -> str:
        return self.params.command or (self.item.command if self.item else "")

    @property
    def cwd(self) -> str | None:
        return self.params.cwd or (self.item.cwd if self.item else None)

    @property
    def proposed_rule(self) -> tuple[str, ...] | None:
        """The first words of the commands that `accept_with_rule` would allow. None if no rule was proposed."""
        return self.params.proposed_execpolicy_amendment

    def accept_with_rule(self) -> ApprovalReply:
        """Accept, and store the proposed rule. Raises ValueError if none was proposed."""
        if not self.proposed_rule:
            raise ValueError("the server proposed no rule for this command")
        amendment = question.ExecpolicyAmendment(execpolicy_amendment=self.proposed_rule)
        return self._decided(
            question.AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision(
                accept_with_execpolicy_amendment=amendment
            )
        )


class PatchApprovalRequest(ActionRequest[question.FileChangeRequestApprovalParams], frozen=True):
    """A request to change files. `item` is the patch as it was started."""

    response = question.FileChangeRequestApprovalResponse
    item: FileChangeThreadItem | None = None

    @property
    def changes(self) -> tuple[item_parts.FileUpdateChange, ...]:
        return self.item.changes if self.item else ()


class PermissionsApprovalRequest(AskedRequest[question.PermissionsRequestApprovalParams], frozen=True):
    """A request for more rights than the turn's sandbox grants. `params.permissions` has the rights."""

    @property
    def reason(self) -> str | None:
        return self.params.reason

    def accept(self) -> ApprovalReply:
        """Grant all requested rights for this turn."""
        return self._granted("turn")

    def accept_for_thread(self) -> ApprovalReply:
        return self._granted("session")

    def decline(self) -> ApprovalReply:
        return ApprovalReply(question.PermissionsRequestApprovalResponse(permissions={}))

    def _granted(self, scope: question.PermissionGrantScope) -> ApprovalReply:
        asked = self.params.permissions
        granted = {key: asked[key] for key in ("network", "fileSystem") if asked.get(key) is not None}
        return ApprovalReply(question.PermissionsRequestApprovalResponse(permissions=granted, scope=scope))


class UserQuestionsRequest(AskedRequest[question.ToolRequestUserInputParams], frozen=True):
    """Questions of the model to the user."""

    @property
    def questions(self) -> tuple[question.ToolRequestUserInputQuestion, ...]:
        return self.params.questions

    def answer(self, answers: Mapping[str, str | Sequence[str]]) -> ApprovalReply:
        """Answer by the ids of the questions, with a label of an option, or free text. Several answers are a
        sequence.
        """
        given = {
            id: question.ToolRequestUserInputAnswer(answers=(text,) if isinstance(text, str) else tuple(text))
            for id, text in answers.items()
        }
        return ApprovalReply(question.ToolRequestUserInputResponse(answers=given))

    def decline(self) -> ApprovalReply:
        return self.answer({})


class McpToolCallFacts(Struct, frozen=True, kw_only=True):
    """Facts about a waiting call of an MCP server's tool."""

    tool: str
    arguments: Json
    description: str | None = None
    annotations: Json = None
    """Hints of the server about the tool, in the form of MCP. None if it gives none."""
    can_be_remembered: bool = False
    """Whether the thread can approve further calls of the tool."""
    can_be_kept: bool = False
    """Whether the settings can approve the tool for every thread."""


class McpElicitationRequest(AskedRequest[question.McpServerElicitation], frozen=True):
    """A request of an MCP server for values or to visit a page, or a request to run one of its tools."""

    @property
    def message(self) -> str:
        return self.params.message

    @property
    def schema(self) -> Json:
        """The JSON Schema of the requested values. None for a page to visit."""
        return self.params.requested_schema if isinstance(self.params, question.FormElicitation) else None

    @property
    def tool_call(self) -> McpToolCallFacts | None:
        """The call that the question is about. None for a question of the server itself."""
        meta = self.params.meta
        if not isinstance(meta, dict) or meta.get("codex_approval_kind") != "mcp_tool_call":
            return None
        persist = meta.get("persist")
        offered = persist if isinstance(persist, list) else []
        return McpToolCallFacts(
            tool=str(meta.get("tool_name", "")),
            arguments=meta.get("tool_params"),
            description=meta.get("tool_description"),
            annotations=meta.get("tool_annotations"),
            can_be_remembered="session" in offered,
            can_be_kept="always" in offered,
        )

    def accept(self, content: Json = None) -> ApprovalReply:
        """Accept, with the values for the schema."""
        return self._acted("accept", content)

    def accept_for_thread(self) -> ApprovalReply:
        """Accept the call of `tool_call`, and further calls of its tool in this thread. Raises ValueError if the user
        is to be asked about each.
        """
        if self.tool_call is None or not self.tool_call.can_be_remembered:
            raise ValueError("the server did not offer to remember an approval of this")
        return self._lasting("session")

    def accept_always(self) -> ApprovalReply:
        """Accept the call of `tool_call`, and approve its tool in the settings. Raises ValueError if they cannot be
        changed.
        """
        if self.tool_call is None or not self.tool_call.can_be_kept:
            raise ValueError("the server did not offer to keep an approval of this")
        return self._lasting("always")

    def decline(self) -> ApprovalReply:
        return self._acted("decline")

    def cancel(self) -> ApprovalReply:
        return self._acted("cancel")

    def _lasting(self, persist: str) -> ApprovalReply:
        kept = question.McpServerElicitationRequestResponse(
            action="accept", content={}, meta={"persist": persist}
        )
        return ApprovalReply(kept)

    def _acted(self, action: question.McpServerElicitationAction, content: Json = None) -> ApprovalReply:
        return ApprovalReply(question.McpServerElicitationRequestResponse(action=action, content=content))


class ClientToolRequest(AskedRequest[question.DynamicToolCallParams], frozen=True):
    """A call of a tool of the client (`dynamic_tools` of a thread)."""

    @property
    def tool(self) -> str:
        return self.params.tool

    @property
    def arguments(self) -> Json:
        return self.params.arguments

    def succeed(self, *content: str | item_parts.DynamicToolCallOutputContentItem) -> ApprovalReply:
        """Return a successful result for the model: texts and images."""
        return self._ended(content, success=True)

    def fail(self, reason: str) -> ApprovalReply:
        return self._ended((reason,), success=False)

    def decline(self) -> ApprovalReply:
        return self.fail(f"the client does not run the tool {self.tool}")

    def _ended(
        self, content: Sequence[str | item_parts.DynamicToolCallOutputContentItem], *, success: bool
    ) -> ApprovalReply:
        items = tuple(
            item_parts.InputTextDynamicToolCallOutputContentItem(text=each) if isinstance(each, str) else each
            for each in content
        )
        return ApprovalReply(question.DynamicToolCallResponse(content_items=items, success=success))


ApprovalRequest: TypeAlias = (
    CommandApprovalRequest
    | PatchApprovalRequest
    | PermissionsApprovalRequest
    | UserQuestionsRequest
    | McpElicitationRequest
    | ClientToolRequest
)
"""All requests of the server to a client."""


def parse_request(method: str, params: Json, item: object) -> ApprovalRequest | None:
    """Parse a request; return None for an unknown method. `item` is the item that the request names, if it is known.

    Raises pydantic's ValidationError.
    """
    match method:
        case question.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL.method:
            command = read(question.CommandExecutionRequestApprovalParams, params)
            return CommandApprovalRequest(
                command, item if isinstance(item, CommandExecutionThreadItem) else None
            )
        case question.ITEM_FILE_CHANGE_REQUEST_APPROVAL.method:
            patch = read(question.FileChangeRequestApprovalParams, params)
            return PatchApprovalRequest(patch, item if isinstance(item, FileChangeThreadItem) else None)
        case question.ITEM_PERMISSIONS_REQUEST_APPROVAL.method:
            return PermissionsApprovalRequest(read(question.PermissionsRequestApprovalParams, params))
        case question.ITEM_TOOL_REQUEST_USER_INPUT.method:
            return UserQuestionsRequest(read(question.ToolRequestUserInputParams, params))
        case question.MCP_SERVER_ELICITATION_REQUEST.method:
            return McpElicitationRequest(
                question.McpServerElicitationRequestParams.model_validate(params).root
            )
        case question.ITEM_TOOL_CALL.method:
            return ClientToolRequest(read(question.DynamicToolCallParams, params))
        case _:
            return None


def reply_of(request: ApprovalRequest, answer: object) -> ApprovalReply:
    """Return the reply for a handler's return value. Raises TypeError if the value is invalid."""
    match answer:
        case ApprovalReply():
            return answer
        case None | False:
            return request.decline()
        case True if not isinstance(request, UserQuestionsRequest | ClientToolRequest):
            return request.accept()
        case _:
            expected = "what a method of the request returns, or True or False"
            raise TypeError(
                f"the handler returned {answer!r} for a {type(request).__name__}; expected {expected}"
            )
