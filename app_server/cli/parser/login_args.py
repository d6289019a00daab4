"""Commands for the maintenance of this machine and of logins: `doctor`, `completion`, `login`, `logout`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from app_server.cli.parser.arguments import (
    JSON,
    SETTINGS,
    TURN_SETTINGS,
    Subcommand,
    at_most_one,
    choice,
    errand,
    flag,
    log_errors_only,
    serving_itself,
)
from app_server.server.bootstrap.standard_streams import cancel_on_interrupt, complain


def _doctor(args: argparse.Namespace) -> int:
    from app_server.cli.doctor.doctor_command import run_doctor  # noqa: PLC0415  loads the whole server
    from app_server.server.bootstrap.full_server import settings_of  # noqa: PLC0415
    from app_server.server.bootstrap.launch import parse_launch  # noqa: PLC0415

    try:
        launch = parse_launch(vars(args), os.environ)
    except ValueError as error:  # an invalid limit in the environment
        complain("app-server doctor", str(error))
        return 2
    log_errors_only()  # the checks report what the log would contain
    cancel_on_interrupt()
    return run_doctor(settings_of(launch), online=args.online, json=args.json)


def _completion(args: argparse.Namespace) -> int:
    """Print a completion script, made from the parser of all commands, which needs no server when Tab is pressed."""
    import shtab  # noqa: PLC0415  for this alone

    from app_server.engine.config.features import FEATURES  # noqa: PLC0415  the same

    files = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}  # kind of an argument, by its name in help
    parser = args.whole_parser()
    for action in _actions(parser):
        if action.metavar in files:
            action.complete = files[action.metavar]  # type: ignore[attr-defined]  # attribute that shtab reads
        elif action.metavar == "FEATURE":
            action.choices = sorted(FEATURES)
    print(shtab.complete(parser, args.shell))  # noqa: T201
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of the parser and of all its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


COMMANDS: Final = (
    Subcommand(
        "doctor",
        "check this machine and the configuration, and say what to do",
        [flag("--online", "ask providers and MCP servers over the network, too"), JSON, *TURN_SETTINGS],
        _doctor,
        "app-server doctor",
        "app-server doctor --online   # ask providers and MCP servers over the network, too",
    ),
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
        errand("login_commands", "log_out"),
        "app-server logout",
        "CODEX_HOME=/srv/agent app-server logout   # in another home",
    ),
    Subcommand(
        "login status",
        "say whether there is a login",
        [SETTINGS],
        errand("login_commands", "login_status"),
        "app-server login status   # exit status 1 where there is none",
        "CODEX_HOME=/srv/agent app-server login status   # in another home",
    ),
    Subcommand(
        "features list",
        "list the features, and which are on",
        [SETTINGS],
        errand("debug_commands", "list_features"),
        "app-server features list",
        "app-server features list --enable web_search_request   # as threads would have them with it",
    ),
    Subcommand(
        "debug models",
        "print the models with their context windows, as JSON",
        [SETTINGS, flag("--bundled", "print the catalogue of this version, whatever the provider serves")],
        errand("debug_commands", "list_models"),
        "app-server debug models",
        "app-server debug models --bundled   # as a beginning of a `model_catalog_json`",
        "app-server debug models -c model_provider=openai   # of another provider",
    ),
    Subcommand(
        "completion",
        "print a script with which a shell completes command lines",
        [choice("shell", "SHELL", "the shell", ("bash", "zsh", "fish"))],
        _completion,
        "app-server completion bash > ~/.local/share/bash-completion/completions/app-server",
        "app-server completion zsh > ~/.zfunc/_app-server   # where ~/.zfunc is in fpath",
        "app-server completion fish > ~/.config/fish/completions/app-server.fish",
        usage="SHELL",
    ),
)
