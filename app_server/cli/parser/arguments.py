"""The class of subcommands, functions for their arguments, and the options that several of them share."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from app_server.server.bootstrap.launch import parse_setting

Run = Callable[[argparse.Namespace], int]

Argument = Callable[[argparse._ActionsContainer], argparse.Action]
"""Function that adds one argument to a parser, or to a group of a parser."""

Adder = Callable[[argparse.ArgumentParser], object]
"""Function that adds one argument or several to a parser."""


class Subcommand:
    """A command: the data for help, completion and the parser, and the function that runs it."""

    def __init__(
        self,
        name: str,
        summary: str,
        arguments: Sequence[Adder],
        run: Run | None,
        *examples: str,
        usage: str = "",
    ) -> None:
        """`name` has one word, or two if a command has subcommands: `threads list`. `run` returns the exit status; None
        if the process becomes a server. `examples` are whole lines for a shell, some with a comment. `usage` is the
        text after the options.
        """
        self.name, self.summary, self.usage = name, summary, usage
        self.arguments, self.run, self.examples = arguments, run, examples


# --- running
def serving_itself(load: Callable[[], Run]) -> Run:
    """Return a function that runs a command with a server in this process. `load` imports the command, which is
    slow.
    """

    def run(args: argparse.Namespace) -> int:
        from app_server.server.bootstrap.server_process import begin_loading, guard_memory  # noqa: PLC0415  no other command needs it

        begin_loading()
        guard_memory()
        command = load()
        log_errors_only()  # the command reports what the log would contain
        return command(args)

    return run


def one_shot(module: str, name: str) -> Run:
    """Return a function that runs a coroutine function of `cli.admin`, with a server in this process."""

    def load() -> Run:
        function = getattr(import_module(f"app_server.cli.admin.{module}"), name)
        run_errand = import_module("app_server.cli.admin.one_shot").run_one_shot
        return lambda args: run_errand(args, function)

    return serving_itself(load)


def log_errors_only() -> None:
    """Suppress the warnings of a server in this process, unless a log level was chosen."""
    if "APP_SERVER_LOG" not in os.environ:
        logging.disable(logging.WARNING)


# --- arguments
def option(*names: str, **how: Any) -> Argument:
    """Return a function that adds an argument, with the parameters of argparse."""
    return lambda parser: parser.add_argument(*names, **how)


def flag(name: str, what: str) -> Argument:
    return option(name, action="store_true", help=what)


def choice(name: str, metavar: str, what: str, words: tuple[str, ...], *short: str) -> Argument:
    """Return a function that adds an argument with a choice of words."""

    def one_of(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"expected {any_of(words)}, got {text!r}")
        return text

    what = f"{what}: {any_of(words)}"
    return option(*short, name, type=one_of, choices=words, metavar=metavar, help=what)


def group(title: str, *arguments: Argument) -> Adder:
    """Return a function that adds arguments under a title of their own."""
    return lambda parser: _add_all(parser.add_argument_group(title), arguments)


def before_or_after(title: str, *arguments: Argument) -> Adder:
    """Return a function that adds a group of arguments that may also be given before a subcommand. Arguments that are
    not given are missing in the namespace.
    """
    return lambda parser: _add_all(
        parser.add_argument_group(title, argument_default=argparse.SUPPRESS), arguments
    )


def at_most_one(*arguments: Argument) -> Adder:
    """Return a function that adds arguments that exclude one another."""
    return lambda parser: _add_all(parser.add_mutually_exclusive_group(), arguments)


def _add_all(container: argparse._ActionsContainer, arguments: Iterable[Argument]) -> None:
    for add in arguments:
        add(container)


def defaults(**values: Any) -> Adder:
    """Return a function that sets default values."""
    return lambda parser: parser.set_defaults(**values)


def any_of(words: Iterable[str]) -> str:
    """Return the words as a list with "or"."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


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


def _folder(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text} is not a folder")
    return os.path.realpath(text)


def _setting(text: str) -> str:
    try:
        parse_setting(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _ws_auth(text: str) -> str:
    if text == "signed-bearer-token":
        raise argparse.ArgumentTypeError("signed-bearer-token is not supported: expected capability-token")
    if text != "capability-token":
        raise argparse.ArgumentTypeError(f"expected capability-token, got {text!r}")
    return text


# --- options of several commands
SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")
APPROVALS: Final = ("untrusted", "on-failure", "on-request", "never")

JSON: Final = flag("--json", "print JSON")

SETTINGS: Final = before_or_after(
    "settings",
    option(
        *("-c", "--config"),
        action="append",
        type=_setting,
        metavar="KEY=VALUE",
        help="override a setting (dotted key, TOML value)",
    ),
    option("--enable", action="append", metavar="FEATURE", help="switch a feature on"),
    option("--disable", action="append", metavar="FEATURE", help="switch a feature off"),
    option("-p", "--profile", metavar="NAME", help="use a profile of config.toml"),
)
"""Options that override the settings of `config.toml`."""

TURN_SETTINGS: Final = (
    SETTINGS,
    before_or_after(
        "conversations",
        option("-m", "--model", metavar="MODEL", help="the model of new conversations"),
        choice("--sandbox", "MODE", "what commands may do", SANDBOXES, "-s"),
        option(
            "--add-dir",
            action="append",
            type=_folder,
            metavar="DIR",
            help="another folder that commands may write",
        ),
        choice("--ask-for-approval", "WHEN", "when to ask", APPROVALS, "-a"),
    ),
)
"""Options that override the settings, and options for new conversations."""

OF_START: Final = frozenset(
    {
        "analytics_default_enabled",
        "cloud_skills_snapshot",
        "code_mode_host",
        "print_startup_config",
        "startup_client_info",
        "startup_sign_out",
        "strict_config",
    }
)
"""Names of the options of a server that `startup_options` handles before the server starts."""

SERVER_OPTIONS: Final = (
    *TURN_SETTINGS,
    before_or_after(
        "serving",
        option(
            "--listen",
            action="append",
            metavar="ADDRESS",
            help="stdio:// (the default), unix://, unix:///PATH, ws://127.0.0.1:PORT or off; several times for several",
        ),
        flag("--stdio", "serve stdin and stdout, as without it"),
        option(
            "--ws-token-file",
            metavar="FILE",
            help="the token of clients of ws://; without it, one in the home is made",
        ),
        option("--ws-token-sha256", metavar="HEX", help="its SHA-256, instead of the token"),
        option(
            "--ws-auth",
            type=_ws_auth,
            metavar="MODE",
            help="how clients of ws:// show who they are: capability-token, which is the default",
        ),
        flag("--strict-config", "end with an error where a setting is not known"),
        flag("--print-startup-config", "check the settings, print requirements as JSON, and end"),
        flag("--analytics-default-enabled", "without effect: nothing is reported to anybody"),
        flag("--startup-sign-out", "without effect: logins are not managed by an organization"),
        option("--startup-client-info", metavar="JSON", help="without effect: a client names itself"),
        option("--cloud-skills-snapshot", metavar="FILE", help="without effect: skills are files"),
        option("--code-mode-host", metavar="URL", help="without effect: there is no code mode"),
        option("--startup", help=argparse.SUPPRESS),  # descriptors of who starts a shared server
    ),
)
"""All options of a server."""


CD: Final = option("-C", "--cd", metavar="DIR", help="the working directory")


DEMO: Final = flag("--demo", "with a scripted model, in a temporary folder")
