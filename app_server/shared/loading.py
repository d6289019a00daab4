"""Loads everything that a server may ever need: one that lives for weeks would else read a module late, of a version
that was installed meanwhile. Its first client does not wait for that. Programs of ours that run in processes of their
own are carried as one text each, and started without the installation.
"""

from __future__ import annotations

import binascii
import marshal
import os
import pkgutil
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import InspectLoader
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import anyio
import anyio.lowlevel

import protocol as wire
from app_server.core import own_programs
from app_server.core.context import instructions
from app_server.core.own_programs import APPLY_PATCH, LAUNCHER, READER, WRITER

PARTS = (
    *("apis", "assembly", "beneath", "connections", "conversations", "core", "identity", "lazy_engine"),
    *("logs", "machine"),
    *("masking", "places", "rpc", "server", "shared", "standard_streams", "startup", "transport"),
)
"""Parts of `app_server` that make a server."""

OTHER_PROGRAMS = (
    *("app_server.core.launcher", "app_server.core.patch.apply_patch"),
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


QUIET_SECONDS = 0.3
"""So long nothing goes on before something is loaded: a client that has just been answered asks again at once."""
LOOK_SECONDS = 0.05
LOADED_WITHIN = 10
"""Seconds after which a server that is never quiet loads all the same, a module at a time."""


class InstallationChanged(Exception):
    """A part was loaded of another version, or is not there any more."""


def load_everything() -> None:
    """Load all of it at once."""
    for _ in _steps():
        pass


async def load_in_quiet_moments(is_quiet: Callable[[], bool]) -> None:
    """Load all of it while clients are served, whenever `is_quiet`. Raises InstallationChanged."""
    deadline = anyio.current_time() + LOADED_WITHIN
    await _quiet_moment(is_quiet, deadline)
    try:
        for _ in _steps():
            await anyio.lowlevel.checkpoint()
            if not is_quiet():
                await _quiet_moment(is_quiet, deadline)
    except (ImportError, OSError) as error:
        raise InstallationChanged from error
    if _installation() != _BEGAN_WITH:
        raise InstallationChanged


async def _quiet_moment(is_quiet: Callable[[], bool], deadline: float) -> None:
    since = anyio.current_time()
    while since < deadline and anyio.current_time() - since < QUIET_SECONDS:
        await anyio.sleep(LOOK_SECONDS)
        if not is_quiet():
            since = anyio.current_time()


def _steps() -> Iterator[None]:
    """Import all modules of the server and the libraries of all of them, and read the texts for models and the code of
    programs of ours that are started later.
    """
    for name in chain(server_modules(), LIBRARIES):
        __import__(name)
        yield
    own_programs.carry(read_programs())
    for text in Path(instructions.__path__[0]).glob("*.md"):
        instructions.instruction_text(text.stem)


def _installation() -> tuple[int, int]:
    """Return what changes when this package is installed anew."""
    file = os.stat(f"{own_programs.INSTALLED}/app_server/__init__.py")
    return file.st_ino, file.st_mtime_ns


_BEGAN_WITH = _installation()


def server_modules() -> Iterator[str]:
    """Yield the names of all modules that a server may ever need. To walk a package is to import it."""
    yield from _modules_of("app_server.proxy.meeting")
    for part in PARTS:
        yield from _modules_of(f"app_server.{part}")
    yield from _modules_of(wire.__name__)


def _modules_of(name: str) -> Iterator[str]:
    __import__(name)
    yield name
    for found in pkgutil.walk_packages(getattr(sys.modules[name], "__path__", ()), f"{name}."):
        if not found.name.startswith(OTHER_PROGRAMS):
            yield found.name


PROGRAMS = {
    WRITER: ("app_server.core.patch.write_steps",),
    APPLY_PATCH: (
        *("app_server.beneath", "app_server.core.errors", "app_server.core.patch.atomic_writer"),
        *("app_server.core.patch.disk_files", "app_server.core.patch.hunks", "app_server.core.patch.parse"),
        *("app_server.core.patch.planner", "app_server.core.patch.write_steps"),
        *("app_server.core.real_path", "protocol.engine.errors", "protocol.light_dataclasses"),
    ),
    READER: (
        *("app_server.beneath", "app_server.core.files.ignore", "app_server.core.files.walk"),
        *("app_server.core.real_path", "protocol.light_dataclasses"),
    ),
    LAUNCHER: (
        *("app_server.core.launcher.descendants", "app_server.core.launcher.enforce"),
        *("app_server.core.launcher.light", "app_server.core.launcher.namespaces"),
        *("app_server.core.launcher.placeholder_dirs", "app_server.core.launcher.prepared"),
        *("app_server.core.launcher.seccomp", "app_server.core.launcher.socket_broker"),
        *("app_server.core.launcher.sockets", "app_server.core.launcher.supervisor"),
        *("app_server.core.launcher.syscalls", "app_server.core.launcher.wire"),
        "protocol.light_dataclasses",
    ),
}
"""What each imports of this package and of `protocol`."""

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
    for name, parts in PROGRAMS.items():
        code = {part: _code_of(part) for part in (*_packages((name, *parts)), name, *parts)}
        packed = binascii.b2a_base64(zlib.compress(marshal.dumps(code)), newline=False).decode()
        read[name] = UNPACKS.format(packed=packed)
    return read


def _packages(names: Sequence[str]) -> list[str]:
    return sorted({name[:end] for name in names for end, char in enumerate(name) if char == "."})


def _code_of(name: str) -> tuple[str | None, object]:
    """Return the file and the code of a module; no code for a package."""
    spec = find_spec(name)
    assert spec is not None
    assert isinstance(spec.loader, InspectLoader), name
    is_package = spec.submodule_search_locations is not None
    return spec.origin, None if is_package else spec.loader.get_code(name)
