"""`app-server config …`: shows and changes the settings."""

from __future__ import annotations

import argparse
import os

from app_server.cli.admin import config_commands, settings_draft
from app_server.cli.arguments import add_json, add_settings, prepare_own_server
from app_server.cli.command_parser import CommandParser
from app_server.server.bootstrap.launch import server_home

KEY = "a dotted key, as in profiles.fast.model"


def add_arguments(parser: CommandParser) -> None:
    get = parser.add_command("get", "show a setting, or all that are set")
    get.arguments = "[KEY]"
    get.examples = ("app-server config get", "app-server config get model")
    get.add_argument("key", nargs="?", metavar="KEY", help="a dotted key; without one, all that is set")
    add_json(get)
    add_settings(get)

    set = parser.add_command("set", "write a setting into config.toml, after it was checked")
    set.arguments = "KEY VALUE"
    set.examples = (
        "app-server config set model gpt-5",
        "app-server config set profiles.fast.model_reasoning_effort low   # for a profile",
    )
    set.add_argument("key", metavar="KEY", help=KEY)
    set.add_argument("value", metavar="VALUE", help="TOML, or a text without quotes")

    unset = parser.add_command("unset", "remove a setting from config.toml")
    unset.arguments = "KEY"
    unset.examples = (
        "app-server config unset model",
        "app-server config unset profiles.fast   # a whole table",
    )
    unset.add_argument("key", metavar="KEY", help=KEY)

    edit = parser.add_command("edit", "edit config.toml, and check it before it is saved")
    edit.examples = ("app-server config edit", "EDITOR=nano app-server config edit")

    path = parser.add_command("path", "print where config.toml is", _print_path)
    path.examples = (
        "app-server config path",
        "CODEX_HOME=/srv/agent app-server config path   # of another home",
    )


def _print_path(args: argparse.Namespace) -> int:
    print(server_home(os.environ) / "config.toml")  # noqa: T201
    return 0


def run(args: argparse.Namespace) -> int:
    prepare_own_server()
    if args.command == "config edit":
        return settings_draft.run_edit(args)
    return config_commands.COMMANDS[args.command](args)
