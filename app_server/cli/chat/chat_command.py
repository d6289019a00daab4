"""Runs `app-server chat`: in a terminal, or in plain lines if stdin or stdout is not a terminal."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from app_server.cli.chat import chat_conversation, plain_chat, terminal_chat
from app_server.cli.demo.workspace import demo_surroundings
from app_server.client import command_line
from app_server.client.failures import AppServerError, ServerEnded
from app_server.client.link import OWN_COMMAND, SubprocessConnector, shared_server
from app_server.server.bootstrap.launch import parse_launch
from app_server.server.bootstrap.standard_streams import cancel_on_interrupt, complain

MISSING_EXTRA = "prompt_toolkit and rich are not installed"
INSTALL_EXTRA = "pip install 'app-server-agent[chat]' where app-server is installed"


def run_chat(args: argparse.Namespace) -> int:
    status = command_line.FAILED
    cancel_on_interrupt()
    try:
        status = anyio.run(_chat, args)
    except* (AppServerError, command_line.InvalidCommandLine) as errors:
        for error in command_line.single_errors(errors):
            advice = "`app-server doctor` looks for the reason" if isinstance(error, ServerEnded) else ""
            if isinstance(error, command_line.InvalidCommandLine):
                status, advice = command_line.USAGE, error.advice
            complain("app-server chat", command_line.printable(str(error)), advice)
    return status


async def _chat(args: argparse.Namespace) -> int:
    interrupts = Interrupts()
    typed = sys.stdin is not None and sys.stdin.isatty()
    terminal = typed and sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not args.plain
    try:
        in_plain_lines = partial(plain_chat.in_plain_lines, interrupts=interrupts)
        frontend = terminal_chat.in_terminal if terminal else in_plain_lines
        console = chat_conversation.chat_console(terminal=terminal)
    except ImportError:  # these modules need the extra
        raise command_line.InvalidCommandLine(MISSING_EXTRA, INSTALL_EXTRA) from None
    opening = chat_conversation.opening_of(args)
    ended_by: list[int] = []
    async with _server_and_home(args) as (connector, cwd, home), anyio.create_task_group() as group:
        # In a terminal Ctrl-C is a key, so it is no signal.
        await group.start(
            command_line.cancel_on_signal,
            group.cancel_scope,
            command_line.ENDING[1:] if terminal else command_line.ENDING,
            ended_by.append,
            interrupts.handled,
        )
        await chat_conversation.chat_session(connector, console, frontend, cwd, home, opening)
        group.cancel_scope.cancel()
    return command_line.SIGNALLED + ended_by[0] if ended_by else 0


class Interrupts:
    """Ctrl-C as a signal. The frontend can report that it has ended something else than the chat."""

    def __init__(self) -> None:
        self.on_interrupt: Callable[[], bool] = lambda: False

    def handled(self, number: int) -> bool:
        """Return whether the frontend has handled a signal."""
        return number == signal.SIGINT and self.on_interrupt()


@asynccontextmanager
async def _server_and_home(
    args: argparse.Namespace,
) -> AsyncIterator[tuple[SubprocessConnector, Path, Path | None]]:
    """Yield a connector, the folder to work in, and the home for the history of entered lines, if there is one. Raises
    AppServerError, InvalidCommandLine.
    """
    try:
        launch = parse_launch(vars(args), os.environ)
    except ValueError as error:  # an invalid limit in the environment
        raise command_line.InvalidCommandLine(str(error)) from None
    command = (*OWN_COMMAND, *launch.words())
    if args.demo:
        async with demo_surroundings(os.environ) as workspace:
            cwd = workspace.repository
            yield SubprocessConnector(command=command, environment=workspace.environment, cwd=cwd), cwd, None
        return
    cwd = command_line.working_folder(args.cd)
    if args.remote is not None:
        words = launch.words()
        yield (
            shared_server(args.remote or None, options=words, environment=os.environ, cwd=cwd),
            cwd,
            launch.home,
        )
        return
    yield SubprocessConnector(command=command, environment=os.environ, cwd=cwd), cwd, launch.home
