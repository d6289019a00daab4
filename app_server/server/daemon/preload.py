"""Loads all modules that a server may ever need: a server that lives for weeks would otherwise import a module late,
from a version that was installed meanwhile. Its first client does not wait for that. Programs of this project that run
in processes of their own are stored as one text each, and started without the installation.
"""

from __future__ import annotations

import binascii
import errno
import logging
import marshal
import os
import pkgutil
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib.abc import InspectLoader
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import CodeType

import anyio
import anyio.lowlevel

import app_server_protocol as wire
from app_server.engine.context import instructions
from app_server.engine.model import catalogue
from app_server.engine.support import helpers
from app_server.engine.support.helpers import APPLY_PATCH, LAUNCHER, READER, WRITER
from app_server.engine.support.lazy_imports import DeferringLoader, load

log = logging.getLogger(__name__)

PARTS = (
    "app_server.server.apis",
    "app_server.server.engine_adapters",
    "app_server.server.model_clients",
    "app_server.server.server_settings",
    "app_server.engine.support.rooted_fs",
    "app_server.server.client_connection",
    "app_server.server.conversations",
    "app_server.engine",
    "app_server.server.bootstrap.descriptors",
    "app_server.engine.support.client_info",
    "app_server.server.engine_loader",
    "app_server.engine.support.light_dataclasses",
    "app_server.server.logs",
    "app_server.engine.system_ports",
    "app_server.engine.support.redaction",
    "app_server.server.proxy",
    "app_server.server.rpc",
    "app_server.server.composition",
    "app_server.server.daemon",
    "app_server.server.bootstrap.standard_streams",
    "app_server.server.bootstrap",
    "app_server.server.transport",
)
"""Parts of `app_server` that make up a server."""

OTHER_PROGRAMS = (
    *("app_server.engine.sandbox.launcher", "app_server.engine.workspace.patch.apply_patch"),
    *(
        "app_server.engine.workspace.files.model_reads",
        "app_server.engine.telemetry.otlp",
        "app_server.server.daemon.daemon_command",
    ),
    "app_server_protocol.export",
)
"""Modules of these parts that run in processes of their own, or are an optional extra that settings
enable (telemetry).
"""

LIBRARIES = (
    *(
        "anyio._backends._asyncio",
        "encodings.idna",
        "h11",
        "httpcore2",
        "httpx2",
        "jsonschema",
        "pydantic",
        "tomlkit",
    ),
    *("tree_sitter", "tree_sitter_bash", "ctypes", "difflib", "hashlib", "sqlite3", "ssl", "tempfile"),
)
"""Modules that are imported inside of functions, here and in libraries."""


QUIET_SECONDS = 0.3
"""Time without activity before a module is loaded, in seconds: a client that was just answered sends its next request
at once.
"""
SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
SHORTAGE_SECONDS = 1
"""Pause before loading is tried again after a shortage of resources, in seconds."""
LOOK_SECONDS = 0.05
LOADED_WITHIN = 10
"""Time after which a server that is never quiet loads nevertheless, one module at a time, in seconds."""


class InstallationChanged(Exception):
    """Raised if a part was loaded from another version, or no longer exists."""


def load_everything() -> None:
    """Load everything at once."""
    for _ in _steps():
        pass


async def load_in_quiet_moments(is_quiet: Callable[[], bool]) -> None:
    """Load everything while clients are served, whenever `is_quiet`. Raises InstallationChanged."""
    deadline = anyio.current_time() + LOADED_WITHIN
    await _quiet_moment(is_quiet, deadline)
    while True:
        try:
            for _ in _steps():
                await anyio.lowlevel.checkpoint()
                if not is_quiet():
                    await _quiet_moment(is_quiet, deadline)
            break
        except (ImportError, OSError) as error:
            if not _is_shortage(error):
                raise InstallationChanged from error
            log.warning("the rest is loaded later: %s", error)
        await anyio.sleep(SHORTAGE_SECONDS)
    if _installation() != _BEGAN_WITH:
        raise InstallationChanged


def _is_shortage(error: ImportError | OSError) -> bool:
    """Return whether a module could not be read because of a shortage of descriptors or memory; libraries report it in
    the text only.
    """
    return getattr(error, "errno", None) in SHORTAGES or any(
        os.strerror(each) in str(error) for each in SHORTAGES
    )


async def _quiet_moment(is_quiet: Callable[[], bool], deadline: float) -> None:
    since = anyio.current_time()
    while since < deadline and anyio.current_time() - since < QUIET_SECONDS:
        await anyio.sleep(LOOK_SECONDS)
        if not is_quiet():
            since = anyio.current_time()


def _steps() -> Iterator[None]:
    """Import all modules of the server and the libraries that they use, and read the texts for models, the catalogue of
    models, and the code of this project's programs that are started later.
    """
    for name in chain(server_modules(), LIBRARIES):
        __import__(name)
        load(sys.modules[name])
        yield
    helpers.carry(read_programs())
    for text in Path(instructions.__path__[0]).glob("*.md"):
        instructions.instruction_text(text.stem)
    catalogue.bundled()


def _installation() -> tuple[int, int]:
    """Return values that change when this package is installed again."""
    file = os.stat(f"{helpers.INSTALLED}/app_server/__init__.py")
    return file.st_ino, file.st_mtime_ns


_BEGAN_WITH = _installation()


def server_modules() -> Iterator[str]:
    """Yield the names of all modules that a server may ever need. To walk a package is to import it."""
    yield from _modules_of("app_server.server.proxy.connect")
    for part in PARTS:
        yield from _modules_of(part)
    yield from _modules_of(wire.__name__)


def _modules_of(name: str) -> Iterator[str]:
    __import__(name)
    load(sys.modules[name])
    yield name
    for found in pkgutil.walk_packages(getattr(sys.modules[name], "__path__", ()), f"{name}."):
        if not found.name.startswith(OTHER_PROGRAMS):
            yield found.name


UNPACKS = """\
import binascii, marshal, sys, zlib
class Carried:
    code = marshal.loads(zlib.decompress(binascii.a2b_base64({packed!r})))
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in cls.code:
            return type(sys.__spec__)(name, cls, is_package=cls.code[name][1] is None)
    @staticmethod
    def create_module(spec):
        pass
    @classmethod
    def exec_module(cls, module):
        module.__file__, code = cls.code[module.__name__]
        if code is not None:
            exec(code, module.__dict__)
sys.meta_path.insert(0, Carried)
"""


def read_programs() -> dict[str, str]:
    """Return the code of each program: a script that can import its modules, without any file."""
    read = {}
    for name in (WRITER, APPLY_PATCH, READER, LAUNCHER):
        packed = binascii.b2a_base64(zlib.compress(marshal.dumps(code_of(name))), newline=False).decode()
        read[name] = UNPACKS.format(packed=packed)
    return read


def code_of(program: str) -> dict[str, tuple[str | None, CodeType | None]]:
    """Return the files and the code of a program, of all modules of this project that it imports, and of their
    packages, which have no code.
    """
    found: dict[str, tuple[str | None, CodeType | None]] = {}
    waiting = [program]
    while waiting:
        name = waiting.pop()
        spec = None if name in found else find_spec(name)
        if spec is None:
            continue
        loader = spec.loader.loader if isinstance(spec.loader, DeferringLoader) else spec.loader
        assert isinstance(loader, InspectLoader), name
        is_package = spec.submodule_search_locations is not None
        found[name] = spec.origin, None if is_package else loader.get_code(name)
        waiting += _imported(found[name][1])
        if "." in name:
            waiting.append(name.rpartition(".")[0])
    return found


def _imported(code: object) -> Iterator[str]:
    """Yield the names of this project's modules that code imports, including imports in its functions. Any name from a
    package may be a module.
    """
    if isinstance(code, CodeType):
        for name in code.co_names:
            if name.startswith(("app_server.", f"{wire.__name__}.")):
                yield name
                if (spec := find_spec(name)) is not None and spec.submodule_search_locations is not None:
                    yield from (f"{name}.{part}" for part in code.co_names if "." not in part)
        for constant in code.co_consts:
            yield from _imported(constant)
