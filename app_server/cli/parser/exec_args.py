"""Arguments of commands that run one turn without a person: `exec`, `exec resume`, `exec fork`, `exec review`."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from app_server.cli.parser.arguments import (
    CD,
    DEMO,
    TURN_SETTINGS,
    Subcommand,
    at_most_one,
    defaults,
    duration,
    flag,
    group,
    option,
    positive,
    serving_itself,
)

PICTURE: Final = option("-i", "--image", action="append", metavar="FILE", help="a picture, with the prompt")
EXEC: Final = (
    CD,
    flag("--json", "events as lines of JSON, in the format of `codex exec --json`"),
    flag("--experimental-json", "the same, with what the SDKs of codex expect beside it"),
    flag("--notifications", "notifications of the thread API as lines of JSON"),
    option("-o", "--output-last-message", metavar="FILE", help="write the final message to a file"),
    option("--output-schema", metavar="FILE", help="a JSON Schema for the final message"),
    option(
        "--prices", metavar="FILE", help="what tokens cost, for the last line (else prices.json in the home)"
    ),
    flag("--ephemeral", "store nothing of the thread"),
    option("--thread-source", metavar="SOURCE", help="what a new thread is for, in its stored form"),
    flag("--dangerously-bypass-approvals-and-sandbox", "the same as -s danger-full-access"),
    flag("--skip-git-repo-check", "with --experimental-json: work in a folder without a git repository, too"),
    option("--cyber-access-program", metavar="PROGRAM", help="does nothing; for the SDKs of codex"),
    option("--color", metavar="WHEN", help="does nothing; for scripts that were written for codex"),
    group(
        "limits, which end the turn with exit status 3",
        option("--max-turns", type=positive, metavar="N", help="requests to the model"),
        option("--budget-tokens", type=positive, metavar="N", help="tokens, of input and output"),
        option("--timeout", type=duration, metavar="TIME", help="seconds, or as in 90s, 30m, 2h"),
    ),
    *TURN_SETTINGS,
)
ONE_TURN: Final = serving_itself(lambda: import_module("app_server.cli.exec.exec_run").run_exec)

COMMANDS: Final = (
    Subcommand(
        "exec",
        "run one turn without a person, for scripts and CI",
        [
            option(
                "prompt",
                nargs="*",
                metavar="PROMPT",
                help="what to do; stdin is added to it, or is all of it",
            ),
            PICTURE,
            DEMO,
            at_most_one(
                option("--resume", metavar="ID", help="go on with a stored thread"),
                flag("--resume-last", "go on with the newest thread here"),
                option("--fork", metavar="ID", help="go on with a copy of a stored thread"),
            ),
            defaults(last=False),
            *EXEC,
        ],
        ONE_TURN,
        'app-server exec "Does the changelog mention the new option?"',
        "git diff | app-server exec -s read-only -   # the prompt from stdin",
        'app-server exec resume --last "And the tests?"   # `exec fork` goes on in a copy',
        usage="[PROMPT...]",
    ),
    Subcommand(
        "exec resume",
        "run one more turn of a stored thread",
        [
            option("prompt", nargs="*", metavar="ID PROMPT", help="the thread, and what to do"),
            flag("--last", "the newest thread of the folder; no ID then"),
            PICTURE,
            defaults(demo=False),
            *EXEC,
        ],
        ONE_TURN,
        'app-server exec resume --last "And the tests?"   # the newest thread of this folder',
        "app-server exec resume 0199a213-81c0-7800-8aa1-bbab2a035a53 - <prompt.md",
        usage="[ID | --last] [PROMPT...]",
    ),
    Subcommand(
        "exec fork",
        "run one turn in a copy of a stored thread, which stays as it is",
        [
            option(
                "prompt",
                nargs="*",
                metavar="ID PROMPT",
                help="the thread, and what to do; nothing: only copy it",
            ),
            flag("--last", "the newest thread of the folder; no ID then"),
            PICTURE,
            defaults(demo=False),
            *EXEC,
        ],
        ONE_TURN,
        'app-server exec fork --last "And if it stays whole?"',
        "app-server exec fork 0199a213-81c0-7800-8aa1-bbab2a035a53   # prints the id of the copy",
        usage="[ID | --last] [PROMPT...]",
    ),
    Subcommand(
        "exec review",
        "review changes of the repository, or what you say",
        [
            option(
                "prompt", nargs="*", metavar="INSTRUCTIONS", help="what to look for; - reads them from stdin"
            ),
            at_most_one(
                flag("--uncommitted", "what is not committed: staged, unstaged and untracked"),
                option("--base", metavar="BRANCH", help="changes against a branch"),
                option("--commit", metavar="SHA", help="what a commit changed"),
            ),
            option("--title", metavar="TITLE", help="the subject of the commit, to be shown"),
            defaults(demo=False, image=None),
            *EXEC,
        ],
        ONE_TURN,
        "app-server exec review --uncommitted",
        "app-server exec review --base main -o review.md",
        usage="[--uncommitted | --base BRANCH | --commit SHA | INSTRUCTIONS...]",
    ),
)
