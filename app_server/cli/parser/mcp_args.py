"""Arguments of commands that look after MCP servers: `mcp list`, `mcp add` and the like."""

from __future__ import annotations

import argparse
from typing import Final

from app_server.cli.parser.arguments import JSON, SETTINGS, Subcommand, flag, one_shot, option


def _server_name(text: str) -> str:
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise argparse.ArgumentTypeError(f"expected letters, digits, hyphens and underscores, got {text!r}")
    return text


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


NAME: Final = option("name", metavar="NAME", help="its name in config.toml")

COMMANDS: Final = (
    Subcommand(
        "mcp list",
        "list the MCP servers that are configured",
        [flag("--start", "start them, and list their tools"), JSON, SETTINGS],
        one_shot("mcp_commands", "list_servers"),
        "app-server mcp list",
        "app-server mcp list --start   # start them, and list their tools",
    ),
    Subcommand(
        "mcp add",
        "add an MCP server",
        [
            option("name", type=_server_name, metavar="NAME", help="its name in config.toml"),
            option("--url", metavar="URL", help="its address, for a server that is reached over HTTP"),
            option(
                "--bearer-token-env-var", metavar="VARIABLE", help="the variable with the token for --url"
            ),
            option(
                "--env",
                action="append",
                type=_variable,
                metavar="NAME=VALUE",
                help="a variable for the command; the value stands in config.toml",
            ),
            option("server", nargs="*", metavar="-- COMMAND ARG", help="the command that starts it"),
        ],
        one_shot("mcp_commands", "add_server"),
        "app-server mcp add docs --url https://example.org/mcp",
        "app-server mcp add files --env ROOT=/srv -- sh serve-files.sh --stdio   # one that is started",
        usage="NAME (--url URL | -- COMMAND [ARG...])",
    ),
    Subcommand(
        "mcp remove",
        "remove an MCP server",
        [NAME],
        one_shot("mcp_commands", "remove_server"),
        "app-server mcp remove docs",
        "app-server mcp remove 'my docs'",
        usage="NAME",
    ),
    Subcommand(
        "mcp login",
        "log in at an MCP server, in the browser",
        [
            NAME,
            option("--scopes", metavar="SCOPE,SCOPE", help="what to ask for"),
            flag("--no-browser", "only print the address of the page"),
            SETTINGS,
        ],
        one_shot("mcp_commands", "log_in"),
        "app-server mcp login docs",
        "app-server mcp login docs --scopes read,write --no-browser",
        usage="NAME",
    ),
)
