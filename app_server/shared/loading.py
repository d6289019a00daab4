"""Loads everything that a server may ever need. One that lives for weeks would else read a module late, of a version
that was installed meanwhile.
"""

from __future__ import annotations

import pkgutil
from pathlib import Path

import app_server
import protocol as wire
from app_server.core.context import instructions

OTHER_PROGRAMS = (
    *("app_server.__main__", "app_server.cli", "app_server.commands", "app_server.settings_reference"),
    *(
        "app_server.batch",
        "app_server.chat",
        "app_server.client",
        "app_server.demo",
        "app_server.errands",
        "app_server.headless",
        "app_server.inspector",
    ),
    *(
        "app_server.in_process",
        "app_server.doctor",
        "app_server.diagnosis",
        "app_server.shared.daemon_command",
    ),
    *("app_server.core.launcher", "app_server.core.sandbox.confine", "app_server.core.patch.apply_patch"),
    *("app_server.core.files.model_reads", "app_server.core.telemetry.otlp", "protocol.export"),
)
"""What is no part of a server, runs in processes of its own, or is an extra that settings switch on (telemetry)."""

LIBRARIES = (
    *("anyio._backends._asyncio", "encodings.idna", "h11", "httpcore", "jsonschema", "pydantic", "tomlkit"),
    *("tree_sitter", "tree_sitter_bash", "ctypes", "difflib", "hashlib", "sqlite3", "ssl", "tempfile"),
)
"""What is imported inside of functions, here and in libraries."""


def load_everything() -> None:
    """Import all modules of the server and the libraries of all of them, and read the texts for models."""
    for package in (app_server, wire):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(OTHER_PROGRAMS):
                __import__(found.name)
    for name in LIBRARIES:
        __import__(name)
    for text in Path(instructions.__path__[0]).glob("*.md"):
        instructions.instruction_text(text.stem)
