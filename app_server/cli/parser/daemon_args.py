"""Arguments of commands that look after the server that all clients share: `daemon`."""

from __future__ import annotations

import argparse
from typing import Final

from app_server.cli.parser.arguments import JSON, TURN_SETTINGS, Subcommand, choice, flag, option


def _daemon(args: argparse.Namespace) -> int:
    from app_server.server.daemon.daemon_command import run_daemon  # noqa: PLC0415  others need none of it

    return run_daemon(args.command.partition(" ")[2], vars(args))


LISTEN: Final = option(
    "--listen",
    action="append",
    default=[],
    metavar="ADDRESS",
    help="listen there, too: unix:///PATH or ws://127.0.0.1:PORT",
)
NOW: Final = flag("--now", "interrupt the turns that run")

COMMANDS: Final = (
    Subcommand(
        "daemon start",
        "start the server that all clients share, unless it runs",
        [
            LISTEN,
            JSON,
            *TURN_SETTINGS,
        ],
        _daemon,
        "app-server daemon start",
        "app-server daemon start -c app_server.client_rights=false   # for all its clients",
    ),
    Subcommand(
        "daemon status",
        "show its clients and what it does",
        [JSON],
        _daemon,
        "app-server daemon status   # exit status 1 where there is none",
        "app-server daemon status --json",
    ),
    Subcommand(
        "daemon version",
        "show its version, and that of this program",
        [JSON],
        _daemon,
        "app-server daemon version   # exit status 1 where there is none",
        "CODEX_HOME=/srv/agent app-server daemon version   # in another home",
    ),
    Subcommand(
        "daemon stop",
        "end it, once the turns that run have ended",
        [NOW, JSON],
        _daemon,
        "app-server daemon stop",
        "app-server daemon stop --now   # interrupt the turns",
    ),
    Subcommand(
        "daemon reload",
        "start the version that is installed now in its place; the old one leaves with its last client",
        [NOW, JSON],
        _daemon,
        "app-server daemon reload   # after an upgrade; says how many clients still use the old one",
        "app-server daemon reload --now   # end the old one at once, with its turns",
    ),
    Subcommand(
        "daemon restart",
        "end it, and start another, which does not wait for the turns of the old one",
        [
            NOW,
            LISTEN,
            JSON,
            *TURN_SETTINGS,
        ],
        _daemon,
        "app-server daemon restart   # its clients see the end of it",
        "app-server daemon restart --now   # interrupt the turns",
    ),
    Subcommand(
        "daemon unit",
        "print a unit with which a service manager starts it",
        [choice("manager", "MANAGER", "the service manager", ("systemd", "launchd"))],
        _daemon,
        "app-server daemon unit systemd",
        "app-server daemon unit launchd",
        usage="MANAGER",
    ),
)
