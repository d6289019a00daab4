"""Commands that a client runs outside of any thread: in the sandbox, with or without a terminal."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.ids import PathText
from app_server_protocol.method_table import ClientRequest, NoResult, ServerNotification
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import Integer, Small, experimental
from app_server_protocol.v2.settings import SANDBOX_TYPES, SandboxPolicy
from app_server_protocol.wire_fields import Count, Flag


class CommandExecTerminalSize(WireModel):
    rows: Small
    cols: Small


def _tagged(raw: Json) -> Json:
    """Refuse other spellings of a policy, which are not guessed here: the command would run before the user could
    notice.
    """
    if isinstance(raw, Mapping) and raw.get("type") not in SANDBOX_TYPES:
        raise ValueError(f"expected a policy with a `type`, one of {', '.join(SANDBOX_TYPES)}")
    return raw


class CommandExecParams(WireModel):
    """A command, and how its input and output go. `processId` is the client's own name for it."""

    command: tuple[str, ...]
    process_id: str | None = None
    tty: Flag = False
    stream_stdin: Flag = False
    stream_stdout_stderr: Flag = False
    output_bytes_cap: Count | None = None
    disable_output_cap: Flag = False
    disable_timeout: Flag = False
    timeout_ms: Integer | None = None
    cwd: PathText | None = None
    env: dict[str, str | None] | None = None
    size: CommandExecTerminalSize | None = None
    sandbox_policy: Annotated[SandboxPolicy | None, BeforeValidator(_tagged)] = None
    permission_profile: str | None = experimental()


class CommandExecResponse(WireStruct):
    """When the command has ended. What was streamed is not repeated."""

    exit_code: int
    stdout: str
    stderr: str


class OfCommand(WireModel):
    process_id: str


class CommandExecWriteParams(OfCommand):
    delta_base64: str | None = None
    close_stdin: Flag = False


class CommandExecResizeParams(OfCommand):
    size: CommandExecTerminalSize


CommandExecOutputStream = TypeAliasType("CommandExecOutputStream", Literal["stdout", "stderr"])


class CommandExecOutputDeltaNotification(WireStruct):
    """A piece of output, base64; after `capReached` none comes any more."""

    process_id: str
    stream: CommandExecOutputStream
    delta_base64: str
    cap_reached: bool


COMMAND_EXEC: Final = ClientRequest(
    "command/exec",
    CommandExecParams,
    CommandExecResponse,
    "Runs a command in the sandbox, without asking. The answer comes when it has ended.",
)
COMMAND_EXEC_WRITE: Final = ClientRequest(
    "command/exec/write", CommandExecWriteParams, NoResult, "Writes to the input of a command, or closes it."
)
COMMAND_EXEC_RESIZE: Final = ClientRequest(
    "command/exec/resize", CommandExecResizeParams, NoResult, "Sets the size of a command's terminal."
)
COMMAND_EXEC_TERMINATE: Final = ClientRequest(
    "command/exec/terminate", OfCommand, NoResult, "Ends a command and all that it started."
)
COMMAND_EXEC_OUTPUT_DELTA: Final = ServerNotification(
    "command/exec/outputDelta",
    CommandExecOutputDeltaNotification,
    "A piece of the output of a client's command.",
)
