"""Arguments of commands that show what a server and its client say: `inspect`."""

from __future__ import annotations

import argparse
from typing import Final

from app_server.cli.parser.arguments import Subcommand, flag, option


def _inspect(args: argparse.Namespace) -> int:
    from app_server.cli.inspect.inspect_command import run_inspector  # noqa: PLC0415  takes a while

    return run_inspector(args)


COMMANDS: Final = (
    Subcommand(
        "inspect",
        "show, or record, what a server and its client say",
        [
            option("--record", metavar="FILE", help="record the session; no page, unless --page is given"),
            flag("--page", "show the page, though the session is recorded"),
            option("--open", metavar="FILE", help="show a session that was saved, until interrupted"),
            option("--replay", metavar="FILE", help="play the client of a session that was saved; no page"),
            option("--url-file", metavar="FILE", help="write the address of the page there, too"),
            option("server", nargs="*", metavar="-- SERVER ARG", help="the server, and its arguments"),
        ],
        _inspect,
        "app-server inspect -- app-server   # a page with the live stream",
        "app-server inspect --record session.jsonl -- app-server   # a file, and no page",
        usage="-- SERVER [ARG...]",
    ),
)
