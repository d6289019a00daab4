"""`app-server exec`, `exec resume`, `exec fork` and `exec review`: run one turn without a person."""

from __future__ import annotations

import argparse

from app_server.cli.arguments import (
    add_cd,
    add_demo,
    add_flag,
    add_image,
    add_turn_settings,
    duration,
    positive,
    prepare_own_server,
)
from app_server.cli.command_parser import CommandParser
from app_server.cli.exec import exec_run


def add_arguments(parser: CommandParser) -> None:
    parser.arguments = "[PROMPT...]"
    parser.examples = (
        'app-server exec "Does the changelog mention the new option?"',
        "git diff | app-server exec -s read-only -   # the prompt from stdin",
        'app-server exec resume --last "And the tests?"   # `exec fork` goes on in a copy',
    )
    parser.add_argument(
        "prompt", nargs="*", metavar="PROMPT", help="what to do; stdin is added to it, or is all of it"
    )
    add_image(parser, "a picture, with the prompt")
    add_demo(parser)
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument("--resume", metavar="ID", help="go on with a stored thread")
    add_flag(origin, "--resume-last", help="go on with the newest thread here")
    origin.add_argument("--fork", metavar="ID", help="go on with a copy of a stored thread")
    parser.set_defaults(last=False)
    _add_options(parser)
    _add_reopening(
        parser.add_command("resume", "run one more turn of a stored thread"),
        "the thread, and what to do",
        'app-server exec resume --last "And the tests?"   # the newest thread of this folder',
        "app-server exec resume 0199a213-81c0-7800-8aa1-bbab2a035a53 - <prompt.md",
    )
    _add_reopening(
        parser.add_command("fork", "run one turn in a copy of a stored thread, which stays as it is"),
        "the thread, and what to do; nothing: only copy it",
        'app-server exec fork --last "And if it stays whole?"',
        "app-server exec fork 0199a213-81c0-7800-8aa1-bbab2a035a53   # prints the id of the copy",
    )
    _add_review(parser.add_command("review", "review changes of the repository, or what you say"))


def _add_reopening(parser: CommandParser, prompt: str, *examples: str) -> None:
    parser.arguments = "[ID | --last] [PROMPT...]"
    parser.examples = examples
    parser.add_argument("prompt", nargs="*", metavar="ID PROMPT", help=prompt)
    add_flag(parser, "--last", help="the newest thread of the folder; no ID then")
    add_image(parser, "a picture, with the prompt")
    parser.set_defaults(demo=False)
    _add_options(parser)


def _add_review(parser: CommandParser) -> None:
    parser.arguments = "[--uncommitted | --base BRANCH | --commit SHA | INSTRUCTIONS...]"
    parser.examples = (
        "app-server exec review --uncommitted",
        "app-server exec review --base main -o review.md",
    )
    parser.add_argument(
        "prompt", nargs="*", metavar="INSTRUCTIONS", help="what to look for; - reads them from stdin"
    )
    changes = parser.add_mutually_exclusive_group()
    add_flag(changes, "--uncommitted", help="what is not committed: staged, unstaged and untracked")
    changes.add_argument("--base", metavar="BRANCH", help="changes against a branch")
    changes.add_argument("--commit", metavar="SHA", help="what a commit changed")
    parser.add_argument("--title", metavar="TITLE", help="the subject of the commit, to be shown")
    parser.set_defaults(demo=False, image=None)
    _add_options(parser)


def _add_options(parser: CommandParser) -> None:
    add_cd(parser)
    add_flag(parser, "--json", help="events as lines of JSON, in the format of `codex exec --json`")
    add_flag(parser, "--experimental-json", help="the same, with what the SDKs of codex expect beside it")
    add_flag(parser, "--notifications", help="notifications of the thread API as lines of JSON")
    parser.add_argument(
        *("-o", "--output-last-message"), metavar="FILE", help="write the final message to a file"
    )
    parser.add_argument("--output-schema", metavar="FILE", help="a JSON Schema for the final message")
    parser.add_argument(
        "--prices", metavar="FILE", help="what tokens cost, for the last line (else prices.json in the home)"
    )
    add_flag(parser, "--ephemeral", help="store nothing of the thread")
    parser.add_argument(
        "--thread-source", metavar="SOURCE", help="what a new thread is for, in its stored form"
    )
    add_flag(parser, "--dangerously-bypass-approvals-and-sandbox", help="the same as -s danger-full-access")
    add_flag(
        parser,
        "--skip-git-repo-check",
        help="with --experimental-json: work in a folder without a git repository, too",
    )
    parser.add_argument(
        "--cyber-access-program", metavar="PROGRAM", help="does nothing; for the SDKs of codex"
    )
    parser.add_argument(
        "--color", metavar="WHEN", help="does nothing; for scripts that were written for codex"
    )
    limits = parser.add_argument_group("limits, which end the turn with exit status 3")
    limits.add_argument("--max-turns", type=positive, metavar="N", help="requests to the model")
    limits.add_argument("--budget-tokens", type=positive, metavar="N", help="tokens, of input and output")
    limits.add_argument("--timeout", type=duration, metavar="TIME", help="seconds, or as in 90s, 30m, 2h")
    add_turn_settings(parser)


def run(args: argparse.Namespace) -> int:
    prepare_own_server()
    return exec_run.run_exec(args)
