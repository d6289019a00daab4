"""The code of our programs that run in processes of their own, as one text each: a server that carries it starts them
without the installation.
"""

from __future__ import annotations

import binascii
import marshal
import zlib
from collections.abc import Sequence
from importlib.abc import InspectLoader
from importlib.util import find_spec

from app_server.core.own_programs import APPLY_PATCH, LAUNCHER, READER, WRITER

PARTS = {
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
    for name, parts in PARTS.items():
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
