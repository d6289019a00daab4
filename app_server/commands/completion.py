"""Completion for shells: a script made of the parser of all commands, which asks no server when Tab is pressed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

import shtab

from app_server.core.config.features import FEATURES

SHELLS: Final = ("bash", "zsh", "fish")

_FILES: Final = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
"""What an argument is, by how help calls it."""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell; `parser` has all commands, and is changed."""
    for action in _actions(parser):
        if action.metavar in _FILES:
            action.complete = _FILES[action.metavar]  # type: ignore[attr-defined]  # where shtab looks for it
        elif action.metavar == "FEATURE":
            action.choices = sorted(FEATURES)
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of the parser and of all its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
