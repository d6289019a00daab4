"""`app-server logout`: forgets the login."""

from __future__ import annotations

from app_server.cli.arguments import add_settings
from app_server.cli.command_parser import CommandParser
from app_server.cli.commands import login

run = login.run


def add_arguments(parser: CommandParser) -> None:
    parser.examples = ("app-server logout", "CODEX_HOME=/srv/agent app-server logout   # in another home")
    add_settings(parser)
