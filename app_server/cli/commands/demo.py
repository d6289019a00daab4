"""`app-server demo`: plays a conversation with a scripted model."""

from __future__ import annotations

import argparse

from app_server.cli.arguments import add_flag
from app_server.cli.command_parser import CommandParser


def add_arguments(parser: CommandParser) -> None:
    parser.examples = ("app-server demo", "app-server demo --yes   # approve what is asked")
    add_flag(parser, "--yes", help="approve what is asked instead of asking you")


def run(args: argparse.Namespace) -> int:
    from app_server.cli.demo.play import run_demo  # noqa: PLC0415  takes a while

    return run_demo(yes=args.yes)
