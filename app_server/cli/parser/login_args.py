"""Arguments of commands that look after the login: `login`, `login status`, `logout`."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from app_server.cli.parser.arguments import SETTINGS, Subcommand, at_most_one, flag, one_shot, serving_itself

COMMANDS: Final = (
    Subcommand(
        "login",
        "log in at the provider of the model: in the browser, with a code, or with a key",
        [
            at_most_one(
                flag("--with-api-key", "read an API key from stdin"),
                flag("--device-auth", "with a code, in a browser on another machine"),
                flag("--no-browser", "only print the address of the page"),
            ),
            SETTINGS,
        ],
        serving_itself(lambda: import_module("app_server.cli.admin.login_commands").run_login),
        "app-server login   # in the browser of this machine",
        "app-server login --device-auth   # with a code, in a browser elsewhere",
        "printenv OPENAI_API_KEY | app-server login --with-api-key   # with a key from stdin",
    ),
    Subcommand(
        "logout",
        "forget the login",
        [SETTINGS],
        one_shot("login_commands", "log_out"),
        "app-server logout",
        "CODEX_HOME=/srv/agent app-server logout   # in another home",
    ),
    Subcommand(
        "login status",
        "say whether there is a login",
        [SETTINGS],
        one_shot("login_commands", "login_status"),
        "app-server login status   # exit status 1 where there is none",
        "CODEX_HOME=/srv/agent app-server login status   # in another home",
    ),
)
