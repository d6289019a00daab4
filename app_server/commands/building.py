"""Commands for authors of front ends: `inspect`, `generate-json-schema`, `generate-ts`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from app_server.commands.options import Subcommand


def _add_inspect_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record", metavar="FILE", help="record the session; no page, unless --page is given"
    )
    parser.add_argument("--page", action="store_true", help="show the page, though the session is recorded")
    parser.add_argument("--open", metavar="FILE", help="show a session that was saved, until interrupted")
    parser.add_argument(
        "--replay", metavar="FILE", help="play the client of a session that was saved; no page"
    )
    parser.add_argument("--url-file", metavar="FILE", help="write the address of the page there, too")
    parser.add_argument("server", nargs="*", metavar="-- SERVER ARG", help="the server, and its arguments")


def _inspect(args: argparse.Namespace) -> int:
    from app_server.inspector.inspect_command import run_inspector  # noqa: PLC0415  takes a while

    return run_inspector(args)


def _add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", "-o", required=True, metavar="DIR", help="the folder, which is made")
    parser.add_argument(
        "--experimental", action="store_true", help="with what a client has to ask for, in DIR/v2"
    )


def _generate(args: argparse.Namespace) -> int:
    from protocol.export import main as export  # noqa: PLC0415  a tool, which loads all shapes

    write = export.write_schemas if args.command == "generate-json-schema" else export.write_typescript
    write(Path(args.out), experimental=args.experimental)
    return 0


COMMANDS: Final = (
    Subcommand(
        "inspect",
        "show, or record, what a server and its client say",
        _add_inspect_arguments,
        _inspect,
        "app-server inspect -- app-server   # a page with the live stream",
        "app-server inspect --record session.jsonl -- app-server   # a file, and no page",
        usage="-- SERVER [ARG...]",
    ),
    Subcommand(
        "generate-json-schema",
        "write the protocol's JSON Schemas",
        _add_generate_arguments,
        _generate,
        "app-server generate-json-schema --out schema",
        "app-server generate-json-schema --out schema --experimental",
        usage="--out DIR",
    ),
    Subcommand(
        "generate-ts",
        "write the protocol's TypeScript types",
        _add_generate_arguments,
        _generate,
        "app-server generate-ts --out types",
        "app-server generate-ts --out types --experimental",
        usage="--out DIR",
    ),
)
