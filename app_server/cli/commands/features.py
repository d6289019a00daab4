"""`app-server features list`: the features, and which are on."""

from __future__ import annotations

import argparse

from app_server.cli.admin import debug_commands
from app_server.cli.arguments import add_settings, prepare_own_server
from app_server.cli.command_parser import CommandParser


def add_arguments(parser: CommandParser) -> None:
    listing = parser.add_command("list", "list the features, and which are on")
    listing.examples = (
        "app-server features list",
        "app-server features list --enable web_search_request   # as threads would have them with it",
    )
    add_settings(listing)


def run(args: argparse.Namespace) -> int:
    prepare_own_server()
    return debug_commands.COMMANDS[args.command](args)
