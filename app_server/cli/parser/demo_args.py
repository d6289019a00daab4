"""Arguments of commands that play a conversation with a scripted model: `demo`."""

from __future__ import annotations

import argparse
from typing import Final

from app_server.cli.parser.arguments import Subcommand, flag


def _demo(args: argparse.Namespace) -> int:
    from app_server.cli.demo.play import run_demo  # noqa: PLC0415  takes a while

    return run_demo(yes=args.yes)


COMMANDS: Final = (
    Subcommand(
        "demo",
        "play a conversation with a scripted model: no key, no network",
        [flag("--yes", "approve what is asked instead of asking you")],
        _demo,
        "app-server demo",
        "app-server demo --yes   # approve what is asked",
    ),
)
