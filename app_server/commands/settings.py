"""`app-server config …` and `app-server mcp …`: their arguments."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from typing import Final

from app_server.commands.options import CommandCode, add_settings, no_arguments, serving_itself
from app_server.startup.launch import server_home


def _add_get_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", nargs="?", metavar="KEY", help="a dotted key; without one, all that is set")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser)


def _add_set_arguments(parser: argparse.ArgumentParser) -> None:
    _add_key(parser)
    parser.add_argument("value", metavar="VALUE", help="TOML, or a text without quotes")


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="a dotted key, as in profiles.fast.model")


def _add_mcp_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--start", action="store_true", help="start them, and list their tools")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser)


def _add_mcp_add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=_server_name, metavar="NAME", help="its name in config.toml")
    parser.add_argument("--url", metavar="URL", help="its address, for a server that is reached over HTTP")
    parser.add_argument(
        "--bearer-token-env-var", metavar="VARIABLE", help="the variable with the token for --url"
    )
    parser.add_argument(
        "--env",
        action="append",
        type=_variable,
        metavar="NAME=VALUE",
        help="a variable for the command; the value stands in config.toml",
    )
    parser.add_argument("server", nargs="*", metavar="-- COMMAND ARG", help="the command that starts it")


def _add_mcp_login_arguments(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--scopes", metavar="SCOPE,SCOPE", help="what to ask for")
    parser.add_argument("--no-browser", action="store_true", help="only print the address of the page")
    add_settings(parser)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="its name in config.toml")


def _server_name(text: str) -> str:
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise argparse.ArgumentTypeError(f"expected letters, digits, hyphens and underscores, got {text!r}")
    return text


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def _print_path(args: argparse.Namespace) -> int:
    print(server_home(os.environ) / "config.toml")  # noqa: T201
    return 0


CODE: Final = {
    "config get": CommandCode(
        _add_get_arguments, serving_itself(lambda: import_module("app_server.errands.settings").run_get)
    ),
    "config set": CommandCode(
        _add_set_arguments, serving_itself(lambda: import_module("app_server.errands.settings").run_set)
    ),
    "config unset": CommandCode(
        _add_key, serving_itself(lambda: import_module("app_server.errands.settings").run_unset)
    ),
    "config edit": CommandCode(
        no_arguments, serving_itself(lambda: import_module("app_server.errands.settings_editing").run_edit)
    ),
    "config path": CommandCode(no_arguments, _print_path),
    "mcp list": CommandCode(
        _add_mcp_list_arguments,
        serving_itself(lambda: import_module("app_server.errands.mcp_servers").run_list),
    ),
    "mcp add": CommandCode(
        _add_mcp_add_arguments,
        serving_itself(lambda: import_module("app_server.errands.mcp_servers").run_add),
    ),
    "mcp remove": CommandCode(
        _add_name, serving_itself(lambda: import_module("app_server.errands.mcp_servers").run_remove)
    ),
    "mcp login": CommandCode(
        _add_mcp_login_arguments,
        serving_itself(lambda: import_module("app_server.errands.mcp_servers").run_login),
    ),
}
