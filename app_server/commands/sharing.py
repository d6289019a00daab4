"""Commands about the server that all clients share: `proxy` and those of `daemon`."""

from __future__ import annotations

import argparse
import os
from typing import Final

from app_server.commands.options import CommandCode, add_choice, add_turn_settings, no_arguments


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


CODE: Final = {
    "proxy": CommandCode(_add_proxy_arguments, _proxy),
    "daemon start": CommandCode(_add_start_arguments, _daemon),
    "daemon status": CommandCode(_add_status_arguments, _daemon),
    "daemon version": CommandCode(no_arguments, _daemon),
    "daemon stop": CommandCode(_add_stop_arguments, _daemon),
    "daemon reload": CommandCode(_add_stop_arguments, _daemon),
    "daemon restart": CommandCode(_add_restart_arguments, _daemon),
    "daemon unit": CommandCode(_add_unit_arguments, _daemon),
}
