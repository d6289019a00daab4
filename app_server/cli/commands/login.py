"""`app-server login` and `login status`."""

from __future__ import annotations

import argparse

from app_server.cli.admin import log_in, login_commands
from app_server.cli.arguments import add_flag, add_settings, prepare_own_server
from app_server.cli.command_parser import CommandParser


def add_arguments(parser: CommandParser) -> None:
    parser.examples = (
        "app-server login   # in the browser of this machine",
        "app-server login --device-auth   # with a code, in a browser elsewhere",
        "printenv OPENAI_API_KEY | app-server login --with-api-key   # with a key from stdin",
    )
    ways = parser.add_mutually_exclusive_group()
    add_flag(ways, "--with-api-key", help="read an API key from stdin")
    add_flag(ways, "--device-auth", help="with a code, in a browser on another machine")
    add_flag(ways, "--no-browser", help="only print the address of the page")
    add_settings(parser)

    status = parser.add_command("status", "say whether there is a login")
    status.examples = (
        "app-server login status   # exit status 1 where there is none",
        "CODEX_HOME=/srv/agent app-server login status   # in another home",
    )
    add_settings(status)


def run(args: argparse.Namespace) -> int:
    prepare_own_server()
    if args.command == "login":
        return log_in.run_login(args)
    return login_commands.COMMANDS[args.command](args)
