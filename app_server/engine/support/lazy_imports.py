"""Lazy imports: a module of ours that is imported as a module is executed when an attribute is first read.

1. `from app_server.engine.mcp import mcp_server` costs next to nothing until `mcp_server.McpServer` is read. The import
   is at the top of the file like all others; type checkers and tests see an ordinary import.
2. `from app_server.engine.mcp.mcp_server import McpServer` loads the module at once, as everywhere in Python.
3. So each importer decides: a name for what every first turn needs, a module for what it may do without.
4. A module reads no attribute of a lazy one while it is imported itself: else nothing is gained.

A process decides once, at its start, by `install`. Where nobody calls it, modules are executed when they are imported.
Loading is thread-safe: a second thread waits until the module is complete. A module that fails to load is tried anew.

A start imports some three hundred modules of ours, so how each is found and read counts: a source next to its compiled
form, as installed, takes a third of the calls that the standard library makes. Everything else is left to that.
"""

from __future__ import annotations

import marshal
import sys
from _thread import RLock
from collections.abc import Sequence
from importlib._bootstrap_external import MAGIC_NUMBER
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder, SourceFileLoader
from os import stat
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.abc import Loader

PACKAGES: Final = ("app_server.", "app_server_protocol.")
"""Beginnings of the names of modules that may be lazy."""

_PLAIN: Final = frozenset(
    ("__cached__", "__class__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__")
)
"""Attributes that the import system reads and writes; reading them loads nothing. Tools (`inspect`, debuggers) read the
file of each module that there is.
"""

_ELSEWHERE: Final = (BuiltinImporter, FrozenImporter)
"""Finders of the interpreter's own modules; none of ours is among them."""

_COMPILED: Final = (
    None if sys.flags.optimize or sys.pycache_prefix else f".{sys.implementation.cache_tag}.pyc"
)
"""End of the name of a compiled file; None if its name is made in an unusual way."""

_HEADER: Final = MAGIC_NUMBER + bytes(4)
"""Beginning of a compiled file that is valid for the date and the size of its source, which come next."""

_read = ModuleType.__getattribute__
_write = ModuleType.__setattr__


class LazyModule(ModuleType):
    """A module that has not been executed."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _PLAIN:
            load(self)
        return _read(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _PLAIN:
            load(self)
        _write(self, name, value)

    def __delattr__(self, name: str) -> None:
        load(self)
        ModuleType.__delattr__(self, name)


class DeferringLoader:
    """Loader of a lazy module, which another loader executes. Each module has a lock of its own: like imports, loading
    can only wait in a circle if modules import each other. It has no ABC, whose module takes a fifth of the time until
    `initialize` is answered.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.create_module = loader.create_module
        self.lock = RLock()
        self.runs = False

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = LazyModule


class InstalledModule(SourceFileLoader):
    """Loader of a module whose source is a file, with its compiled form in the usual place or without one."""

    def __init__(self, fullname: str, path: str, compiled: str) -> None:
        self.name, self.path, self.compiled = fullname, path, compiled

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the module. A compiled file that is not exactly as expected is left to the standard
        library, which also writes a new one.
        """
        try:
            source = stat(self.path)
            data = self.get_data(self.compiled)
            if data[:16] == b"%b%b%b" % (_HEADER, _four_bytes(source.st_mtime), _four_bytes(source.st_size)):
                code = marshal.loads(memoryview(data)[16:])
                if type(code) is CodeType and code.co_filename == self.path:
                    return code
        except (OSError, EOFError, ValueError, TypeError):
            pass
        return super().get_code(fullname)


def _four_bytes(number: float) -> bytes:
    return (int(number) & 0xFFFFFFFF).to_bytes(4, "little")


def load(module: ModuleType) -> None:
    """Execute a module if it is lazy and has not been executed. Raises the errors of its import."""
    if type(module) is not LazyModule:
        return
    spec: ModuleSpec = _read(module, "__spec__")
    pending: object = spec.loader
    if not isinstance(pending, DeferringLoader):
        return  # another thread has loaded it since
    with pending.lock:
        if type(module) is not LazyModule or pending.runs:
            return  # another thread has loaded it, or it reads its own attributes while it is executed
        pending.runs = True
        try:
            _execute(pending.loader, module)
        finally:
            pending.runs = False
        spec.loader = pending.loader
        _write(module, "__class__", ModuleType)


def _execute(loader: Loader, module: ModuleType) -> None:
    _write(module, "__loader__", loader)
    code = loader.get_code(loader.name) if type(loader) is InstalledModule else None
    if code is None:
        loader.exec_module(module)
    else:
        exec(code, _read(module, "__dict__"))  # as that does, with half the calls


class _Finder:
    """Finds the modules of this program."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGES):
            return None
        spec = self._find(fullname, path, target)
        if spec is not None and spec.loader is not None and spec.submodule_search_locations is None:
            spec.loader = DeferringLoader(spec.loader)  # type: ignore[assignment]
        return spec  # packages themselves are small

    def _find(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """Ask the other finders in their order, but do the usual work of `PathFinder` here."""
        for finder in sys.meta_path:
            if finder is self or finder in _ELSEWHERE:
                continue
            spec = _installed(fullname, path) if finder is PathFinder else None
            if spec is None:
                spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None


def _installed(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of a module or package whose source is in the folder of its package; None if it is no file
    there.
    """
    if not path or _COMPILED is None:
        return None
    folder, name = path[0], fullname.rpartition(".")[2]
    if _exists(f"{folder}/{name}.py"):
        return _spec(fullname, folder, name)
    folder = f"{folder}/{name}"
    if not _exists(f"{folder}/__init__.py"):
        return None
    spec = _spec(fullname, folder, "__init__")
    spec.submodule_search_locations = [folder]
    return spec


def _spec(fullname: str, folder: str, name: str) -> ModuleSpec:
    file, compiled = f"{folder}/{name}.py", f"{folder}/__pycache__/{name}{_COMPILED}"
    spec = ModuleSpec(fullname, InstalledModule(fullname, file, compiled), origin=file)
    spec.has_location, spec.cached = True, compiled
    return spec


def _exists(file: str) -> bool:
    try:
        stat(file)
    except OSError:
        return False
    return True


def install() -> None:
    """Make modules of this program lazy that are imported from now on."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
