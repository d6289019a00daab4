"""Arguments of commands that run one command in the sandbox: `sandbox`."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from app_server.cli.parser.arguments import CD, SETTINGS, Subcommand, option, serving_itself

COMMANDS: Final = (
    Subcommand(
        "sandbox",
        "run one command in the sandbox, without a model",
        [
            option("command_words", nargs="*", metavar="COMMAND ARG", help="the command"),
            CD,
            option(
                "-P",
                "--permission-profile",
                metavar="NAME",
                help="a permission profile in place of the usual sandbox",
            ),
            SETTINGS,
        ],
        serving_itself(lambda: import_module("app_server.cli.admin.sandbox_command").run_in_sandbox),
        "app-server sandbox -- touch /etc/x   # refused, with the exit status of the command",
        "app-server sandbox -P :read-only -- make test",
        usage="-- COMMAND [ARG...]",
    ),
)
