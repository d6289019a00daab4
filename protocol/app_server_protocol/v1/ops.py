"""Operations as clients of the conversation API write them, each submitted under an id that its events contain."""

from typing import Annotated, Final, Literal, get_args

from pydantic import Field, StrictInt
from typing_extensions import TypeAliasType

from app_server_protocol.base import EngineModel
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import ReviewRequest
from app_server_protocol.event_items import UserInput
from app_server_protocol.ids import PathText
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.policy import AskForApproval, ElicitationAction, ReasoningSummary, ReviewDecision
from app_server_protocol.v1.conversation import InConversation
from app_server_protocol.wire_fields import EffortText, SandboxPolicy


class InterruptOp(EngineModel):
    """Stop the running turn, if there is one; answered by `turn_aborted`."""

    type: Literal["interrupt"] = "interrupt"


class UserInputOp(EngineModel):
    """Say something under the conversation's present settings; while a turn runs it joins that turn."""

    type: Literal["user_input"] = "user_input"
    items: tuple[UserInput, ...]


class UserTurnOp(EngineModel):
    """Say something and set the conversation's settings for this turn and those after it."""

    type: Literal["user_turn"] = "user_turn"
    items: tuple[UserInput, ...]
    cwd: PathText
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    model: str
    effort: EffortText | None = None
    summary: ReasoningSummary = ReasoningSummary.AUTO
    final_output_json_schema: Json = None


class OverrideTurnContextOp(EngineModel):
    """Change settings without a turn. What is None stays; an `effort` given as null (see
    `model_fields_set`) is taken back to the model's default."""

    type: Literal["override_turn_context"] = "override_turn_context"
    cwd: PathText | None = None
    approval_policy: AskForApproval | None = None
    sandbox_policy: SandboxPolicy | None = None
    model: str | None = None
    effort: EffortText | None = None
    summary: ReasoningSummary | None = None


class ExecApprovalOp(EngineModel):
    """The answer to `exec_approval_request`. `id` is the turn's; `call_id` distinguishes calls of one turn, and
    without it the turn's only open request is meant."""

    type: Literal["exec_approval"] = "exec_approval"
    id: str
    call_id: str | None = None
    decision: ReviewDecision


class PatchApprovalOp(EngineModel):
    """The answer to `apply_patch_approval_request`; ids as with commands."""

    type: Literal["patch_approval"] = "patch_approval"
    id: str
    call_id: str | None = None
    decision: ReviewDecision


class ResolveElicitationOp(EngineModel):
    """The answer to `elicitation_request`."""

    type: Literal["resolve_elicitation"] = "resolve_elicitation"
    server_name: str
    request_id: str
    decision: ElicitationAction
    content: Json = None


class AddToHistoryOp(EngineModel):
    """Keep a line in the user's message history."""

    type: Literal["add_to_history"] = "add_to_history"
    text: str


class GetHistoryEntryRequestOp(EngineModel):
    """Look up one line of the message history; answered by `get_history_entry_response`."""

    type: Literal["get_history_entry_request"] = "get_history_entry_request"
    offset: StrictInt
    log_id: StrictInt


class ListMcpToolsOp(EngineModel):
    """Ask every MCP server what it offers; answered by `mcp_list_tools_response`."""

    type: Literal["list_mcp_tools"] = "list_mcp_tools"


class ListCustomPromptsOp(EngineModel):
    """List the prompts that the user keeps as files; answered by `list_custom_prompts_response`."""

    type: Literal["list_custom_prompts"] = "list_custom_prompts"


class UndoOp(EngineModel):
    """Take back what the last turn changed in the working tree. What somebody has changed since is kept, and named in
    `undo_completed`. Refused while a turn or a command runs there; the turn goes on."""

    type: Literal["undo"] = "undo"


class CompactOp(EngineModel):
    """Replace the history by a summary."""

    type: Literal["compact"] = "compact"


class ReviewOp(EngineModel):
    """Run a review as a turn of its own."""

    type: Literal["review"] = "review"
    review_request: ReviewRequest


class RunUserShellCommandOp(EngineModel):
    """Run a command of the user's own in their shell, in the sandbox and without asking, unknown to the model."""

    type: Literal["run_user_shell_command"] = "run_user_shell_command"
    command: str


class ShutdownOp(EngineModel):
    """End the conversation; answered by `shutdown_complete`."""

    type: Literal["shutdown"] = "shutdown"


_AnyOp = (
    InterruptOp
    | UserInputOp
    | UserTurnOp
    | OverrideTurnContextOp
    | ExecApprovalOp
    | PatchApprovalOp
    | ResolveElicitationOp
    | AddToHistoryOp
    | GetHistoryEntryRequestOp
    | ListMcpToolsOp
    | ListCustomPromptsOp
    | UndoOp
    | CompactOp
    | ReviewOp
    | RunUserShellCommandOp
    | ShutdownOp
)

Op = TypeAliasType("Op", Annotated[_AnyOp, Field(discriminator="type")])

OPERATIONS: Final[tuple[type[Op], ...]] = get_args(_AnyOp)
"""Classes of all operations."""


class Submission(EngineModel):
    """One operation under its id."""

    id: str
    op: Op


class SubmitParams(InConversation):
    """An operation as the engine understands it, for everything that has no method of its own."""

    op: Op


class SubmitResponse(WireStruct):
    """Events that answer the operation carry this id."""

    submission_id: str


SUBMIT: Final = ClientRequest(
    "submit",
    SubmitParams,
    SubmitResponse,
    "Submits any operation: compact, undo, review, run a shell command, list tools and so on.",
    extension=True,
)
