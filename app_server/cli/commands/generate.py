"""`app-server generate-json-schema` and `app-server generate-ts`: write the protocol."""

from __future__ import annotations

import argparse
from pathlib import Path

from app_server.cli.arguments import add_flag
from app_server.cli.command_parser import CommandParser
from app_server_protocol.export import main as export

FOLDERS = {"generate-json-schema": "schema", "generate-ts": "types"}
"""Folder of the examples, by command."""


def add_arguments(parser: CommandParser) -> None:
    example = f"app-server {parser.name} --out {FOLDERS[parser.name]}"
    parser.arguments = "--out DIR"
    parser.examples = (example, f"{example} --experimental")
    parser.add_argument("--out", "-o", required=True, metavar="DIR", help="the folder, which is made")
    add_flag(parser, "--experimental", help="with what a client has to ask for, in DIR/v2")


def run(args: argparse.Namespace) -> int:
    write = export.write_schemas if args.command == "generate-json-schema" else export.write_typescript
    write(Path(args.out), experimental=args.experimental)
    return 0
