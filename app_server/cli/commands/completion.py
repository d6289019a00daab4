"""`app-server completion`: prints a script with which a shell completes command lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import shtab

from app_server.cli.arguments import add_choice, add_server_options
from app_server.cli.command_parser import PROGRAM, CommandParser
from app_server.cli.command_table import ABOUT
from app_server.engine.config import features


def add_arguments(parser: CommandParser) -> None:
    parser.arguments = "SHELL"
    parser.examples = (
        "app-server completion bash > ~/.local/share/bash-completion/completions/app-server",
        "app-server completion zsh > ~/.zfunc/_app-server   # where ~/.zfunc is in fpath",
        "app-server completion fish > ~/.config/fish/completions/app-server.fish",
    )
    add_choice(parser, "shell", metavar="SHELL", help="the shell", words=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    """Print a script, made from the parsers of all commands, which needs no server when Tab is pressed."""
    files = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}  # kind of an argument, by its name in help
    parser = whole_parser(args.commands)
    for action in _actions(parser):
        if action.metavar in files:
            action.complete = files[action.metavar]  # type: ignore[attr-defined]  # attribute that shtab reads
        elif action.metavar == "FEATURE":
            action.choices = sorted(features.FEATURES)
    print(shtab.complete(parser, args.shell))  # noqa: T201
    return 0


def whole_parser(commands: Mapping[str, CommandParser]) -> argparse.ArgumentParser:
    """Return the parser of the program with those of all commands below it, as argparse has them."""
    whole = argparse.ArgumentParser(PROGRAM, description=ABOUT)
    whole.add_argument("--version", action="version")
    add_server_options(whole)
    firsts = dict(commands)
    names = [each.name for first in firsts.values() for each in (first, *first.subcommands.values())]
    about = CommandParser("help", "show the options of a command, and examples")
    about.add_argument("about", choices=names)
    _add_below(whole, {**firsts, about.name: about})
    for first in firsts.values():
        if first.subcommands:
            _add_below(first, first.subcommands)
    return whole


def _add_below(parser: argparse.ArgumentParser, commands: Mapping[str, CommandParser]) -> None:
    """Add the parsers of commands as subparsers."""

    def parser_of(prog: str) -> CommandParser:
        return commands[prog.rpartition(" ")[2]]

    below = parser.add_subparsers(parser_class=parser_of)  # type: ignore[call-overload]  # called like a class
    for name, command in commands.items():
        below.add_parser(name, help=command.summary)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of the parser and of all its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
