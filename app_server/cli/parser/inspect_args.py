"""Commands for authors of front ends: `inspect`, `generate-json-schema`, `generate-ts`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from app_server.cli.parser.arguments import Subcommand, flag, option


def _inspect(args: argparse.Namespace) -> int:
    from app_server.cli.inspect.inspect_command import run_inspector  # noqa: PLC0415  takes a while

    return run_inspector(args)


def _generate(args: argparse.Namespace) -> int:
    from app_server_protocol.export import main as export  # noqa: PLC0415  a tool, which loads all shapes

    write = export.write_schemas if args.command == "generate-json-schema" else export.write_typescript
    write(Path(args.out), experimental=args.experimental)
    return 0


OUT: Final = option("--out", "-o", required=True, metavar="DIR", help="the folder, which is made")
EXPERIMENTAL: Final = flag("--experimental", "with what a client has to ask for, in DIR/v2")

COMMANDS: Final = (
    Subcommand(
        "inspect",
        "show, or record, what a server and its client say",
        [
            option("--record", metavar="FILE", help="record the session; no page, unless --page is given"),
            flag("--page", "show the page, though the session is recorded"),
            option("--open", metavar="FILE", help="show a session that was saved, until interrupted"),
            option("--replay", metavar="FILE", help="play the client of a session that was saved; no page"),
            option("--url-file", metavar="FILE", help="write the address of the page there, too"),
            option("server", nargs="*", metavar="-- SERVER ARG", help="the server, and its arguments"),
        ],
        _inspect,
        "app-server inspect -- app-server   # a page with the live stream",
        "app-server inspect --record session.jsonl -- app-server   # a file, and no page",
        usage="-- SERVER [ARG...]",
    ),
    Subcommand(
        "generate-json-schema",
        "write the protocol's JSON Schemas",
        [
            OUT,
            EXPERIMENTAL,
        ],
        _generate,
        "app-server generate-json-schema --out schema",
        "app-server generate-json-schema --out schema --experimental",
        usage="--out DIR",
    ),
    Subcommand(
        "generate-ts",
        "write the protocol's TypeScript types",
        [
            OUT,
            EXPERIMENTAL,
        ],
        _generate,
        "app-server generate-ts --out types",
        "app-server generate-ts --out types --experimental",
        usage="--out DIR",
    ),
)
