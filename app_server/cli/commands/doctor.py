"""`app-server doctor`: checks this machine and the configuration."""

from __future__ import annotations

import argparse
import os

from app_server.cli.arguments import add_flag, add_json, add_turn_settings, log_errors_only
from app_server.cli.command_parser import CommandParser
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
    from app_server.cli.doctor.doctor_command import run_doctor  # noqa: PLC0415  loads the whole server
    from app_server.server.bootstrap.full_server import settings_of  # noqa: PLC0415
    from app_server.server.bootstrap.launch import parse_launch  # noqa: PLC0415

    try:
        launch = parse_launch(vars(args), os.environ)
    except ValueError as error:  # an invalid limit in the environment
        complain("app-server doctor", str(error))
        return 2
    log_errors_only()  # the checks report what the log would contain
    cancel_on_interrupt()
    return run_doctor(settings_of(launch), online=args.online, json=args.json)
