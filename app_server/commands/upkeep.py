"""Commands that look after this machine and the login: `doctor`, `completion`, `login`, `logout`."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import Final

from app_server.commands.options import (
    CommandCode,
    add_choice,
    add_settings,
    add_turn_settings,
    log_errors_only,
    no_arguments,
    serving_itself,
)
from app_server.standard_streams import cancel_on_interrupt, complain


def _add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--online", action="store_true", help="ask providers and MCP servers over the network, too"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_turn_settings(parser)


def _doctor(args: argparse.Namespace) -> int:
    from app_server.doctor import run_doctor  # noqa: PLC0415  loads the whole server
    from app_server.startup.full_server import settings_of  # noqa: PLC0415
    from app_server.startup.launch import parse_launch  # noqa: PLC0415

    try:
        launch = parse_launch(vars(args), os.environ)
    except ValueError as error:  # a limit in the environment
        complain("app-server doctor", str(error))
        return 2
    log_errors_only()  # the checks say what the log would say
    cancel_on_interrupt()
    return run_doctor(settings_of(launch), online=args.online, json=args.json)


def _login_status(args: argparse.Namespace) -> int:
    """Return 0 where there is a login, 1 where there is none; launchers ask before they spawn a server."""
    from app_server.core.auth.home_login import read_auth  # noqa: PLC0415  no other command reads it by itself
    from app_server.startup.launch import server_home  # noqa: PLC0415

    auth = read_auth(server_home(os.environ))
    if auth is None or (auth.api_key is None and auth.tokens is None):
        print("Not logged in", file=sys.stderr)  # noqa: T201
        print("→ `app-server login`, or set OPENAI_API_KEY", file=sys.stderr)  # noqa: T201
        return 1
    print("Logged in using an API key" if auth.api_key else "Logged in using ChatGPT", file=sys.stderr)  # noqa: T201
    return 0


def _add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    add_choice(parser, "shell", "SHELL", "the shell", ("bash", "zsh", "fish"))


def _completion(args: argparse.Namespace) -> int:
    from app_server.commands.completion import completion_script  # noqa: PLC0415  a library for it alone

    print(completion_script(args.whole_parser(), args.shell))  # noqa: T201
    return 0


def _add_login_arguments(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--with-api-key", action="store_true", help="read an API key from stdin")
    how.add_argument(
        "--device-auth", action="store_true", help="with a code, in a browser on another machine"
    )
    how.add_argument("--no-browser", action="store_true", help="only print the address of the page")
    add_settings(parser)


CODE: Final = {
    "doctor": CommandCode(_add_doctor_arguments, _doctor),
    "completion": CommandCode(_add_completion_arguments, _completion),
    "login": CommandCode(
        _add_login_arguments, serving_itself(lambda: import_module("app_server.errands.accounts").run_login)
    ),
    "logout": CommandCode(
        add_settings, serving_itself(lambda: import_module("app_server.errands.accounts").run_logout)
    ),
    "login status": CommandCode(no_arguments, _login_status),
}
