"""Commands that serve: `app-server`, which is the default, `acp`, `proxy`; and `daemon`, which manages the server that
all clients share.
"""

from __future__ import annotations

import argparse
import os
from typing import Final

from app_server.cli.parser.arguments import (
    JSON,
    SERVER_OPTIONS,
    TURN_SETTINGS,
    Subcommand,
    choice,
    flag,
    option,
)


def _proxy(args: argparse.Namespace) -> int:
    from app_server.server.proxy.proxy_command import run_proxy  # noqa: PLC0415  as light as where it is run without this

    return run_proxy(vars(args), os.environ)


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
        "app-server",
        "serve stdin and stdout; the same as no command",
        SERVER_OPTIONS,
        None,
        "app-server",
        "app-server -c model=gpt-5 -s read-only   # with settings that go before config.toml",
    ),
    Subcommand(
        "acp",
        "serve stdin and stdout in the Agent Client Protocol",
        SERVER_OPTIONS,
        None,
        "app-server acp",
        "app-server acp -m gpt-5   # with another model",
    ),
    Subcommand(
        "proxy",
        "serve stdin and stdout by one server for all clients, which is started where there is none",
        [
            option("api", nargs="?", choices=("acp",), help="the Agent Client Protocol"),
            option(
                "--sock", metavar="PATH", help="the server that listens there; without it, that of the home"
            ),
            flag("--no-start", "fail where there is no server"),
            flag("--all-threads", "tell the client of threads that others opened, too"),
            *TURN_SETTINGS,
        ],
        _proxy,
        "app-server proxy",
        "app-server proxy acp   # for editors that speak the Agent Client Protocol",
        "ssh HOST app-server proxy   # with the server of another machine",
        usage="[acp]",
    ),
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
