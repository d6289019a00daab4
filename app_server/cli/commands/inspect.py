"""`app-server inspect`: shows, or records, what a server and its client say."""

from __future__ import annotations

import argparse

from app_server.cli.arguments import add_flag
from app_server.cli.command_parser import CommandParser
from app_server.cli.inspect import inspect_command


def add_arguments(parser: CommandParser) -> None:
    parser.arguments = "-- SERVER [ARG...]"
    parser.examples = (
        "app-server inspect -- app-server   # a page with the live stream",
        "app-server inspect --record session.jsonl -- app-server   # a file, and no page",
    )
    parser.add_argument(
        "--record", metavar="FILE", help="record the session; no page, unless --page is given"
    )
    add_flag(parser, "--page", help="show the page, though the session is recorded")
    parser.add_argument("--open", metavar="FILE", help="show a session that was saved, until interrupted")
    parser.add_argument(
        "--replay", metavar="FILE", help="play the client of a session that was saved; no page"
    )
    parser.add_argument("--url-file", metavar="FILE", help="write the address of the page there, too")
    parser.add_argument("server", nargs="*", metavar="-- SERVER ARG", help="the server, and its arguments")


def run(args: argparse.Namespace) -> int:
    return inspect_command.run_inspector(args)
