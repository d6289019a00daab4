"""Commands that begin turns: `chat`, `exec`, `demo`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from app_server.commands.options import Subcommand, add_turn_settings, duration, positive, serving_itself


def _add_chat_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="PROMPT", help="what to say first")
    parser.add_argument("--demo", action="store_true", help="with a scripted model, in a temporary folder")
    parser.set_defaults(last=False)
    _add_talk_arguments(parser)


def _add_reopening_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="ID PROMPT", help="the thread, and what to say first")
    parser.add_argument("--last", action="store_true", help="the newest thread of the folder; no ID then")
    parser.set_defaults(demo=False)
    _add_talk_arguments(parser)


def _add_talk_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-C", "--cd", metavar="DIR", help="the working directory")
    parser.add_argument(
        "-i", "--image", action="append", metavar="FILE", help="a picture, with what is said first"
    )
    parser.add_argument(
        "--plain", action="store_true", help="lines that stay as they are, for screen readers"
    )
    add_turn_settings(parser)


def _chat(args: argparse.Namespace) -> int:
    from app_server.chat.chat_command import run_chat  # noqa: PLC0415  an extra

    return run_chat(args)


def _add_exec_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt", nargs="*", metavar="PROMPT", help="what to do; stdin is added to it, or is all of it"
    )
    parser.add_argument("-C", "--cd", metavar="DIR", help="the working directory")
    parser.add_argument("-i", "--image", action="append", metavar="FILE", help="a picture, with the prompt")
    parser.add_argument("--json", action="store_true", help="notifications as lines of JSON")
    parser.add_argument(
        "-o", "--output-last-message", metavar="FILE", help="write the final message to a file"
    )
    parser.add_argument("--output-schema", metavar="FILE", help="a JSON Schema for the final message")
    parser.add_argument("--demo", action="store_true", help="with a scripted model, in a temporary folder")
    parser.add_argument(
        "--prices", metavar="FILE", help="what tokens cost, for the last line (else prices.json in the home)"
    )
    stored = parser.add_mutually_exclusive_group()
    stored.add_argument("--resume", metavar="ID", help="go on with a stored thread")
    stored.add_argument("--resume-last", action="store_true", help="go on with the newest thread here")
    stored.add_argument("--fork", metavar="ID", help="go on with a copy of a stored thread")
    parser.add_argument("--ephemeral", action="store_true", help="store nothing of the thread")
    limits = parser.add_argument_group("limits, which end the turn with exit status 3")
    limits.add_argument("--max-turns", type=positive, metavar="N", help="requests to the model")
    limits.add_argument("--budget-tokens", type=positive, metavar="N", help="tokens, of input and output")
    limits.add_argument("--timeout", type=duration, metavar="TIME", help="seconds, or as in 90s, 30m, 2h")
    add_turn_settings(parser)


def _add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="approve what is asked instead of asking you")


def _demo(args: argparse.Namespace) -> int:
    from app_server.demo.play import run_demo  # noqa: PLC0415  takes a while

    return run_demo(yes=args.yes)


COMMANDS: Final = (
    Subcommand(
        "chat",
        "talk to it in the terminal",
        _add_chat_arguments,
        _chat,
        'app-server chat -i shot.png "Why is the button cut off?"   # with a picture',
        "app-server chat resume   # choose a stored thread; `chat fork` goes on in a copy",
        "app-server chat --demo   # with a scripted model: no key, no network",
        usage="[PROMPT...]",
    ),
    Subcommand(
        "chat resume",
        "go on with a stored thread",
        _add_reopening_arguments,
        _chat,
        "app-server chat resume   # choose among the stored threads",
        'app-server chat resume --last "And the tests?"   # the newest thread of this folder',
        usage="[ID | --last] [PROMPT...]",
    ),
    Subcommand(
        "chat fork",
        "go on in a copy of a stored thread, which stays as it is",
        _add_reopening_arguments,
        _chat,
        "app-server chat fork   # choose among the stored threads",
        "app-server chat fork --last   # the newest thread of this folder",
        usage="[ID | --last] [PROMPT...]",
    ),
    Subcommand(
        "exec",
        "run one turn without a person, for scripts and CI",
        _add_exec_arguments,
        serving_itself(lambda: import_module("app_server.headless.exec_run").run_exec),
        'app-server exec "Does the changelog mention the new option?"',
        "git diff | app-server exec -s read-only -   # the prompt from stdin",
        'app-server exec --resume-last "And the tests?"   # go on with the newest thread here',
        usage="[PROMPT...]",
    ),
    Subcommand(
        "demo",
        "play a conversation with a scripted model: no key, no network",
        _add_demo_arguments,
        _demo,
        "app-server demo",
        "app-server demo --yes   # approve what is asked",
    ),
)
