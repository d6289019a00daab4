"""`app-server chat`, `chat resume` and `chat fork`: talk to the agent in the terminal."""

from __future__ import annotations

import argparse

from app_server.cli.arguments import add_cd, add_demo, add_flag, add_image, add_turn_settings
from app_server.cli.chat import chat_command
from app_server.cli.command_parser import CommandParser

REOPENING = "[ID | --last] [PROMPT...]"


def add_arguments(parser: CommandParser) -> None:
    parser.arguments = "[PROMPT...]"
    parser.examples = (
        'app-server chat -i shot.png "Why is the button cut off?"   # with a picture',
        "app-server chat resume   # choose a stored thread; `chat fork` goes on in a copy",
        "app-server chat --demo   # with a scripted model: no key, no network",
    )
    parser.add_argument("words", nargs="*", metavar="PROMPT", help="what to say first")
    add_demo(parser)
    parser.set_defaults(last=False)
    _add_options(parser)

    resume = parser.add_command("resume", "go on with a stored thread")
    resume.examples = (
        "app-server chat resume   # choose among the stored threads",
        'app-server chat resume --last "And the tests?"   # the newest thread of this folder',
    )
    _add_reopening(resume)

    fork = parser.add_command("fork", "go on in a copy of a stored thread, which stays as it is")
    fork.examples = (
        "app-server chat fork   # choose among the stored threads",
        "app-server chat fork --last   # the newest thread of this folder",
    )
    _add_reopening(fork)


def _add_reopening(parser: CommandParser) -> None:
    parser.arguments = REOPENING
    parser.add_argument("words", nargs="*", metavar="ID PROMPT", help="the thread, and what to say first")
    add_flag(parser, "--last", help="the newest thread of the folder; no ID then")
    parser.set_defaults(demo=False)
    _add_options(parser)


def _add_options(parser: CommandParser) -> None:
    add_cd(parser)
    parser.add_argument(
        "--remote",
        type=_shared_place,
        metavar="ADDR",
        help="talk to a shared server: unix:// for the user's, or unix://PATH",
    )
    add_image(parser, "a picture, with what is said first")
    add_flag(parser, "--plain", help="lines that stay as they are, for screen readers")
    add_turn_settings(parser)


def _shared_place(address: str) -> str:
    """Return the path of a socket; "" for the usual one. Raises ArgumentTypeError."""
    scheme, separator, path = address.partition("://")
    if not separator or scheme not in ("unix", "ws", "wss"):
        raise argparse.ArgumentTypeError(f"{address!r} is no address: expected unix:// or unix://PATH")
    if scheme != "unix":
        raise argparse.ArgumentTypeError(
            f"{scheme}:// is not reached from here: forward its port to a socket, or name unix://PATH"
        )
    return path


def run(args: argparse.Namespace) -> int:
    return chat_command.run_chat(args)
