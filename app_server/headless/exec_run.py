"""Runs `app-server exec`: one turn, its report, and the exit status.

Nobody is there to be asked: the approval policy is `never` unless the command line names another one, and then every
question is declined. The exit status is 0 only if the turn completed, and its message matches the schema.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TextIO

import anyio

from app_server.client.app_server import AppServer
from app_server.client.command_line import (
    FAILED,
    INTERRUPTED,
    USAGE,
    InvalidCommandLine,
    cancel_on_signal,
    printable,
)
from app_server.client.failures import AppServerError
from app_server.client.feeds import OnWarning
from app_server.client.thread_handle import ThreadHandle
from app_server.client.turn_handle import TurnResult
from app_server.demo.demo_model import demo_surroundings
from app_server.demo.workspace import DemoSetupError
from app_server.headless.exec_options import ExecOptions, exec_options
from app_server.headless.exec_report import JsonReport, TextReport, TurnReport
from app_server.standard_streams import check_stdout
from protocol.structs import replace

Connect = Callable[[ExecOptions, OnWarning], AbstractAsyncContextManager[AppServer]]
Turn = Callable[[ExecOptions, TurnReport, TextIO], Awaitable[int]]
"""A whole turn; gives the exit status."""


def run_exec(args: argparse.Namespace) -> int:
    check_stdout()
    try:
        options = exec_options(args, sys.stdin, sys.stderr)
    except InvalidCommandLine as error:
        print(f"app-server exec: {error}", file=sys.stderr)  # noqa: T201
        return USAGE
    report: TurnReport = JsonReport(sys.stdout) if options.json else TextReport(sys.stdout, sys.stderr)
    turn = _demonstrated if args.demo else reported_status
    return anyio.run(_until_signal, turn, options, report)


async def _until_signal(turn: Turn, options: ExecOptions, report: TurnReport) -> int:
    status = INTERRUPTED
    async with anyio.create_task_group() as group:
        await group.start(cancel_on_signal, group.cancel_scope)
        status = await turn(options, report, sys.stderr)
        group.cancel_scope.cancel()
    return status


async def _demonstrated(options: ExecOptions, report: TurnReport, stderr: TextIO) -> int:
    """`reported_status` with a scripted model, in a temporary folder."""
    try:
        async with demo_surroundings(os.environ) as workspace:

            def connect(
                options: ExecOptions, on_warning: OnWarning
            ) -> AbstractAsyncContextManager[AppServer]:
                return AppServer.spawn(
                    options.command,
                    environment=workspace.environment,
                    cwd=workspace.repository,
                    on_warning=on_warning,
                )

            return await reported_status(replace(options, cwd=workspace.repository), report, stderr, connect)
    except DemoSetupError as error:
        print(f"app-server exec: {error}", file=stderr)
        return FAILED


def _spawned(options: ExecOptions, on_warning: OnWarning) -> AbstractAsyncContextManager[AppServer]:
    return AppServer.spawn(options.command, cwd=options.cwd, on_warning=on_warning)


async def reported_status(
    options: ExecOptions, report: TurnReport, stderr: TextIO, connect: Connect = _spawned
) -> int:
    """The exit status of a whole turn. Why there was none is written to stderr."""
    try:
        return await _run_turn(options, report, connect)
    except AppServerError as error:
        print(f"app-server exec: {printable(str(error))}", file=stderr)
        return FAILED


async def _run_turn(options: ExecOptions, report: TurnReport, connect: Connect) -> int:
    """Raises AppServerError."""
    async with connect(options, report.warning) as server:
        thread = await _thread(server, options)
        report.opened(thread.opened)
        async with thread.stream(options.prompt, **options.turn) as stream:
            async for event in stream:
                report.event(event)
            result = await stream.result()
    problems = [_unwritten(options, result), options.mismatch(result) if result.completed else None]
    report.ended(result)
    for problem in filter(None, problems):
        report.problem(problem)
    return 0 if result.completed and not any(problems) else FAILED


def _unwritten(options: ExecOptions, result: TurnResult[None]) -> str | None:
    """Why the final message could not be written to its file."""
    if options.last_message is None:
        return None
    try:
        options.last_message.write(result.final_message or "")
    except OSError as error:
        return f"cannot write {options.last_message.path}: {error.strerror or error}"
    return None


async def _thread(server: AppServer, options: ExecOptions) -> ThreadHandle:
    settings = options.thread
    wanted = options.resume
    if options.resume_last:
        async for stored in server.threads(cwd=options.cwd, page_size=1):
            wanted = stored.id
            break
        else:
            raise AppServerError(f"no stored thread of {options.cwd}")
    if wanted is not None:
        return await server.resume_thread(wanted, **settings)
    return await server.start_thread(ephemeral=options.ephemeral, **settings)
