"""Runs the operation of a command on a server in this process: connects, prints errors, returns the exit status."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import anyio

from app_server.client.command_line import (
    FAILED,
    INTERRUPTED,
    USAGE,
    EarlyWarnings,
    InvalidCommandLine,
    printable,
    reason,
    until_signal,
)
from app_server.client.failures import AppServerError
from app_server.client.request_client import RequestClient, request_client
from app_server.engine.config.config_values import CliOverrides, SettingsSource
from app_server.in_process import InProcessConnector
from app_server.server.bootstrap.launch import parse_launch, server_home, working_directory
from app_server.server.bootstrap.overrides import cli_overrides
from app_server.server.bootstrap.server_process import end_loading
from app_server.server.bootstrap.standard_streams import check_stdout, complain
from app_server_protocol.encoding import Json

OneShot = Callable[[RequestClient, argparse.Namespace], Awaitable[None]]
"""Operation of a command. Raises AppServerError, InvalidCommandLine."""

S = TypeVar("S")

Connect = Callable[[InProcessConnector, Callable[[str], object]], AbstractAsyncContextManager[S]]
"""Function that connects to a server, and passes on its warnings."""

Run = Callable[[argparse.Namespace], int]
"""Function that runs a command, and returns the exit status."""


class CommandFailed(AppServerError):
    """The command could not be carried out. The text says why, and `advice` what to do."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice


def one_shot(command: OneShot) -> Run:
    """Return the function that runs an operation as a command."""
    return lambda args: run_one_shot(args, command)


def run_one_shot(args: argparse.Namespace, command: OneShot) -> int:
    """Run a command that only sends requests. Return the exit status."""
    return run_connected(args, request_client, command)


def run_connected(
    args: argparse.Namespace,
    connect: Connect[S],
    command: Callable[[S, argparse.Namespace], Awaitable[None]],
) -> int:
    """Run a command on a server with the settings of its command line. Return the exit status."""
    check_stdout()
    try:
        overrides = cli_overrides(parse_launch(vars(args), os.environ))
    except ValueError as error:  # an invalid limit in the environment
        complain(name_of(args), str(error))
        return USAGE
    status = anyio.run(until_signal, lambda: _done(args, connect, overrides, command))
    return INTERRUPTED if status is None else status


async def _done(
    args: argparse.Namespace,
    connect: Connect[S],
    overrides: CliOverrides,
    command: Callable[[S, argparse.Namespace], Awaitable[None]],
) -> int:
    warnings = EarlyWarnings(lambda text: eprint(f"warning: {text}"))
    try:
        async with connect(InProcessConnector(overrides=overrides), warnings.add) as server:
            end_loading()
            await command(server, args)
        warnings.release()
        return 0
    except InvalidCommandLine as error:
        warnings.release()
        return misused(args, error)
    except AppServerError as error:
        why = reason(error)
        warnings.release(why)
        complain(name_of(args), why, error.advice if isinstance(error, CommandFailed) else "")
        return FAILED


def settings_place(overrides: CliOverrides) -> SettingsSource:
    """Return the settings of this process, in which these override the user's file."""
    home, cwd = server_home(os.environ), working_directory()
    return SettingsSource(home=home, cwd=cwd, cli=overrides, environment=os.environ)


def misused(args: argparse.Namespace, error: InvalidCommandLine) -> int:
    """Report an error of the command line, and return its exit status."""
    complain(name_of(args), str(error), error.advice)
    return USAGE


def name_of(args: argparse.Namespace) -> str:
    return f"app-server {args.command}"


def eprint(text: str) -> None:
    """Print a message that is not part of the result."""
    print(printable(text), file=sys.stderr)  # noqa: T201


def show(text: str) -> None:
    """Print lines of the result. On a terminal, control characters are replaced."""
    print(printable(text) if sys.stdout.isatty() else text)  # noqa: T201


def show_json(value: Json) -> None:
    show(json.dumps(value, indent=2, ensure_ascii=False))


def agreed(question: str) -> bool:
    """Ask the user at the terminal and return the answer. Raises InvalidCommandLine if there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidCommandLine("nobody can be asked here", "add --yes")
    print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.readline().strip().lower() in ("y", "yes")
