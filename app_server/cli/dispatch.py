"""The command line, compatible with `codex app-server`: lenient, and fast to parse.

Owns the exit status. A server whose options were parsed already needs no argparse.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from app_server.cli import parse_command
from app_server.cli.run_server import serve
from app_server.server.bootstrap.standard_streams import (
    ended_in_order,
    prepare_for_text,
    replace_closed,
)
from app_server.server.logs import set_up_logging


def main(argv: Sequence[str], options: Mapping[str, Any] | None = None) -> int:
    """Run a command line. `options` are those of a server that `server_options.read_options` has found in it, None if
    argparse has to parse it.
    """
    replace_closed()
    if options is not None:
        set_up_logging(os.environ)
        return serve({**options, "command": options["api"]})
    prepare_for_text()
    return ended_in_order("app-server", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    args = parse_command.parse(argv)
    set_up_logging(os.environ)
    status: int = args.run(args)
    return status
