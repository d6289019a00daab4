"""`app-server demo`: plays a conversation with a scripted model."""

from __future__ import annotations

import argparse

from app_server.cli.arguments import add_flag
from app_server.cli.chat import chat_command, demo_chat
from app_server.cli.command_parser import CommandParser
from app_server.server.bootstrap.standard_streams import complain


def add_arguments(parser: CommandParser) -> None:
    parser.examples = ("app-server demo", "app-server demo --yes   # approve what is asked")
    add_flag(parser, "--yes", help="approve what is asked instead of asking you")


def run(args: argparse.Namespace) -> int:
    try:
        run_demo = demo_chat.run_demo
    except ImportError:  # it needs an extra
        complain("app-server demo", chat_command.MISSING_EXTRA, chat_command.INSTALL_EXTRA)
        return 2
    return run_demo(yes=args.yes)
