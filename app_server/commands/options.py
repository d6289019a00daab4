"""Options that several subcommands take, and what the code of a subcommand is."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final

from app_server.startup.launch import parse_setting

SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")
APPROVALS: Final = ("untrusted", "on-failure", "on-request", "never")


Run = Callable[[argparse.Namespace], int]

UNITS: Final = {"s": 1, "m": 60, "h": 3600}


class Subcommand:
    """A command: what help, completion and the parser need of it, and what it does."""

    def __init__(
        self,
        name: str,
        summary: str,
        add_arguments: Callable[[argparse.ArgumentParser], None],
        run: Run | None,
        *examples: str,
        usage: str = "",
    ) -> None:
        """`name` has one word, or two where a command has commands of its own: `threads list`. `run` gives the exit
        status; None: the process becomes a server. `examples` are whole lines for a shell, some with a comment.
        `usage` is what follows the options.
        """
        self.name, self.summary, self.usage = name, summary, usage
        self.add_arguments, self.run, self.examples = add_arguments, run, examples


def serving_itself(load: Callable[[], Run]) -> Run:
    """Return what runs a command that has a server in this process. `load` imports it, which takes a while."""

    def run(args: argparse.Namespace) -> int:
        from app_server.startup.process import begin_loading, guard_memory  # noqa: PLC0415  no other command needs it

        begin_loading()
        guard_memory()
        command = load()
        log_errors_only()  # the command says what the log would say
        return command(args)

    return run


def errand(module: str, name: str) -> Run:
    """Return what carries out a coroutine function of `errands`, with a server in this process."""

    def load() -> Run:
        function = getattr(import_module(f"app_server.errands.{module}"), name)
        run_errand = import_module("app_server.errands.errand").run_errand
        return lambda args: run_errand(args, function)

    return serving_itself(load)


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that go before the settings of `config.toml`. What is not given is not in the namespace, so that
    it may be given before the subcommand, too.
    """
    group = parser.add_argument_group("settings", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "-c",
        "--config",
        action="append",
        type=_setting,
        metavar="KEY=VALUE",
        help="override a setting (dotted key, TOML value)",
    )
    group.add_argument("--enable", action="append", metavar="FEATURE", help="switch a feature on")
    group.add_argument("--disable", action="append", metavar="FEATURE", help="switch a feature off")
    group.add_argument("-p", "--profile", metavar="NAME", help="use a profile of config.toml")


def add_turn_settings(parser: argparse.ArgumentParser) -> None:
    """Add the settings, and those of new conversations."""
    add_settings(parser)
    group = parser.add_argument_group("conversations", argument_default=argparse.SUPPRESS)
    group.add_argument("-m", "--model", metavar="MODEL", help="the model of new conversations")
    add_choice(group, "--sandbox", "MODE", "what commands may do", SANDBOXES, "-s")
    group.add_argument(
        "--add-dir",
        action="append",
        type=_folder,
        metavar="DIR",
        help="another folder that commands may write",
    )
    add_choice(group, "--ask-for-approval", "WHEN", "when to ask", APPROVALS, "-a")


def positive(text: str) -> int:
    """Parse a number of things."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return int(text)


def duration(text: str) -> float:
    """Parse a time: seconds, or a number with its unit."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    return above_zero(number, "seconds, or a time as in 90s, 30m or 2h", text, UNITS[unit])


def above_zero(number: str, expected: str, text: str, unit: int = 1) -> float:
    """Parse a number that need not be whole, of the argument `text`."""
    try:
        found = float(number) * unit
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return found


def _folder(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text} is not a folder")
    return os.path.realpath(text)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add all that a server takes."""
    add_turn_settings(parser)
    group = parser.add_argument_group("serving", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="stdio:// (the default), unix://, unix:///PATH, ws://127.0.0.1:PORT or off; several times for several",
    )
    group.add_argument("--stdio", action="store_true", help="serve stdin and stdout, as without it")
    group.add_argument(
        "--ws-token-file",
        metavar="FILE",
        help="the token of clients of ws://; without it, one in the home is made",
    )
    group.add_argument("--ws-token-sha256", metavar="HEX", help="its SHA-256, instead of the token")
    group.add_argument("--startup", help=argparse.SUPPRESS)  # descriptors of who starts a shared server
    group.add_argument("--successor", type=int, help=argparse.SUPPRESS)  # of the server that it replaces


def log_errors_only() -> None:
    """Keep the warnings of a server in this process off stderr, unless a level was chosen."""
    if "APP_SERVER_LOG" not in os.environ:
        logging.disable(logging.WARNING)


def any_of(words: Iterable[str]) -> str:
    """List words of which one is meant."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def add_choice(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    name: str,
    metavar: str,
    what: str,
    words: tuple[str, ...],
    *short: str,
) -> None:
    """Add an argument that is one of these words."""

    def one_of(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"expected {any_of(words)}, got {text!r}")
        return text

    parser.add_argument(
        *short, name, type=one_of, choices=words, metavar=metavar, help=f"{what}: {any_of(words)}"
    )


def _setting(text: str) -> str:
    try:
        parse_setting(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
