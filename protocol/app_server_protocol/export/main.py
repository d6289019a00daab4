"""The tables as files: `schema/` and `schema/v2/` (one JSON Schema per type, and a bundle), TypeScript,
`docs/protocol.md` and `docs/threads-reference.md`.

`python -m app_server_protocol.export` writes schemas and documentation below the current directory, `--docs` only the
documentation; `--check` writes nothing and exits 1 with the list of files that are not current. This is the
only module here that touches files.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from app_server_protocol.export import guide, schemas, typescript, written
from app_server_protocol.export.schemas import Schema
from app_server_protocol.v1 import v1_table
from app_server_protocol.v2 import v2_table

BUNDLE: Final = "app_server_protocol.schemas.json"
EXPERIMENTAL_BUNDLE: Final = "app_server_protocol.experimental.schemas.json"
SCHEMA_FOLDER: Final = Path("schema")
THREADS: Final = "v2"
"""Folder of the thread API, inside that of the conversation API."""

DOCUMENTATION: Final = Path("docs") / "protocol.md"
THREADS_REFERENCE: Final = Path("docs") / "threads-reference.md"

_FILE_NAME: Final = re.compile(r"\w+")


def schema_files() -> dict[str, str]:
    """Return every schema file of the conversation API: texts by names."""
    return _files_of(schemas.bundle("AppServerProtocol", schemas.definitions()))


def thread_schema_files(*, experimental: bool = False) -> dict[str, str]:
    """Return every schema file of the thread API; experimental parts are in a bundle of their own, or in every file."""
    stable, whole = (
        schemas.bundle("AppServerThreadProtocol", schemas.thread_definitions(experimental=each))
        for each in (False, True)
    )
    return _files_of(whole) if experimental else _files_of(stable) | {EXPERIMENTAL_BUNDLE: _text(whole)}


def _files_of(whole: Schema) -> dict[str, str]:
    definitions: Mapping[str, Schema] = whole["definitions"]
    made = {
        f"{name}.json": _text(schemas.alone(name, definitions))
        for name in definitions
        if _FILE_NAME.fullmatch(name)
    }
    made[BUNDLE] = _text(whole)
    return made


def write_schemas(folder: Path, *, experimental: bool = False) -> list[Path]:
    """Write one JSON Schema per type and the bundle, for each API; return the written files."""
    threads = thread_schema_files(experimental=experimental)
    return _write(folder, schema_files()) + _write(folder / THREADS, threads)


def write_typescript(folder: Path, *, experimental: bool = False) -> list[Path]:
    """Write one TypeScript file per type and an index, for each API; return the written files."""
    conversations = written.as_written(schemas.definitions(marked=True), v1_table.TABLE)
    threads = written.as_written(
        schemas.thread_definitions(experimental=experimental, marked=True), v2_table.TABLE
    )
    return _write(folder, typescript.files(conversations, threads))


def documentation() -> dict[Path, str]:
    """Return the pages about both APIs: texts by paths."""
    whole, stable = (schemas.thread_definitions(experimental=each) for each in (True, False))
    threads = guide.thread_page(whole, stable)
    return {DOCUMENTATION: guide.page(schemas.definitions()), THREADS_REFERENCE: threads}


def generated_files() -> dict[Path, str]:
    """Return every generated file of a checkout: texts by paths relative to the checkout."""
    made = {SCHEMA_FOLDER / name: text for name, text in schema_files().items()}
    made |= {SCHEMA_FOLDER / THREADS / name: text for name, text in thread_schema_files().items()}
    return made | documentation()


def stale_files(root: Path, wanted: Mapping[Path, str]) -> list[Path]:
    """Return the generated files below `root`, relative to it, that are missing, outdated or no longer generated."""
    there = (path.relative_to(root) for path in (root / SCHEMA_FOLDER).rglob("*.json"))
    left_over = {path for path in there if path not in wanted}
    differing = {path for path, text in wanted.items() if _read(root / path) != text}
    return sorted(left_over | differing)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m app_server_protocol.export", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    parser.add_argument("--docs", action="store_true", help="write only the documentation")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout, default: here")
    options = parser.parse_args(argv)
    root: Path = options.root
    if options.docs:
        _write(root, documentation())
        return 0
    wanted = generated_files()
    stale = stale_files(root, wanted)
    if options.check:
        sys.stdout.writelines(f"not current: {path}\n" for path in stale)
        return 1 if stale else 0
    for path in stale:
        (root / path).unlink(missing_ok=True)
    _write(root, wanted)
    return 0


def _write(folder: Path, texts: Mapping[str, str] | Mapping[Path, str]) -> list[Path]:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _text(document: Schema) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
