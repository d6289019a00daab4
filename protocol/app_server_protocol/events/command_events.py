"""Commands and patches: the prompt for consent, begin, output and end; what a command line does, and the diff of the
whole turn.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import EngineModel, omit_none
from app_server_protocol.engine.item_values import ExecOutputStream, FileChange, ParsedCommand
from app_server_protocol.outgoing import EngineStruct, always_written


class Duration(EngineStruct):
    """A span of time in whole seconds and the rest in nanoseconds."""

    secs: Annotated[int, Field(ge=0)]
    nanos: Annotated[int, Field(ge=0, lt=1_000_000_000)]

    @classmethod
    def from_seconds(cls, seconds: float) -> "Duration":
        secs, nanos = divmod(round(max(seconds, 0.0) * 1e9), 1_000_000_000)
        return cls(secs=secs, nanos=nanos)


SandboxRiskLevel = TypeAliasType("SandboxRiskLevel", Literal["low", "medium", "high"])


class SandboxCommandAssessment(EngineStruct):
    """Risk of leaving the sandbox for a command."""

    description: str
    risk_level: SandboxRiskLevel


class ExecApprovalRequestEvent(EngineStruct, omit_defaults=True):
    """A command waits for the user, or text that would be typed into one that goes on, as the only word of `command`.
    After the command's `exec_command_begin` and before its `exec_command_end`; the request to the client that
    carries the question is written after this event. There may be several for one command: each yes is for what its
    question shows. `reason` says where `cwd` leads if it is a link."""

    type: Literal["exec_approval_request"] = always_written("exec_approval_request")
    call_id: str
    command: tuple[str, ...]
    cwd: str
    reason: str | None = None
    risk: SandboxCommandAssessment | None = None
    parsed_cmd: tuple[ParsedCommand, ...]


class ExecCommandBeginEvent(EngineStruct):
    """A command was taken up. Before the question about it, its output and its end, once for a call; also for
    a command that the user then refuses, whose end has exit code -1. For the tool `exec_command`, `command` is
    the line that the model wrote, as one word; the question has the whole command. Its end may come in a later
    turn, or never, where the command goes on as long as the conversation."""

    type: Literal["exec_command_begin"] = "exec_command_begin"
    call_id: str
    command: tuple[str, ...]
    cwd: str
    parsed_cmd: tuple[ParsedCommand, ...]
    is_user_shell_command: bool = False


class ExecCommandOutputDeltaEvent(EngineStruct):
    """A piece of output, base64, while the command runs. Between begin and end, in the order of arrival. Also
    between `patch_apply_begin` and `patch_apply_end`, with the id of the patch: what applying it printed."""

    type: Literal["exec_command_output_delta"] = "exec_command_output_delta"
    call_id: str
    stream: ExecOutputStream
    chunk: str


class ExecCommandEndEvent(EngineStruct):
    """A command ended, was refused or could not be started (exit code -1). One for each begin, except that
    `turn_aborted` ends what still ran."""

    type: Literal["exec_command_end"] = "exec_command_end"
    call_id: str
    stdout: str
    stderr: str
    aggregated_output: str = ""
    exit_code: int
    duration: Duration
    formatted_output: str


class ViewImageToolCallEvent(EngineStruct):
    """The model looks at an image file; the picture goes into its next request."""

    type: Literal["view_image_tool_call"] = "view_image_tool_call"
    call_id: str
    path: str


class ApplyPatchApprovalRequestEvent(EngineModel):
    """A patch waits for the user. Before its `patch_apply_begin`; the request to the client that carries the
    question is written after this event. Keys of `changes` are absolute paths."""

    type: Literal["apply_patch_approval_request"] = "apply_patch_approval_request"
    call_id: str
    changes: dict[str, FileChange]
    reason: str | None = omit_none()
    grant_root: str | None = omit_none()


class PatchApplyBeginEvent(EngineModel):
    """A patch is about to be applied. `auto_approved` is false if the user was asked."""

    type: Literal["patch_apply_begin"] = "patch_apply_begin"
    call_id: str
    auto_approved: bool
    changes: dict[str, FileChange]


class PatchApplyEndEvent(EngineStruct):
    """A patch was applied or failed as a whole. Exactly one for each begin."""

    type: Literal["patch_apply_end"] = "patch_apply_end"
    call_id: str
    stdout: str
    stderr: str
    success: bool


class TurnDiffEvent(EngineStruct):
    """Changes by patches in the turn so far, as one unified diff. After the `patch_apply_end` that altered it."""

    type: Literal["turn_diff"] = "turn_diff"
    unified_diff: str
