"""Arguments of commands that serve stdin and stdout by the shared server: `proxy`."""

from __future__ import annotations

import argparse
import os
from typing import Final

from app_server.cli.parser.arguments import TURN_SETTINGS, Subcommand, flag, option


def _proxy(args: argparse.Namespace) -> int:
    from app_server.server.proxy.proxy_command import run_proxy  # noqa: PLC0415  as light as where it is run without this

    return run_proxy(vars(args), os.environ)


COMMANDS: Final = (
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
)
