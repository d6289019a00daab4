"""Loads everything that a server may ever need. One that lives for weeks would else read a module late, of a version
that was installed meanwhile.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import protocol as wire
from app_server.core import own_programs
from app_server.core.context import instructions
from app_server.shared.carried_programs import read_programs

PARTS = (
    *("apis", "assembly", "beneath", "connections", "conversations", "core", "identity", "lazy_engine"),
    *("logs", "machine"),
    *("masking", "places", "rpc", "server", "shared", "standard_streams", "startup", "transport"),
)
"""Parts of `app_server` that make a server."""

OTHER_PROGRAMS = (
    *("app_server.core.launcher", "app_server.core.sandbox.confine", "app_server.core.patch.apply_patch"),
    *(
        "app_server.core.files.model_reads",
        "app_server.core.telemetry.otlp",
        "app_server.shared.daemon_command",
    ),
    "protocol.export",
)
"""Modules below these that run in processes of their own, or are an extra that settings switch on (telemetry)."""

LIBRARIES = (
    *("anyio._backends._asyncio", "encodings.idna", "h11", "httpcore", "jsonschema", "pydantic", "tomlkit"),
    *("tree_sitter", "tree_sitter_bash", "ctypes", "difflib", "hashlib", "sqlite3", "ssl", "tempfile"),
)
"""What is imported inside of functions, here and in libraries."""


def load_everything() -> None:
    """Import all modules of the server and the libraries of all of them, and read the texts for models and the code of
    programs of ours that are started later.
    """
    for name in server_modules():
        __import__(name)
    for name in LIBRARIES:
        __import__(name)
    own_programs.carry(read_programs())
    for text in Path(instructions.__path__[0]).glob("*.md"):
        instructions.instruction_text(text.stem)


def server_modules() -> Iterator[str]:
    """Yield the names of all modules that a server may ever need. To walk a package is to import it."""
    yield from _modules_of("app_server.proxy.preface")
    for part in PARTS:
        yield from _modules_of(f"app_server.{part}")
    yield from _modules_of(wire.__name__)


def _modules_of(name: str) -> Iterator[str]:
    __import__(name)
    yield name
    for found in pkgutil.walk_packages(getattr(sys.modules[name], "__path__", ()), f"{name}."):
        if not found.name.startswith(OTHER_PROGRAMS):
            yield found.name
