"""`app-server sandbox`: runs one command in the sandbox."""

from __future__ import annotations

import argparse

from app_server.cli.admin import sandbox_command
from app_server.cli.arguments import add_cd, add_settings, prepare_own_server
from app_server.cli.command_parser import CommandParser


def add_arguments(parser: CommandParser) -> None:
    parser.arguments = "-- COMMAND [ARG...]"
    parser.examples = (
        "app-server sandbox -- touch /etc/x   # refused, with the exit status of the command",
        "app-server sandbox -P :read-only -- make test",
    )
    parser.add_argument("command_words", nargs="*", metavar="COMMAND ARG", help="the command")
    add_cd(parser)
    parser.add_argument(
        *("-P", "--permission-profile"),
        metavar="NAME",
        help="a permission profile in place of the usual sandbox",
    )
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    prepare_own_server()
    return sandbox_command.run_in_sandbox(args)
