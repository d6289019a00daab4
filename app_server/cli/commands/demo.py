"""`app-server demo`: plays a conversation with a scripted model."""

from __future__ import annotations

import argparse

from app_server.cli.arguments import add_flag
from app_server.cli.command_parser import CommandParser
from app_server.server.bootstrap.standard_streams import complain


def add_arguments(parser: CommandParser) -> None:
    parser.examples = ("app-server demo", "app-server demo --yes   # approve what is asked")
    add_flag(parser, "--yes", help="approve what is asked instead of asking you")


def run(args: argparse.Namespace) -> int:
    from app_server.cli.chat.chat_command import INSTALL_EXTRA, MISSING_EXTRA  # noqa: PLC0415  takes a while

    try:
        from app_server.cli.chat.demo_chat import run_demo  # noqa: PLC0415  needs an extra
    except ImportError:
        complain("app-server demo", MISSING_EXTRA, INSTALL_EXTRA)
        return 2
    return run_demo(yes=args.yes)
