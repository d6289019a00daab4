"""The subcommands of `app-server`: a row for each.

The code of a command is in a module of this package, which is loaded when the command is parsed; what takes time to
import is loaded by that module when the command is run. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app_server.commands.rows import BUILD, SERVE, USE, Example, Subcommand
from app_server.commands.sharing_table import DAEMON
from app_server.commands.upkeep_table import THREADS, UPKEEP

FAMILIES: Final[Mapping[str, str]] = {
    "threads": "list, show, rename, archive, delete and export stored threads",
    "mcp": "list, add and remove MCP servers, and log in at them",
    "config": "show and change settings",
    "daemon": "start, show and end the server that all clients share",
}
"""First words of commands with two, with what these are for."""


BATCHES: Final = (
    Subcommand(
        "batch",
        USE,
        "run many tasks at once, from a file",
        "TASKS.jsonl -o OUT",
        "batches",
        (
            Example("app-server batch --demo", "ten tasks with a scripted model: no key, no network"),
            Example("app-server batch tasks.jsonl -o out --jobs 8", "the same line again goes on"),
            Example("app-server batch tasks.jsonl -o out --dry-run", "check everything, run nothing"),
        ),
    ),
    Subcommand(
        "batch status",
        USE,
        "say how a batch stands, while it runs and after",
        "OUT",
        "batches",
        (Example("app-server batch status out"), Example("app-server batch status out --json")),
    ),
    Subcommand(
        "batch retry",
        USE,
        "run tasks of a batch again",
        "OUT",
        "batches",
        (
            Example("app-server batch retry out", "those that failed"),
            Example("app-server batch retry out --id django-123,django-124", "these"),
        ),
    ),
    Subcommand(
        "batch merge",
        USE,
        "bring the results of shards together in one folder",
        "OUT FROM...",
        "batches",
        (
            Example("app-server batch merge out shard-1 shard-2"),
            Example("app-server batch merge out shard-*"),
        ),
    ),
)

COMMANDS: Final = (
    Subcommand(
        "app-server",
        SERVE,
        "serve stdin and stdout; the same as no command",
        "",
        "serving",
        (
            Example("app-server"),
            Example("app-server -c model=gpt-5 -s read-only", "with settings that go before config.toml"),
        ),
    ),
    Subcommand(
        "acp",
        SERVE,
        "serve stdin and stdout in the Agent Client Protocol",
        "",
        "serving",
        (Example("app-server acp"), Example("app-server acp -m gpt-5", "with another model")),
    ),
    Subcommand(
        "proxy",
        SERVE,
        "serve stdin and stdout by one server for all clients, which is started where there is none",
        "[acp]",
        "sharing",
        (
            Example("app-server proxy"),
            Example("app-server proxy acp", "for editors that speak the Agent Client Protocol"),
            Example("ssh HOST app-server proxy", "with the server of another machine"),
        ),
    ),
    Subcommand(
        "chat",
        USE,
        "talk to it in the terminal",
        "[PROMPT...]",
        "talking",
        (
            Example('app-server chat -i shot.png "Why is the button cut off?"', "with a picture"),
            Example("app-server chat resume", "choose a stored thread; `chat fork` goes on in a copy"),
            Example("app-server chat --demo", "with a scripted model: no key, no network"),
        ),
    ),
    Subcommand(
        "chat resume",
        USE,
        "go on with a stored thread",
        "[ID | --last] [PROMPT...]",
        "talking",
        (
            Example("app-server chat resume", "choose among the stored threads"),
            Example('app-server chat resume --last "And the tests?"', "the newest thread of this folder"),
        ),
    ),
    Subcommand(
        "chat fork",
        USE,
        "go on in a copy of a stored thread, which stays as it is",
        "[ID | --last] [PROMPT...]",
        "talking",
        (
            Example("app-server chat fork", "choose among the stored threads"),
            Example("app-server chat fork --last", "the newest thread of this folder"),
        ),
    ),
    Subcommand(
        "exec",
        USE,
        "run one turn without a person, for scripts and CI",
        "[PROMPT...]",
        "talking",
        (
            Example('app-server exec "Does the changelog mention the new option?"'),
            Example("git diff | app-server exec -s read-only -", "the prompt from stdin"),
            Example('app-server exec --resume-last "And the tests?"', "go on with the newest thread here"),
        ),
    ),
    *BATCHES,
    *THREADS,
    Subcommand(
        "demo",
        USE,
        "play a conversation with a scripted model: no key, no network",
        "",
        "talking",
        (Example("app-server demo"), Example("app-server demo --yes", "approve what is asked")),
    ),
    Subcommand(
        "inspect",
        BUILD,
        "show, or record, what a server and its client say",
        "-- SERVER [ARG...]",
        "building",
        (
            Example("app-server inspect -- app-server", "a page with the live stream"),
            Example("app-server inspect --record session.jsonl -- app-server", "a file, and no page"),
        ),
    ),
    Subcommand(
        "generate-json-schema",
        BUILD,
        "write the protocol's JSON Schemas",
        "--out DIR",
        "building",
        (
            Example("app-server generate-json-schema --out schema"),
            Example("app-server generate-json-schema --out schema --experimental"),
        ),
    ),
    Subcommand(
        "generate-ts",
        BUILD,
        "write the protocol's TypeScript types",
        "--out DIR",
        "building",
        (
            Example("app-server generate-ts --out types"),
            Example("app-server generate-ts --out types --experimental"),
        ),
    ),
    *DAEMON,
    *UPKEEP,
)
