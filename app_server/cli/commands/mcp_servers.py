"""`app-server mcp …`: lists, adds and removes MCP servers, and logs in at them."""

from __future__ import annotations

import argparse

from app_server.cli.admin import log_in, mcp_commands
from app_server.cli.arguments import add_flag, add_json, add_settings, prepare_own_server
from app_server.cli.command_parser import CommandParser

NAME = "its name in config.toml"


def add_arguments(parser: CommandParser) -> None:
    listing = parser.add_command("list", "list the MCP servers that are configured")
    listing.examples = (
        "app-server mcp list",
        "app-server mcp list --start   # start them, and list their tools",
    )
    add_flag(listing, "--start", help="start them, and list their tools")
    add_json(listing)
    add_settings(listing)

    _add_adding(parser.add_command("add", "add an MCP server"))

    remove = parser.add_command("remove", "remove an MCP server")
    remove.arguments = "NAME"
    remove.examples = ("app-server mcp remove docs", "app-server mcp remove 'my docs'")
    remove.add_argument("name", metavar="NAME", help=NAME)

    login = parser.add_command("login", "log in at an MCP server, in the browser")
    login.arguments = "NAME"
    login.examples = (
        "app-server mcp login docs",
        "app-server mcp login docs --scopes read,write --no-browser",
    )
    login.add_argument("name", metavar="NAME", help=NAME)
    login.add_argument("--scopes", metavar="SCOPE,SCOPE", help="what to ask for")
    add_flag(
        login,
        "--no-browser",
        help="only print the address of the page, and read the one at which the browser ended",
    )
    add_settings(login)


def _add_adding(parser: CommandParser) -> None:
    parser.arguments = "NAME (--url URL | -- COMMAND [ARG...])"
    parser.examples = (
        "app-server mcp add docs --url https://example.org/mcp",
        "app-server mcp add files --env ROOT=/srv -- sh serve-files.sh --stdio   # one that is started",
    )
    parser.add_argument("name", type=_server_name, metavar="NAME", help=NAME)
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


def _server_name(text: str) -> str:
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise argparse.ArgumentTypeError(f"expected letters, digits, hyphens and underscores, got {text!r}")
    return text


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def run(args: argparse.Namespace) -> int:
    prepare_own_server()
    if args.command == "mcp login":
        return log_in.run_mcp_login(args)
    return mcp_commands.COMMANDS[args.command](args)
