"""Commands about the server that all clients share: `proxy`."""

from __future__ import annotations

import argparse
import os
from typing import Final

from app_server.commands.options import CommandCode, add_turn_settings


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


CODE: Final = {"proxy": CommandCode(_add_proxy_arguments, _proxy)}
