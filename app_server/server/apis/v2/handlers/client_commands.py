"""`command/exec`: commands of the client, outside of any thread, in the sandbox that it names or the configured one.

The response is sent when the command has ended, after all its output. A command ends with its connection, and no
process that it started outlives it.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.client_services import WantedCommand
from app_server.engine.config.config_values import RequestOverrides
from app_server.engine.config.permission_profiles import ProfileError
from app_server.engine.sandbox.exec.command_process import Process
from app_server.engine.support.engine_errors import SHORTAGES, InputClosed, InputFull, LaunchError
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.thread_notifier import ThreadNotifier, to_client
from app_server.server.apis.v2.thread_settings import sandbox_policy
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.engine.thread_settings import SettingsPatch, or_unset
from app_server_protocol.rpc_errors import (
    RpcError,
    internal_error,
    invalid_field,
    invalid_params,
    invalid_request,
    overloaded,
)
from app_server_protocol.v2 import commands as wire

MOST = 512
"""Maximum number of commands of one client that run at the same time."""
DEFAULT_CAP = 1 << 20
"""Maximum size of each output stream in a response if the request names none, in bytes."""
MOST_KEPT = 32 << 20
"""Maximum size of each output stream in a response, whatever cap was requested, in bytes."""
MOST_QUOTED = 200
"""Maximum length of a name that an error quotes, in characters."""

_STREAMS: Final[Mapping[ExecOutputStream, wire.CommandExecOutputStream]] = {
    ExecOutputStream.STDOUT: "stdout",
    ExecOutputStream.STDERR: "stderr",
}


class ClientProcess(Struct):
    """One command."""

    stdin: bool
    terminal: bool
    command: Process | None = None
    """Process of the command; None before it has started, and if it could not be started."""
    opened: anyio.Event = msgspec.field(default_factory=anyio.Event)
    """Set when the command has started, or could not be started."""


class ClientProcesses(Struct):
    """All commands of one client. Commands without a name count towards the maximum, too."""

    _named: dict[str, ClientProcess] = msgspec.field(default_factory=dict)
    _running: int = 0

    @contextmanager
    def counted(self, id: str | None, process: ClientProcess) -> Iterator[None]:
        """Count a command until the block ends. Raises RpcError."""
        if id in self._named:
            raise invalid_request(
                f"duplicate active command/exec process id: {_quoted(id)}", "duplicate_process"
            )
        if self._running >= MOST:
            raise overloaded(f"{MOST} commands are running; try again")
        self._running += 1
        if id is not None:
            self._named[id] = process
        try:
            yield
        finally:
            process.opened.set()
            self._running -= 1
            if id is not None:
                del self._named[id]

    def get(self, id: str) -> ClientProcess:
        process = self._named.get(id)
        if process is None:
            raise no_process(id)
        return process

    async def started(self, id: str) -> Process:
        """Return a command once it has started. Raises RpcError if there is no such command, or if it could not be
        started.
        """
        process = self.get(id)
        await process.opened.wait()
        if process.command is None:
            raise no_process(id)
        return process.command


def no_process(id: str) -> RpcError:
    return invalid_request(f"no active command/exec for process id {_quoted(id)}", "process_not_found")


def _quoted(id: str | None) -> str:
    return f'"{(id or "")[:MOST_QUOTED]}"'


class KeptOutput:
    """The first bytes of each output stream, for the response."""

    def __init__(self, cap: int | None) -> None:
        self._cap = MOST_KEPT if cap is None else min(cap, MOST_KEPT)
        self._kept = {stream: bytearray() for stream in ExecOutputStream}
        self._cut: set[ExecOutputStream] = set()

    async def take(self, stream: ExecOutputStream, chunk: bytes) -> None:
        kept = self._kept[stream]
        left = self._cap - len(kept)
        kept += chunk[:left]
        if len(chunk) > left:
            self._cut.add(stream)

    def text(self, stream: ExecOutputStream) -> str:
        """Return the output that was kept, without a character that the cap cut in two."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(bytes(self._kept[stream]), final=stream not in self._cut)


class StreamedOutput:
    """Output as notifications, no faster than the client reads. Output beyond the cap is dropped."""

    def __init__(self, id: str, cap: int | None, notifier: ThreadNotifier) -> None:
        self._id, self._notifier = id, notifier
        self._left: dict[ExecOutputStream, int | None] = dict.fromkeys(ExecOutputStream, cap)
        self._ended: set[ExecOutputStream] = set()

    async def take(self, stream: ExecOutputStream, chunk: bytes) -> None:
        if stream in self._ended:
            return
        left = self._left[stream]
        reached = left is not None and len(chunk) >= left
        if left is not None:
            chunk = chunk[:left]
            self._left[stream] = left - len(chunk)
        if reached:
            self._ended.add(stream)
        await self._notifier.wait_for_capacity()
        self._notifier.notify(
            wire.COMMAND_EXEC_OUTPUT_DELTA,
            process_id=self._id,
            stream=_STREAMS[stream],
            delta_base64=base64.b64encode(chunk).decode(),
            cap_reached=reached,
        )


DEFAULT_TIMEOUT_MS = 10_000
NO_PROGRAM = {errno.ENOENT: 127, errno.ENOTDIR: 127, errno.EACCES: 126, errno.ENOEXEC: 126}
"""Exit codes of shells for a file that is not a program, by the system's error number."""


def _processes(context: ConnectionContext) -> ClientProcesses:
    return context.own.get(ClientProcesses, ClientProcesses)


async def command_exec(
    context: ConnectionContext, params: wire.CommandExecParams
) -> wire.CommandExecResponse:
    """Run a command. Its name is registered before anything is awaited, so that later requests find the command."""
    _check(params)
    context.require_folder(params.cwd)
    process = ClientProcess(stdin=params.stream_stdin or params.tty, terminal=params.tty)
    with _processes(context).counted(params.process_id, process):
        try:
            return await _run(context, params, process)
        except LaunchError as error:
            raise _not_spawned(error) from error


async def command_exec_write(context: ConnectionContext, params: wire.CommandExecWriteParams) -> None:
    if params.delta_base64 is None and not params.close_stdin:
        raise invalid_params("command/exec/write requires deltaBase64 or closeStdin")
    try:
        data = binascii.a2b_base64(params.delta_base64 or "", strict_mode=True)
    except ValueError as error:
        raise invalid_params(f"invalid deltaBase64: {error}", "deltaBase64") from error
    if not _processes(context).get(params.process_id).stdin:
        raise invalid_request("stdin streaming is not enabled for this command/exec", "no_stdin")
    command = await _processes(context).started(params.process_id)
    assert command.stdin is not None
    try:
        await command.stdin.write(data, last=params.close_stdin)
    except InputClosed:
        raise invalid_request("stdin is already closed", "stdin_closed") from None
    except InputFull:
        raise overloaded("the command does not read its input; try again") from None


async def command_exec_resize(context: ConnectionContext, params: wire.CommandExecResizeParams) -> None:
    size = _size(params.size)
    if not _processes(context).get(params.process_id).terminal:
        raise invalid_request("failed to resize PTY: process is not attached to a PTY", "no_terminal")
    (await _processes(context).started(params.process_id)).resize(size)


async def command_exec_terminate(context: ConnectionContext, params: wire.OfCommand) -> None:
    """Terminate a command. `command/exec` responds once all its processes have ended."""
    (await _processes(context).started(params.process_id)).kill()


async def _run(
    context: ConnectionContext, params: wire.CommandExecParams, process: ClientProcess
) -> wire.CommandExecResponse:
    try:
        spec = context.host.prepare(_wanted(params))
    except ProfileError as error:
        raise invalid_field(f"invalid permission profile: {error}", "permissionProfile") from error
    command = await context.host.open(
        spec,
        stdin=process.stdin,
        terminal=process.terminal,
        size=None if params.size is None else _size(params.size),
    )
    process.command = command
    process.opened.set()
    cap = params.output_bytes_cap
    if cap is None and not params.disable_output_cap:
        cap = DEFAULT_CAP
    kept = KeptOutput(cap)
    take = kept.take
    if params.process_id is not None and (params.stream_stdout_stderr or params.tty):
        take = StreamedOutput(params.process_id, cap, to_client(context)).take
    try:
        code = await context.host.follow(command, take, spec.timeout_ms)
    except LaunchError as error:
        code = NO_PROGRAM.get(error.code or 0, 0)
        if not code or spec.sandbox is None or not os.access(spec.cwd, os.X_OK):
            raise
        # Inside a sandbox, a failure to start the program is a result of the command, as in a shell.
        told = f"{spec.argv[0]}: {os.strerror(error.code or 0)}\n"
        await take(
            ExecOutputStream.STDOUT if process.terminal else ExecOutputStream.STDERR, os.fsencode(told)
        )
    return wire.CommandExecResponse(
        exit_code=code, stdout=kept.text(ExecOutputStream.STDOUT), stderr=kept.text(ExecOutputStream.STDERR)
    )


def _wanted(params: wire.CommandExecParams) -> WantedCommand:
    timeout_ms = DEFAULT_TIMEOUT_MS if params.timeout_ms is None else params.timeout_ms
    return WantedCommand(
        argv=params.command,
        cwd=params.cwd,
        policy=None if params.sandbox_policy is None else sandbox_policy(params.sandbox_policy),
        timeout_ms=None if params.disable_timeout else timeout_ms,
        request=RequestOverrides(patch=SettingsPatch(permission_profile=or_unset(params.permission_profile))),
        environment=params.env,
        terminal=params.tty,
    )


def _check(params: wire.CommandExecParams) -> None:
    if not params.command:
        raise invalid_field("command must not be empty", "command")
    streams = params.tty or params.stream_stdin or params.stream_stdout_stderr
    if streams and params.process_id is None:
        raise invalid_field("command/exec tty or streaming requires a client-supplied processId", "processId")
    if params.timeout_ms is not None and params.timeout_ms < 0:
        raise invalid_params(
            f"command/exec timeoutMs must be non-negative, got {params.timeout_ms}", "timeoutMs"
        )
    if params.timeout_ms is not None and params.disable_timeout:
        raise invalid_params("command/exec cannot set both timeoutMs and disableTimeout", "timeoutMs")
    if params.output_bytes_cap is not None and params.disable_output_cap:
        raise invalid_params(
            "command/exec cannot set both outputBytesCap and disableOutputCap", "outputBytesCap"
        )
    if params.size is not None:
        if not params.tty:
            raise invalid_params("command/exec size requires tty: true", "size")
        _size(params.size)
    if params.sandbox_policy is not None and params.permission_profile is not None:
        raise invalid_field("`permissionProfile` cannot be combined with `sandboxPolicy`", "sandboxPolicy")


def _size(size: wire.CommandExecTerminalSize) -> tuple[int, int]:
    if not size.rows or not size.cols:
        raise invalid_params("command/exec size rows and cols must be greater than 0", "size")
    return size.rows, size.cols


def _not_spawned(error: LaunchError) -> RpcError:
    """Return the error, with the operating system's text, which clients know, if its error code is known."""
    known = error.code is not None and error.code not in SHORTAGES
    reason = f"{os.strerror(error.code or 0)} (os error {error.code})" if known else str(error)
    return internal_error(f"failed to spawn command: {reason}", "exec")


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.COMMAND_EXEC, command_exec, context),
        route(wire.COMMAND_EXEC_WRITE, command_exec_write, context),
        route(wire.COMMAND_EXEC_RESIZE, command_exec_resize, context),
        route(wire.COMMAND_EXEC_TERMINATE, command_exec_terminate, context),
    )
