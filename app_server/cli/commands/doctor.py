"""`app-server doctor`: checks this machine and the configuration."""

from __future__ import annotations

import argparse
import os

from app_server.cli.arguments import add_flag, add_json, add_turn_settings, log_errors_only
from app_server.cli.command_parser import CommandParser
from app_server.cli.doctor import doctor_command
from app_server.server.bootstrap import full_server, launch
from app_server.server.bootstrap.standard_streams import cancel_on_interrupt, complain


def add_arguments(parser: CommandParser) -> None:
    parser.examples = (
        "app-server doctor",
        "app-server doctor --online   # ask providers and MCP servers over the network, too",
    )
    add_flag(parser, "--online", help="ask providers and MCP servers over the network, too")
    add_json(parser)
    add_turn_settings(parser)


def run(args: argparse.Namespace) -> int:
    try:
        options = launch.parse_launch(vars(args), os.environ)
    except ValueError as error:  # an invalid limit in the environment
        complain("app-server doctor", str(error))
        return 2
    log_errors_only()  # the checks report what the log would contain
    cancel_on_interrupt()
    return doctor_command.run_doctor(full_server.settings_of(options), online=args.online, json=args.json)
