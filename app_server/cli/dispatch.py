"""The command line, compatible with `codex app-server`: lenient, and fast to parse.

Owns argv and the exit code. An unknown feature causes a warning, not an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from app_server.server.bootstrap.standard_streams import (
    complain,
    ended_in_order,
    prepare_for_text,
    replace_closed,
)
from app_server.server.logs import set_up_logging
from app_server.server.proxy.fast_argv import quick_options

FOR_PEOPLE = """\
app-server: this is a server: editors and other programs start it and speak JSON-RPC with it over stdin and stdout.
To talk to it yourself, end it with Ctrl-D and type: app-server chat (or app-server exec "a question", or --help)"""


def main(argv: Sequence[str] | None = None) -> int:
    replace_closed()
    words = list(sys.argv[1:] if argv is None else argv)
    options = quick_options(words)
    if options is not None and options["command"] is None:  # as editors and starters of shared servers run it
        set_up_logging(os.environ)
        return _serve({**options, "command": options["api"]})
    prepare_for_text()
    return ended_in_order("app-server", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    from app_server.cli.parser.arguments import OF_START  # noqa: PLC0415  the same
    from app_server.cli.parser.command_parser import parse  # noqa: PLC0415  without arguments, a server needs none of it

    command, args = parse(words)
    set_up_logging(os.environ)
    if command is not None and command.run is not None:
        return command.run(args)
    options = vars(args)
    if options.keys() & OF_START:
        from app_server.cli.parser.startup_options import checked_status  # noqa: PLC0415  most servers need none of it

        if (status := checked_status(options)) is not None:
            return status
    return _serve(options)


def _serve(options: Mapping[str, Any]) -> int:
    """Serve with the given options, by their names."""
    if not all(each in ("stdio", "stdio://") for each in options.get("listen", ())):
        from app_server.server.proxy.spawn import startup_of  # noqa: PLC0415  others need none of it

        try:
            startup = startup_of(options.get("startup"), os.environ)
        except ValueError as error:
            complain("app-server", str(error))
            return 2
        from app_server.server.daemon.daemon_process import serve_shared  # noqa: PLC0415  behind the lock

        return serve_shared(options, startup)
    if os.isatty(0):
        print(FOR_PEOPLE, file=sys.stderr)  # noqa: T201
    from app_server.server.bootstrap.server_process import serve_stdio  # noqa: PLC0415  `--version` and mistakes need none of it

    return serve_stdio(options)
