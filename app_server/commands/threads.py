"""`app-server threads …`: their arguments."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from app_server.commands.options import CommandCode, add_choice, add_settings, positive, serving_itself


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


CODE: Final = {
    "threads list": CommandCode(
        _add_list_arguments, serving_itself(lambda: import_module("app_server.errands.threads").run_list)
    ),
    "threads show": CommandCode(
        _add_show_arguments, serving_itself(lambda: import_module("app_server.errands.threads").run_show)
    ),
    "threads export": CommandCode(
        _add_export_arguments, serving_itself(lambda: import_module("app_server.errands.threads").run_export)
    ),
    "threads rename": CommandCode(
        _add_rename_arguments, serving_itself(lambda: import_module("app_server.errands.threads").run_rename)
    ),
    "threads archive": CommandCode(
        _add_several, serving_itself(lambda: import_module("app_server.errands.threads").run_archive)
    ),
    "threads unarchive": CommandCode(
        _add_several, serving_itself(lambda: import_module("app_server.errands.threads").run_unarchive)
    ),
    "threads delete": CommandCode(
        _add_delete_arguments, serving_itself(lambda: import_module("app_server.errands.threads").run_delete)
    ),
}
