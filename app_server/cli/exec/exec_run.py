"""Runs `app-server exec`: one turn, its report, and the exit status.

No user is there to be asked: the approval policy is `never` unless the command line names another one, and then every
question is declined. The exit status is 0 only if the turn completed and its message matches the schema; it is 3 if a
limit of the command line ended the turn.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Mapping
from typing import Final, TextIO

import anyio

from app_server.cli.demo import workspace
from app_server.cli.exec.exec_events import EventReport
from app_server.cli.exec.exec_limits import LimitGate
from app_server.cli.exec.exec_options import ExecOptions, ReportFormat, exec_options
from app_server.cli.exec.exec_report import NotificationReport, TextReport, TurnReport
from app_server.client import command_line
from app_server.client.app_server import AppServer
from app_server.client.event_stream import TurnStream
from app_server.client.failures import AppServerError
from app_server.client.link import Connector, shared_server
from app_server.client.options import OpenOptions, ThreadSource
from app_server.client.thread_handle import ThreadHandle
from app_server.client.turn_handle import TurnResult
from app_server.engine.config.settings_reader import did_you_mean
from app_server.engine.support.user_messages import model_unknown
from app_server.in_process import InProcessConnector
from app_server.server.bootstrap.overrides import cli_overrides
from app_server.server.bootstrap.server_process import end_loading
from app_server.server.bootstrap.standard_streams import check_stdout, complain, take_stdout
from app_server.server.proxy.sharing import is_sharing_wanted
from app_server_protocol.v2.server import WarningNotification
from app_server_protocol.v2.settings import ReadOnlySandboxPolicy
from app_server_protocol.values import replace

LIMITED: Final = 3
"""Exit status if a limit of the command line was reached."""

LEAVES_WITHIN: Final = 20.0
"""Timeout after a signal for the turn to end and the server to store everything, in seconds. Each of these has a bound
of its own.
"""


def run_exec(args: argparse.Namespace) -> int:
    check_stdout()
    try:
        options = exec_options(args, sys.stdin, sys.stderr)
    except command_line.InvalidCommandLine as error:
        complain("app-server exec", str(error), error.advice)
        return command_line.USAGE
    stdout = take_stdout()
    report = report_of(options, stdout, sys.stderr)

    async def turn() -> int:
        return await reported_status(options, report, sys.stderr, demo=args.demo)

    status = anyio.run(command_line.until_signal, turn, leave_soon)
    return command_line.INTERRUPTED if status is None else status


def report_of(options: ExecOptions, stdout: TextIO, stderr: TextIO) -> TurnReport:
    """Return the report for the requested format."""
    match options.format:
        case ReportFormat.EVENTS | ReportFormat.SDK_EVENTS:
            return EventReport(stdout)
        case ReportFormat.NOTIFICATIONS:
            return NotificationReport(stdout)
        case ReportFormat.TEXT:
            return TextReport(stdout, stderr, options.prices)


def leave_soon(number: int) -> None:
    """End the process if the orderly end after a signal takes too long. The server is in this process, too."""
    timer = threading.Timer(LEAVES_WITHIN, os._exit, (command_line.SIGNALLED + number,))
    timer.daemon = True
    timer.start()


async def reported_status(
    options: ExecOptions,
    report: TurnReport,
    stderr: TextIO,
    environment: Mapping[str, str] | None = None,
    *,
    demo: bool = False,
) -> int:
    """Run a whole turn and return the exit status. For a demo, the turn has a scripted model in a temporary folder. If
    there was no turn, the reason is written to stderr.
    """
    try:
        if not demo:
            return await _run_turn(options, report, environment)
        async with workspace.demo_surroundings(os.environ) as demo_place:
            there = replace(options, cwd=demo_place.repository)
            return await _run_turn(there, report, demo_place.environment)
    except command_line.InvalidCommandLine as error:
        complain("app-server exec", str(error), error.advice, file=stderr)
        return command_line.USAGE
    except AppServerError as error:
        why = command_line.reason(error)
        report.not_opened(why)
        complain("app-server exec", why, file=stderr)
        return command_line.FAILED


def _connector(options: ExecOptions, gate: LimitGate, environment: Mapping[str, str] | None) -> Connector:
    """Return a connector to a server in this process. If the user wants a shared server, it is used for a new thread
    that is stored: threads that others have open have rights that were not given here.
    """
    launch, limited = options.launch, options.limits.of_requests
    origin = options.origin
    is_plain = origin.is_new and not origin.ephemeral
    alone = environment is not None or limited or launch.writable_folders or not is_plain
    if not alone and is_sharing_wanted(os.environ, str(launch.home)):
        return shared_server(options=launch.words(), cwd=options.cwd)
    return InProcessConnector(
        cwd=options.cwd,
        environment=environment,
        overrides=cli_overrides(launch),
        gate=gate if limited else None,
        takes_codex_key=True,
    )


async def _run_turn(options: ExecOptions, report: TurnReport, environment: Mapping[str, str] | None) -> int:
    """Run the turn of a thread and return the exit status. Raises AppServerError, and InvalidCommandLine for errors
    that only the thread's settings show.
    """
    gate = LimitGate(options.limits, report.retrying)
    async with AppServer.connect(_connector(options, gate, environment), on_warning=report.warning) as server:
        thread = await _thread(server, options)
        if options.launch.writable_folders and isinstance(thread.opened.sandbox, ReadOnlySandboxPolicy):
            raise command_line.InvalidCommandLine(
                "--add-dir: the sandbox is read-only", "add -s workspace-write"
            )
        report.opened(thread.opened)
        if not options.prompt and options.review is None:
            report.copied(thread.opened)
            return 0
        async with _turn_of(options, thread) as stream:
            end_loading()
            gate.turn = stream.turn
            with anyio.move_on_after(options.limits.seconds) as in_time:
                await _report_events(stream, report)
            if in_time.cancelled_caught:
                gate.timed_out()
                await _report_events(stream, report)  # the remaining events, up to the end of the turn
            result = await stream.result()
        similar = await _similar_model(server, thread, result)
    mismatch = await _mismatch(options, result)
    if mismatch is not None and options.format is ReportFormat.SDK_EVENTS:  # the caller of an SDK decides
        report.warning(mismatch, WarningNotification(thread_id=thread.id, message=mismatch))
        mismatch = None
    problems = [each for each in (gate.reached, similar, _unwritten(options, result), mismatch) if each]
    report.ended(result, problems)
    if gate.reached is not None:
        return LIMITED
    return 0 if result.completed and not problems else command_line.FAILED


def _turn_of(options: ExecOptions, thread: ThreadHandle) -> TurnStream:
    """Return the requested turn, which has not begun yet."""
    if options.review is not None:
        return thread.review(options.review)
    return thread.stream(options.prompt, **options.turn)


async def _similar_model(server: AppServer, thread: ThreadHandle, result: TurnResult[None]) -> str | None:
    """Return a suggestion of another model if the provider does not know the requested one; otherwise None."""
    model, provider = thread.opened.model, thread.opened.model_provider
    if result.error is None or model_unknown(provider, model).what not in result.error.message:
        return None
    meant = did_you_mean(model, {each.model for each in await server.models()} - {model})
    return f"there is no model `{model}`{meant}" if meant else None


async def _report_events(stream: TurnStream, report: TurnReport) -> None:
    async for event in stream:
        report.event(event)


async def _mismatch(options: ExecOptions, result: TurnResult[None]) -> str | None:
    """Return the reason why the final message does not match the output schema. None if it matches, or if there is no
    schema.
    """
    if options.output_schema is None or not result.completed:
        return None
    return await options.output_schema.mismatch(result.final_message or "")


def _unwritten(options: ExecOptions, result: TurnResult[None]) -> str | None:
    """Write the final message to its file. Return the reason if that failed; otherwise None."""
    if options.last_message is None:
        return None
    try:
        options.last_message.write(result.final_message or "")
    except OSError as error:
        return f"cannot write {options.last_message.path}: {error.strerror or error}"
    return None


async def _thread(server: AppServer, options: ExecOptions) -> ThreadHandle:
    settings, origin = OpenOptions(cwd=options.cwd, **options.thread), options.origin
    stored = await command_line.newest_thread(server, options.cwd) if origin.last else None
    resume = stored if not origin.copies else None
    if (wanted := origin.resume or resume) is not None:
        return await server.resume_thread(wanted, **settings)
    own: ThreadSource = {} if origin.source is None else {"thread_source": origin.source}
    if (copied := origin.fork or stored) is not None:
        return await server.fork_thread(copied, ephemeral=origin.ephemeral, **own, **settings)
    return await server.start_thread(ephemeral=origin.ephemeral, **own, **settings)
