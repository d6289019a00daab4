"""`app-server threads …`: looks after stored threads."""

from __future__ import annotations

import argparse

from app_server.cli.admin import thread_commands
from app_server.cli.arguments import (
    add_choice,
    add_flag,
    add_json,
    add_settings,
    positive,
    prepare_own_server,
)
from app_server.cli.command_parser import CommandParser


def add_arguments(parser: CommandParser) -> None:
    listing = parser.add_command("list", "list stored threads, the latest first")
    listing.examples = (
        "app-server threads list",
        "app-server threads list --here --search changelog   # of this folder, about something",
        "app-server threads list --limit 500 --json   # for a script",
    )
    add_flag(listing, "--here", help="those of the working directory only")
    listing.add_argument(
        "--search", metavar="TEXT", help="those whose name or first message contains the text"
    )
    add_flag(listing, "--archived", help="those in the archive")
    listing.add_argument("-n", "--limit", type=positive, default=20, metavar="N", help="so many; else 20")
    add_json(listing)
    add_settings(listing)

    show = parser.add_command("show", "show what is known of a thread")
    show.examples = (
        "app-server threads show 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10   # by its id",
        'app-server threads show "the parser"   # by its name',
    )
    add_json(show)
    _add_thread(show)
    add_settings(show)

    export = parser.add_command("export", "write a thread as Markdown or JSON")
    export.examples = (
        'app-server threads export "the parser" -o parser.md',
        'app-server threads export --format json "the parser"   # every item, to stdout',
    )
    add_choice(export, "--format", metavar="FORMAT", help="the form", words=("markdown", "json"))
    export.add_argument("-o", "--out", metavar="FILE", help="write a file instead of stdout")
    _add_thread(export)
    add_settings(export)

    rename = parser.add_command("rename", "give a thread a name")
    rename.examples = (
        'app-server threads rename 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10 "the parser"',
        'app-server threads rename "the parser" "the old parser"',
    )
    _add_thread(rename)
    rename.arguments = "THREAD NAME"
    add_settings(rename)
    rename.add_argument("name", metavar="NAME", help="its new name")

    _add_rewind(parser)
    _add_changes(parser)


def _add_rewind(parser: CommandParser) -> None:
    """Add the command that goes back to a message."""
    rewind = parser.add_command("rewind", "go back to a message, with the files")
    rewind.examples = (
        'app-server threads rewind "the parser"   # which messages there are',
        'app-server threads rewind "the parser" --to 1   # what going back to the last one would do',
        'app-server threads rewind "the parser" --to 1 --restore files --yes',
    )
    _add_thread(rewind)
    rewind.add_argument("--to", metavar="N", help="a message by its number, or the id of a turn or restore")
    add_choice(
        rewind, "--restore", metavar="WHAT", help="what goes back", words=("both", "files", "conversation")
    )
    add_flag(rewind, "--uncertain", help="take back what may be yours, because a command ran when it changed")
    add_flag(rewind, "--merge", help="take the agent's part out of files that you have changed, too")
    add_flag(rewind, "--yes", help="do it; else it is only shown")
    add_json(rewind)
    add_settings(rewind)


def _add_changes(parser: CommandParser) -> None:
    """Add the commands that move or delete several threads."""
    archive = parser.add_command("archive", "take threads out of the list")
    archive.examples = (
        'app-server threads archive "the old parser"',
        "app-server threads list --archived   # what is in the archive",
    )
    _add_threads(archive)

    unarchive = parser.add_command("unarchive", "bring threads back into the list")
    unarchive.examples = (
        'app-server threads unarchive "the old parser"',
        "app-server threads unarchive 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10",
    )
    _add_threads(unarchive)

    delete = parser.add_command("delete", "delete threads for ever, after a question")
    delete.examples = (
        'app-server threads delete "the old parser"',
        "app-server threads delete --yes 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10   # without the question",
    )
    add_flag(delete, "--yes", help="do not ask")
    _add_threads(delete)


def _add_thread(parser: CommandParser) -> None:
    parser.arguments = "THREAD"
    parser.add_argument("thread", metavar="THREAD", help="its id, or its name")


def _add_threads(parser: CommandParser) -> None:
    parser.arguments = "THREAD..."
    parser.add_argument("threads", nargs="+", metavar="THREAD", help="their ids, or their names")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    prepare_own_server()
    return thread_commands.COMMANDS[args.command](args)
