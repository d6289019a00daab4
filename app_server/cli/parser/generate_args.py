"""Arguments of commands that write the protocol: `generate-json-schema`, `generate-ts`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from app_server.cli.parser.arguments import Subcommand, flag, option


def _generate(args: argparse.Namespace) -> int:
    from app_server_protocol.export import main as export  # noqa: PLC0415  a tool, which loads all shapes

    write = export.write_schemas if args.command == "generate-json-schema" else export.write_typescript
    write(Path(args.out), experimental=args.experimental)
    return 0


OUT: Final = option("--out", "-o", required=True, metavar="DIR", help="the folder, which is made")
EXPERIMENTAL: Final = flag("--experimental", "with what a client has to ask for, in DIR/v2")

COMMANDS: Final = (
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
