"""The commands `app-server threads …`."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from app_server.cli.parser.arguments import (
    JSON,
    SETTINGS,
    Subcommand,
    choice,
    flag,
    one_shot,
    option,
    positive,
    serving_itself,
)

THREAD: Final = option("thread", metavar="THREAD", help="its id, or its name")
THREADS: Final = option("threads", nargs="+", metavar="THREAD", help="their ids, or their names")

COMMANDS: Final = (
    Subcommand(
        "threads list",
        "list stored threads, the latest first",
        [
            flag("--here", "those of the working directory only"),
            option("--search", metavar="TEXT", help="those whose name or first message contains the text"),
            flag("--archived", "those in the archive"),
            option("-n", "--limit", type=positive, default=20, metavar="N", help="so many; else 20"),
            JSON,
            SETTINGS,
        ],
        one_shot("thread_commands", "list_threads"),
        "app-server threads list",
        "app-server threads list --here --search changelog   # of this folder, about something",
        "app-server threads list --limit 500 --json   # for a script",
    ),
    Subcommand(
        "threads show",
        "show what is known of a thread",
        [JSON, THREAD, SETTINGS],
        one_shot("thread_commands", "show_thread"),
        "app-server threads show 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10   # by its id",
        'app-server threads show "the parser"   # by its name',
        usage="THREAD",
    ),
    Subcommand(
        "threads export",
        "write a thread as Markdown or JSON",
        [
            choice("--format", "FORMAT", "the form", ("markdown", "json")),
            option("-o", "--out", metavar="FILE", help="write a file instead of stdout"),
            THREAD,
            SETTINGS,
        ],
        one_shot("thread_commands", "export_thread"),
        'app-server threads export "the parser" -o parser.md',
        'app-server threads export --format json "the parser"   # every item, to stdout',
        usage="THREAD",
    ),
    Subcommand(
        "threads rename",
        "give a thread a name",
        [
            THREAD,
            SETTINGS,
            option("name", metavar="NAME", help="its new name"),
        ],
        one_shot("thread_commands", "rename_thread"),
        'app-server threads rename 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10 "the parser"',
        'app-server threads rename "the parser" "the old parser"',
        usage="THREAD NAME",
    ),
    Subcommand(
        "threads archive",
        "take threads out of the list",
        [THREADS, SETTINGS],
        one_shot("thread_commands", "archive_threads"),
        'app-server threads archive "the old parser"',
        "app-server threads list --archived   # what is in the archive",
        usage="THREAD...",
    ),
    Subcommand(
        "threads unarchive",
        "bring threads back into the list",
        [THREADS, SETTINGS],
        one_shot("thread_commands", "unarchive_threads"),
        'app-server threads unarchive "the old parser"',
        "app-server threads unarchive 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10",
        usage="THREAD...",
    ),
    Subcommand(
        "threads delete",
        "delete threads for ever, after a question",
        [
            flag("--yes", "do not ask"),
            THREADS,
            SETTINGS,
        ],
        serving_itself(lambda: import_module("app_server.cli.admin.thread_commands").run_delete),
        'app-server threads delete "the old parser"',
        "app-server threads delete --yes 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10   # without the question",
        usage="THREAD...",
    ),
)
