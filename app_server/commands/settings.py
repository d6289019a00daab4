"""`app-server config …` and `app-server mcp …`: their arguments."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from typing import Final

from app_server.commands.options import Subcommand, add_settings, errand, no_arguments, serving_itself
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


COMMANDS: Final = (
    Subcommand(
        "mcp list",
        "list the MCP servers that are configured",
        _add_mcp_list_arguments,
        errand("mcp_servers", "list_servers"),
        "app-server mcp list",
        "app-server mcp list --start   # start them, and list their tools",
    ),
    Subcommand(
        "mcp add",
        "add an MCP server",
        _add_mcp_add_arguments,
        errand("mcp_servers", "add_server"),
        "app-server mcp add docs --url https://example.org/mcp",
        "app-server mcp add files --env ROOT=/srv -- sh serve-files.sh --stdio   # one that is started",
        usage="NAME (--url URL | -- COMMAND [ARG...])",
    ),
    Subcommand(
        "mcp remove",
        "remove an MCP server",
        _add_name,
        errand("mcp_servers", "remove_server"),
        "app-server mcp remove docs",
        "app-server mcp remove 'my docs'",
        usage="NAME",
    ),
    Subcommand(
        "mcp login",
        "log in at an MCP server, in the browser",
        _add_mcp_login_arguments,
        errand("mcp_servers", "log_in"),
        "app-server mcp login docs",
        "app-server mcp login docs --scopes read,write --no-browser",
        usage="NAME",
    ),
    Subcommand(
        "config get",
        "show a setting, or all that are set",
        _add_get_arguments,
        errand("settings", "show_setting"),
        "app-server config get",
        "app-server config get model",
        usage="[KEY]",
    ),
    Subcommand(
        "config set",
        "write a setting into config.toml, after it was checked",
        _add_set_arguments,
        errand("settings", "write_setting"),
        "app-server config set model gpt-5",
        "app-server config set profiles.fast.model_reasoning_effort low   # for a profile",
        usage="KEY VALUE",
    ),
    Subcommand(
        "config unset",
        "remove a setting from config.toml",
        _add_key,
        errand("settings", "remove_setting"),
        "app-server config unset model",
        "app-server config unset profiles.fast   # a whole table",
        usage="KEY",
    ),
    Subcommand(
        "config edit",
        "edit config.toml, and check it before it is saved",
        no_arguments,
        serving_itself(lambda: import_module("app_server.errands.settings").run_edit),
        "app-server config edit",
        "EDITOR=nano app-server config edit",
    ),
    Subcommand(
        "config path",
        "print where config.toml is",
        no_arguments,
        _print_path,
        "app-server config path",
        "CODEX_HOME=/srv/agent app-server config path   # of another home",
    ),
)
