"""`app-server sandbox`: runs one command in the sandbox of the settings, with its own stdin, stdout and stderr, and
without a model.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio

from app_server.cli.admin.with_events import run_with_events
from app_server.client.app_server import AppServer
from app_server.client.command_line import InvalidCommandLine, working_folder
from app_server.client.event_stream import EventSubscription
from app_server.client.events import ServerEvent
from app_server.client.failures import RequestRefused
from app_server_protocol.v2 import commands as wire

OWN_NAME: Final = "sandbox"
PIECE: Final = 1 << 16


def run_in_sandbox(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    ended: list[int] = []
    status = run_with_events(args, partial(_run, told=ended.append))
    return ended[0] if ended else status


async def _run(server: AppServer, args: argparse.Namespace, *, told: Callable[[int], None]) -> None:
    if not args.command_words:
        raise InvalidCommandLine("no command is named", "app-server sandbox -- COMMAND [ARG...]")
    params = wire.CommandExecParams(
        command=tuple(args.command_words),
        process_id=OWN_NAME,
        stream_stdin=True,
        stream_stdout_stderr=True,
        disable_output_cap=True,
        disable_timeout=True,
        cwd=str(working_folder(args.cd)),
        permission_profile=args.permission_profile,
    )
    async with server.events() as events, anyio.create_task_group() as group:
        group.start_soon(_show, events)
        group.start_soon(_feed, server)
        try:
            ended = await server.request(wire.COMMAND_EXEC, params)
            await events.read_up()
        finally:
            group.cancel_scope.cancel()
    told(ended.exit_code)


async def _show(events: EventSubscription[ServerEvent]) -> None:
    """Write output as it arrives. A slow reader of it delays the command, because the loop waits for the reader."""
    streams = {"stdout": sys.stdout.fileno(), "stderr": sys.stderr.fileno()}
    async for event in events:
        if isinstance(event, wire.CommandExecOutputDeltaNotification):
            data = memoryview(base64.b64decode(event.delta_base64))
            while data:
                data = data[os.write(streams[event.stream], data) :]


async def _feed(server: AppServer) -> None:
    """Pass on stdin up to its end."""
    at = sys.stdin.fileno()
    while True:
        try:
            await anyio.wait_readable(at)
        except (OSError, ValueError):
            await anyio.lowlevel.checkpoint()  # a file, which is always readable
        data = os.read(at, PIECE)
        given = base64.b64encode(data).decode() if data else None
        params = wire.CommandExecWriteParams(process_id=OWN_NAME, delta_base64=given, close_stdin=not data)
        try:
            await server.request(wire.COMMAND_EXEC_WRITE, params)
        except RequestRefused:
            return  # the command has ended, or closed its stdin
        if not data:
            return
