"""`app-server threads …`: their arguments."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from app_server.commands.options import Subcommand, add_choice, add_settings, errand, positive, serving_itself


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--here", action="store_true", help="those of the working directory only")
    parser.add_argument(
        "--search", metavar="TEXT", help="those whose name or first message contains the text"
    )
    parser.add_argument("--archived", action="store_true", help="those in the archive")
    parser.add_argument("-n", "--limit", type=positive, default=20, metavar="N", help="so many; else 20")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser)


def _add_one(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", help="its id, or its name")
    add_settings(parser)


def _add_show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_one(parser)


def _add_export_arguments(parser: argparse.ArgumentParser) -> None:
    add_choice(parser, "--format", "FORMAT", "the form", ("markdown", "json"))
    parser.add_argument("-o", "--out", metavar="FILE", help="write a file instead of stdout")
    _add_one(parser)


def _add_rename_arguments(parser: argparse.ArgumentParser) -> None:
    _add_one(parser)
    parser.add_argument("name", metavar="NAME", help="its new name")


def _add_several(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("threads", nargs="+", metavar="THREAD", help="their ids, or their names")
    add_settings(parser)


def _add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")
    _add_several(parser)


COMMANDS: Final = (
    Subcommand(
        "threads list",
        "list stored threads, the latest first",
        _add_list_arguments,
        errand("threads", "list_threads"),
        "app-server threads list",
        "app-server threads list --here --search changelog   # of this folder, about something",
        "app-server threads list --limit 500 --json   # for a script",
    ),
    Subcommand(
        "threads show",
        "show what is known of a thread",
        _add_show_arguments,
        errand("threads", "show_thread"),
        "app-server threads show 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10   # by its id",
        'app-server threads show "the parser"   # by its name',
        usage="THREAD",
    ),
    Subcommand(
        "threads export",
        "write a thread as Markdown or JSON",
        _add_export_arguments,
        errand("threads", "export_thread"),
        'app-server threads export "the parser" -o parser.md',
        'app-server threads export --format json "the parser"   # every item, to stdout',
        usage="THREAD",
    ),
    Subcommand(
        "threads rename",
        "give a thread a name",
        _add_rename_arguments,
        errand("threads", "rename_thread"),
        'app-server threads rename 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10 "the parser"',
        'app-server threads rename "the parser" "the old parser"',
        usage="THREAD NAME",
    ),
    Subcommand(
        "threads archive",
        "take threads out of the list",
        _add_several,
        errand("threads", "archive_threads"),
        'app-server threads archive "the old parser"',
        "app-server threads list --archived   # what is in the archive",
        usage="THREAD...",
    ),
    Subcommand(
        "threads unarchive",
        "bring threads back into the list",
        _add_several,
        errand("threads", "unarchive_threads"),
        'app-server threads unarchive "the old parser"',
        "app-server threads unarchive 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10",
        usage="THREAD...",
    ),
    Subcommand(
        "threads delete",
        "delete threads for ever, after a question",
        _add_delete_arguments,
        serving_itself(lambda: import_module("app_server.errands.threads").run_delete),
        'app-server threads delete "the old parser"',
        "app-server threads delete --yes 01a1fc1f-0b5e-7cc1-a2f4-5e0d7f3b9d10   # without the question",
        usage="THREAD...",
    ),
)
