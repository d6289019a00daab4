"""Arguments of commands that show and change the settings: `config …`."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from typing import Final

from app_server.cli.parser.arguments import JSON, SETTINGS, Subcommand, one_shot, option, serving_itself
from app_server.server.bootstrap.launch import server_home


def _print_path(args: argparse.Namespace) -> int:
    print(server_home(os.environ) / "config.toml")  # noqa: T201
    return 0


KEY: Final = option("key", metavar="KEY", help="a dotted key, as in profiles.fast.model")

COMMANDS: Final = (
    Subcommand(
        "config get",
        "show a setting, or all that are set",
        [
            option("key", nargs="?", metavar="KEY", help="a dotted key; without one, all that is set"),
            JSON,
            SETTINGS,
        ],
        one_shot("config_commands", "show_setting"),
        "app-server config get",
        "app-server config get model",
        usage="[KEY]",
    ),
    Subcommand(
        "config set",
        "write a setting into config.toml, after it was checked",
        [
            KEY,
            option("value", metavar="VALUE", help="TOML, or a text without quotes"),
        ],
        one_shot("config_commands", "write_setting"),
        "app-server config set model gpt-5",
        "app-server config set profiles.fast.model_reasoning_effort low   # for a profile",
        usage="KEY VALUE",
    ),
    Subcommand(
        "config unset",
        "remove a setting from config.toml",
        [KEY],
        one_shot("config_commands", "remove_setting"),
        "app-server config unset model",
        "app-server config unset profiles.fast   # a whole table",
        usage="KEY",
    ),
    Subcommand(
        "config edit",
        "edit config.toml, and check it before it is saved",
        [],
        serving_itself(lambda: import_module("app_server.cli.admin.settings_draft").run_edit),
        "app-server config edit",
        "EDITOR=nano app-server config edit",
    ),
    Subcommand(
        "config path",
        "print where config.toml is",
        [],
        _print_path,
        "app-server config path",
        "CODEX_HOME=/srv/agent app-server config path   # of another home",
    ),
)
