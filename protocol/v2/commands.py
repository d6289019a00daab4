"""Commands that a client runs outside of any thread: in the sandbox, with or without a terminal."""

from enum import StrEnum

from protocol.base import WireModel
from protocol.fields import Count, Flag, PathText
from protocol.v2.fields import Integer, Small, experimental
from protocol.v2.policy import SandboxPolicy


class CommandExecTerminalSize(WireModel):
    rows: Small
    cols: Small


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
    sandbox_policy: SandboxPolicy | None = None
    permission_profile: str | None = experimental()


class CommandExecResponse(WireModel):
    """When the command has ended. What was streamed is not repeated."""

    exit_code: int
    stdout: str
    stderr: str


class CommandExecWriteParams(WireModel):
    process_id: str
    delta_base64: str | None = None
    close_stdin: Flag = False


class CommandExecWriteResponse(WireModel):
    pass


class CommandExecResizeParams(WireModel):
    process_id: str
    size: CommandExecTerminalSize


class CommandExecResizeResponse(WireModel):
    pass


class CommandExecTerminateParams(WireModel):
    process_id: str


class CommandExecTerminateResponse(WireModel):
    pass


class CommandExecOutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class CommandExecOutputDeltaNotification(WireModel):
    """A piece of output, base64; after `capReached` none comes any more."""

    process_id: str
    stream: CommandExecOutputStream
    delta_base64: str
    cap_reached: bool
