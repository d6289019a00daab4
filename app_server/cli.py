"""The command line, compatible with `codex app-server`: lenient, and fast to parse.

Owns argv and the exit code. An unknown feature causes a warning, not an error.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app_server.logs import set_up_logging
from app_server.standard_streams import cancel_on_interrupt, ended_in_order, prepare_for_text, replace_closed

if TYPE_CHECKING:
    import argparse

FOR_PEOPLE = """\
app-server: this is a server: editors and other programs start it and speak JSON-RPC with it over stdin and stdout.
To talk to it yourself, end it with Ctrl-D and type: app-server chat (or app-server exec "a question", or --help)"""


def main(argv: Sequence[str] | None = None) -> int:
    replace_closed()
    words = _without_alias(sys.argv[1:] if argv is None else argv)
    if words in ([], ["acp"]):  # as editors start it: nothing to parse
        set_up_logging(os.environ)
        return _serve({"command": "acp"} if words else {})
    prepare_for_text()
    return ended_in_order("app-server", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    from app_server.command_line import parser  # noqa: PLC0415  without arguments, a server needs none of it

    args = parser().parse_args(words)
    set_up_logging(os.environ)
    match args.command:
        case "demo":
            from app_server.demo.play import run_demo  # noqa: PLC0415  a server needs none of it

            return run_demo(yes=args.yes)
        case "doctor":
            return _doctor(args)
        case "generate-json-schema" | "generate-ts":
            return _generate(args.command, Path(args.out), experimental=args.experimental)
        case "inspect":
            from app_server.inspector.inspect_command import run_inspector  # noqa: PLC0415  a server needs none of it

            return run_inspector(args)
        case "chat":
            from app_server.chat.chat_command import run_chat  # noqa: PLC0415  a server needs none of it

            return run_chat(args)
        case "exec":
            return _exec(args)
        case "login":
            return _login_status()
        case _:
            return _serve(vars(args))


def _without_alias(argv: Sequence[str]) -> list[str]:
    """Remove the subcommand `app-server`, which clients pass once or twice. Serving is the default anyway, and options
    may come before and after it. What follows `--` is another program's.
    """
    own = argv.index("--") if "--" in argv else len(argv)
    return [word for word in argv[:own] if word != "app-server"] + [*argv[own:]]


def _serve(options: Mapping[str, Any]) -> int:
    """Serve with the options that were given, by their names."""
    listen = options.get("listen")
    if listen not in (None, "stdio", "stdio://"):
        print(f"app-server: cannot listen on {listen}: only stdio:// is supported", file=sys.stderr)  # noqa: T201
        return 2
    if os.isatty(0):
        print(FOR_PEOPLE, file=sys.stderr)  # noqa: T201
    from app_server.startup.process import serve_stdio  # noqa: PLC0415  `--version` and mistakes need none of it

    return serve_stdio(options)


def _exec(args: argparse.Namespace) -> int:
    from app_server.startup.process import begin_loading, guard_memory  # noqa: PLC0415  a server of its own

    begin_loading()
    guard_memory()
    from app_server.headless.exec_run import run_exec  # noqa: PLC0415  a server needs none of it

    _log_errors_only()  # the report says what the log would say
    return run_exec(args)


def _doctor(args: argparse.Namespace) -> int:
    from app_server.doctor import run_doctor  # noqa: PLC0415  a server needs none of it
    from app_server.startup.full_server import settings_of  # noqa: PLC0415
    from app_server.startup.launch import parse_launch  # noqa: PLC0415

    launch = parse_launch(vars(args), os.environ)
    _log_errors_only()  # the checks say what the log would say
    cancel_on_interrupt()
    return run_doctor(settings_of(launch), online=args.online, json=args.json)


def _log_errors_only() -> None:
    """Keep the warnings of a server in this process off stderr, unless a level was chosen."""
    if "APP_SERVER_LOG" not in os.environ:
        logging.disable(logging.WARNING)


def _login_status() -> int:
    """Return 0 where there is a login, 1 where there is none; launchers ask before they spawn a server."""
    from app_server.core.auth.home_login import read_auth  # noqa: PLC0415  a server needs none of it here
    from app_server.startup.launch import server_home  # noqa: PLC0415

    auth = read_auth(server_home(os.environ))
    if auth is None or (auth.api_key is None and auth.tokens is None):
        print("Not logged in", file=sys.stderr)  # noqa: T201
        return 1
    print("Logged in using an API key" if auth.api_key else "Logged in using ChatGPT", file=sys.stderr)  # noqa: T201
    return 0


def _generate(command: str, out: Path, *, experimental: bool) -> int:
    from protocol.export import main as export  # noqa: PLC0415  a server needs none of it

    write = export.write_schemas if command == "generate-json-schema" else export.write_typescript
    write(out, experimental=experimental)
    return 0
