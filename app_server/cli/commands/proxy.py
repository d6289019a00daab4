"""`app-server proxy`: serves stdin and stdout by the shared server."""

from __future__ import annotations

import argparse
import os

from app_server.cli.arguments import add_declared, add_turn_settings
from app_server.cli.command_parser import CommandParser
from app_server.server.proxy import proxy_command
from app_server.server.proxy.server_options import PROXY


def add_arguments(parser: CommandParser) -> None:
    parser.arguments, parser.repeats_name = "[acp]", True
    parser.examples = (
        "app-server proxy",
        "app-server proxy acp   # for editors that speak the Agent Client Protocol",
        "ssh HOST app-server proxy   # with the server of another machine",
    )
    parser.add_argument("api", nargs="?", choices=("acp",), help="the Agent Client Protocol")
    add_declared(parser, PROXY)
    add_turn_settings(parser)


def run(args: argparse.Namespace) -> int:
    return proxy_command.run_proxy(vars(args), os.environ)
