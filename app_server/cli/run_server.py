"""Starts a server by the options of its command line: on stdin and stdout, or at the addresses of `--listen`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from app_server.server.bootstrap import server_process
from app_server.server.bootstrap.standard_streams import complain
from app_server.server.daemon import daemon_process
from app_server.server.proxy import spawn

FOR_PEOPLE = """\
app-server: this is a server: editors and other programs start it and speak JSON-RPC with it over stdin and stdout.
To talk to it yourself, end it with Ctrl-D and type: app-server chat (or app-server exec "a question", or --help)"""


def serve(options: Mapping[str, Any]) -> int:
    """Serve with the given options, by their names, until stopped; return the exit status."""
    if not all(each in ("stdio", "stdio://") for each in options.get("listen", ())):
        try:
            startup = spawn.startup_of(options.get("startup"), os.environ)
        except ValueError as error:
            complain("app-server", str(error))
            return 2
        return daemon_process.serve_shared(options, startup)
    if os.isatty(0):
        print(FOR_PEOPLE, file=sys.stderr)  # noqa: T201
    return server_process.serve_stdio(options)
