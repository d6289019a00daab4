"""Commands that serve: `app-server`, which is what no command means, `acp`, `proxy`; and `daemon`, which looks after
the server that all clients share.
"""

from __future__ import annotations

import argparse
import os
from typing import Final

from app_server.commands.options import (
    Subcommand,
    add_choice,
    add_server_options,
    add_turn_settings,
    no_arguments,
)


def _add_proxy_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("api", nargs="?", choices=("acp",), help="the Agent Client Protocol")
    parser.add_argument(
        "--sock", metavar="PATH", help="the server that listens there; without it, that of the home"
    )
    parser.add_argument("--no-start", action="store_true", help="fail where there is no server")
    parser.add_argument(
        "--all-threads", action="store_true", help="tell the client of threads that others opened, too"
    )
    add_turn_settings(parser)


def _proxy(args: argparse.Namespace) -> int:
    from app_server.proxy.proxy_command import run_proxy  # noqa: PLC0415  as light as where it is run without this

    return run_proxy(vars(args), os.environ)


def _add_start_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="listen there, too: unix:///PATH or ws://127.0.0.1:PORT",
    )
    add_turn_settings(parser)


def _add_status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_stop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="interrupt the turns that run")


def _add_restart_arguments(parser: argparse.ArgumentParser) -> None:
    _add_stop_arguments(parser)
    _add_start_arguments(parser)


def _add_unit_arguments(parser: argparse.ArgumentParser) -> None:
    add_choice(parser, "manager", "MANAGER", "the service manager", ("systemd", "launchd"))


def _daemon(args: argparse.Namespace) -> int:
    from app_server.shared.daemon_command import run_daemon  # noqa: PLC0415  others need none of it

    return run_daemon(args.command.partition(" ")[2], vars(args))


COMMANDS: Final = (
    Subcommand(
        "app-server",
        "serve stdin and stdout; the same as no command",
        add_server_options,
        None,
        "app-server",
        "app-server -c model=gpt-5 -s read-only   # with settings that go before config.toml",
    ),
    Subcommand(
        "acp",
        "serve stdin and stdout in the Agent Client Protocol",
        add_server_options,
        None,
        "app-server acp",
        "app-server acp -m gpt-5   # with another model",
    ),
    Subcommand(
        "proxy",
        "serve stdin and stdout by one server for all clients, which is started where there is none",
        _add_proxy_arguments,
        _proxy,
        "app-server proxy",
        "app-server proxy acp   # for editors that speak the Agent Client Protocol",
        "ssh HOST app-server proxy   # with the server of another machine",
        usage="[acp]",
    ),
    Subcommand(
        "daemon start",
        "start the server that all clients share, unless it runs",
        _add_start_arguments,
        _daemon,
        "app-server daemon start",
        "app-server daemon start -c app_server.client_rights=false   # for all its clients",
    ),
    Subcommand(
        "daemon status",
        "show its clients and what it does",
        _add_status_arguments,
        _daemon,
        "app-server daemon status   # exit status 1 where there is none",
        "app-server daemon status --json",
    ),
    Subcommand(
        "daemon version",
        "show its version, and that of this program",
        no_arguments,
        _daemon,
        "app-server daemon version   # exit status 1 where there is none",
        "CODEX_HOME=/srv/agent app-server daemon version   # in another home",
    ),
    Subcommand(
        "daemon stop",
        "end it, once the turns that run have ended",
        _add_stop_arguments,
        _daemon,
        "app-server daemon stop",
        "app-server daemon stop --now   # interrupt the turns",
    ),
    Subcommand(
        "daemon reload",
        "replace it by the version that is installed now; its clients stay connected",
        _add_stop_arguments,
        _daemon,
        "app-server daemon reload   # after an upgrade; waits until no turn runs",
        "app-server daemon reload --now   # interrupt the turns",
    ),
    Subcommand(
        "daemon restart",
        "end it, and start another, which does not wait for the turns of the old one",
        _add_restart_arguments,
        _daemon,
        "app-server daemon restart   # its clients see the end of it",
        "app-server daemon restart --now   # interrupt the turns",
    ),
    Subcommand(
        "daemon unit",
        "print a unit with which a service manager starts it",
        _add_unit_arguments,
        _daemon,
        "app-server daemon unit systemd",
        "app-server daemon unit launchd",
        usage="MANAGER",
    ),
)
