"""`app-server`, which is what no command means, and `app-server acp`."""

from __future__ import annotations

import argparse
from typing import Final

from app_server.cli import startup_options
from app_server.cli.arguments import add_server_options
from app_server.cli.command_parser import CommandParser
from app_server.cli.run_server import serve
from app_server.server.proxy.server_options import SERVING

EXAMPLES: Final = {
    "app-server": (
        "app-server",
        "app-server -c model=gpt-5 -s read-only   # with settings that go before config.toml",
    ),
    "acp": ("app-server acp", "app-server acp -m gpt-5   # with another model"),
}


def add_arguments(parser: CommandParser) -> None:
    parser.examples = EXAMPLES[parser.name]
    parser.serves = parser.repeats_name = True
    add_server_options(parser)


def run(args: argparse.Namespace) -> int:
    options = vars(args)
    if any(each.name in options for each in SERVING if each.before_start):
        status = startup_options.checked_status(options)
        if status is not None:
            return status
    return serve(options)
