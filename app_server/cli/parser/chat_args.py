"""Arguments of commands that talk to the agent in the terminal: `chat`, `chat resume`, `chat fork`."""

from __future__ import annotations

import argparse
from typing import Final

from app_server.cli.parser.arguments import CD, DEMO, TURN_SETTINGS, Subcommand, defaults, flag, option


def _chat(args: argparse.Namespace) -> int:
    from app_server.cli.chat.chat_command import run_chat  # noqa: PLC0415  an extra

    return run_chat(args)


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


TALK: Final = (
    CD,
    option(
        "--remote",
        type=_shared_place,
        metavar="ADDR",
        help="talk to a shared server: unix:// for the user's, or unix://PATH",
    ),
    option("-i", "--image", action="append", metavar="FILE", help="a picture, with what is said first"),
    flag("--plain", "lines that stay as they are, for screen readers"),
    *TURN_SETTINGS,
)
REOPENING: Final = (
    option("words", nargs="*", metavar="ID PROMPT", help="the thread, and what to say first"),
    flag("--last", "the newest thread of the folder; no ID then"),
    defaults(demo=False),
    *TALK,
)

COMMANDS: Final = (
    Subcommand(
        "chat",
        "talk to it in the terminal",
        [
            option("words", nargs="*", metavar="PROMPT", help="what to say first"),
            DEMO,
            defaults(last=False),
            *TALK,
        ],
        _chat,
        'app-server chat -i shot.png "Why is the button cut off?"   # with a picture',
        "app-server chat resume   # choose a stored thread; `chat fork` goes on in a copy",
        "app-server chat --demo   # with a scripted model: no key, no network",
        usage="[PROMPT...]",
    ),
    Subcommand(
        "chat resume",
        "go on with a stored thread",
        REOPENING,
        _chat,
        "app-server chat resume   # choose among the stored threads",
        'app-server chat resume --last "And the tests?"   # the newest thread of this folder',
        usage="[ID | --last] [PROMPT...]",
    ),
    Subcommand(
        "chat fork",
        "go on in a copy of a stored thread, which stays as it is",
        REOPENING,
        _chat,
        "app-server chat fork   # choose among the stored threads",
        "app-server chat fork --last   # the newest thread of this folder",
        usage="[ID | --last] [PROMPT...]",
    ),
)
