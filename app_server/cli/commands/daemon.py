"""`app-server daemon …`: looks after the server that all clients share."""

from __future__ import annotations

import argparse

from app_server.cli.arguments import add_choice, add_flag, add_json, add_turn_settings
from app_server.cli.command_parser import CommandParser
from app_server.server.daemon import daemon_command


def add_arguments(parser: CommandParser) -> None:
    start = parser.add_command("start", "start the server that all clients share, unless it runs")
    start.examples = (
        "app-server daemon start",
        "app-server daemon start -c app_server.client_rights=false   # for all its clients",
    )
    _add_start_options(start)

    status = parser.add_command("status", "show its clients and what it does")
    status.examples = (
        "app-server daemon status   # exit status 1 where there is none",
        "app-server daemon status --json",
    )
    add_json(status)

    version = parser.add_command("version", "show its version, and that of this program")
    version.examples = (
        "app-server daemon version   # exit status 1 where there is none",
        "CODEX_HOME=/srv/agent app-server daemon version   # in another home",
    )
    add_json(version)

    stop = parser.add_command("stop", "end it, once the turns that run have ended")
    stop.examples = ("app-server daemon stop", "app-server daemon stop --now   # interrupt the turns")
    _add_now(stop)
    add_json(stop)

    reload = parser.add_command(
        "reload",
        "start the version that is installed now in its place; the old one leaves with its last client",
    )
    reload.examples = (
        "app-server daemon reload   # after an upgrade; says how many clients still use the old one",
        "app-server daemon reload --now   # end the old one at once, with its turns",
    )
    _add_now(reload)
    add_json(reload)

    restart = parser.add_command(
        "restart", "end it, and start another, which does not wait for the turns of the old one"
    )
    restart.examples = (
        "app-server daemon restart   # its clients see the end of it",
        "app-server daemon restart --now   # interrupt the turns",
    )
    _add_now(restart)
    _add_start_options(restart)

    unit = parser.add_command("unit", "print a unit with which a service manager starts it")
    unit.arguments = "MANAGER"
    unit.examples = ("app-server daemon unit systemd", "app-server daemon unit launchd")
    add_choice(unit, "manager", metavar="MANAGER", help="the service manager", words=("systemd", "launchd"))


def _add_now(parser: CommandParser) -> None:
    add_flag(parser, "--now", help="interrupt the turns that run")


def _add_start_options(parser: CommandParser) -> None:
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="listen there, too: unix:///PATH or ws://127.0.0.1:PORT",
    )
    add_json(parser)
    add_turn_settings(parser)


def run(args: argparse.Namespace) -> int:
    return daemon_command.run_daemon(args.command.partition(" ")[2], vars(args))
