"""Arguments that several commands share, types of arguments, and the preparation of commands with an own server."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from app_server.server.bootstrap import server_process
from app_server.server.proxy.server_options import (
    CONVERSATIONS,
    SERVING,
    SETTINGS,
    Option,
    any_of,
)

Container = argparse._ActionsContainer
"""A parser, or a group of its arguments."""


# --- arguments
def add_flag(parser: Container, *names: str, help: str) -> None:
    parser.add_argument(*names, action="store_true", help=help)


def add_choice(parser: Container, *names: str, words: Sequence[str], help: str, **how: Any) -> None:
    """Add an argument with a choice of words, which are listed in its help."""

    def one_of(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"expected {any_of(words)}, got {text!r}")
        return text

    parser.add_argument(*names, type=one_of, choices=words, help=f"{help}: {any_of(words)}", **how)


def add_json(parser: Container) -> None:
    add_flag(parser, "--json", help="print JSON")


def add_cd(parser: Container) -> None:
    parser.add_argument("-C", "--cd", metavar="DIR", help="the working directory")


def add_demo(parser: Container) -> None:
    add_flag(parser, "--demo", help="with a scripted model, in a temporary folder")


def add_image(parser: Container, help: str) -> None:
    parser.add_argument("-i", "--image", action="append", metavar="FILE", help=help)


def add_settings(parser: Container) -> None:
    """Add the options that override the settings of `config.toml`."""
    _add_group(parser, "settings", SETTINGS)


def add_turn_settings(parser: Container) -> None:
    """Add the options that override the settings, and the options for new conversations."""
    add_settings(parser)
    _add_group(parser, "conversations", CONVERSATIONS)


def add_server_options(parser: Container) -> None:
    """Add all options of a server."""
    add_turn_settings(parser)
    _add_group(parser, "serving", SERVING)


def _add_group(parser: Container, title: str, options: Iterable[Option]) -> None:
    """Add declared options under a title. They may also be given before the name of a command: those that are not given
    are missing in the namespace.
    """
    add_declared(parser.add_argument_group(title, argument_default=argparse.SUPPRESS), options)


def add_declared(parser: Container, options: Iterable[Option]) -> None:
    """Add options as they are declared for the light parse."""
    for each in options:
        help = argparse.SUPPRESS if each.help is None else each.help
        if each.metavar is None:
            add_flag(parser, *each.names, help=help)
            continue
        how: dict[str, Any] = {"type": _checked(each), "metavar": each.metavar}
        if each.repeated:
            how["action"] = "append"
        if each.choices:
            how["choices"] = each.choices
            help = f"{help}: {any_of(each.choices)}"
        parser.add_argument(*each.names, help=help, **how)


def _checked(option: Option) -> Callable[[str], str]:
    def read(text: str) -> str:
        try:
            return option.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


# --- types of arguments
UNITS: Final = {"s": 1, "m": 60, "h": 3600}


MOST_DIGITS: Final = 15
"""Maximum number of digits of a number, so that its products with prices and times stay exact."""


def positive(text: str) -> int:
    """Parse a positive whole number."""
    digits = text.isascii() and text.isdigit()
    if digits and len(text.lstrip("0")) > MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"expected a number of at most {MOST_DIGITS} digits")
    if not digits or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return int(text)


def duration(text: str) -> float:
    """Parse a time: seconds, or a number with its unit. Return seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    return above_zero(number, "seconds, or a time as in 90s, 30m or 2h", text, UNITS[unit])


def above_zero(number: str, expected: str, text: str, unit: int = 1) -> float:
    """Parse a positive number, which need not be whole, of the argument `text`."""
    try:
        found = float(number) * unit
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return found


# --- running
def prepare_own_server() -> None:
    """Prepare this process for a server in it, before a command imports anything that is slow. The command reports what
    the log of the server would contain.
    """
    server_process.begin_loading()
    server_process.guard_memory()
    log_errors_only()


def log_errors_only() -> None:
    """Suppress the warnings of a server in this process, unless a log level was chosen."""
    if "APP_SERVER_LOG" not in os.environ:
        logging.disable(logging.WARNING)
