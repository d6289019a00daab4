"""Arguments of commands that print a script for shells: `completion`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from app_server.cli.parser.arguments import Subcommand, choice


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
