"""Lazy imports: a module of ours that is imported as a module is executed when an attribute is first read.

1. `from app_server.engine.mcp import mcp_server` costs nothing until `mcp_server.McpServer` is read. The import is at
   the top of the file like all others; type checkers and tests see an ordinary import.
2. `from app_server.engine.mcp.mcp_server import McpServer` loads the module at once, as everywhere in Python.
3. So each importer decides: a name for what every first turn needs, a module for what it may do without.
4. A module reads no attribute of a lazy one while it is imported itself: else nothing is gained.

A process decides once, at its start, by `install`. Where nobody calls it, modules are executed when they are imported.
Loading is thread-safe: a second thread waits until the module is complete. A module that fails to load is tried anew.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec

PACKAGES: Final = ("app_server.", "app_server_protocol.")
"""Beginnings of the names of modules that may be lazy."""

_PLAIN: Final = frozenset(("__class__", "__loader__", "__name__", "__package__", "__path__", "__spec__"))
"""Attributes that the import system reads and writes; reading them loads nothing."""


class LazyModule(ModuleType):
    """A module that has not been executed."""

    def __getattribute__(self, name: str) -> Any:
        if name in _PLAIN:
            return ModuleType.__getattribute__(self, name)
        load(self)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _PLAIN:
            load(self)
        ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        load(self)
        ModuleType.__delattr__(self, name)


def load(module: ModuleType) -> None:
    """Execute a module if it is lazy and has not been executed. Raises the errors of its import."""
    if type(module) is not LazyModule:
        return
    attributes: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
    pending: _Deferral | None = attributes.get(_Deferral.__name__)
    if pending is None:
        return  # another thread has loaded it since
    with pending.lock:
        if type(module) is not LazyModule or pending.runs:
            return  # another thread has loaded it, or it reads its own attributes while it is executed
        pending.runs = True
        try:
            pending.loader.exec_module(module)
        finally:
            pending.runs = False
        del attributes[_Deferral.__name__]
        ModuleType.__setattr__(module, "__class__", ModuleType)


class _Deferral:
    """Loader of a lazy module. Each module has a lock of its own: like imports, loading can only wait in a circle if
    modules import each other.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.lock = threading.RLock()
        self.runs = False


class DeferringLoader:
    """Makes a lazy module of what another loader would execute."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        vars(module)[_Deferral.__name__] = _Deferral(self.loader)
        module.__class__ = LazyModule


class _Finder:
    """Finds the modules of this program."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGES):
            return None
        others = (each for each in sys.meta_path if each is not self)
        found = (each.find_spec(fullname, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
        if spec is None or spec.loader is None or spec.submodule_search_locations is not None:
            return None  # packages themselves are small
        # It has no ABC, whose module takes a fifth of the time until `initialize` is answered.
        spec.loader = DeferringLoader(spec.loader)  # type: ignore[assignment]
        return spec


def install() -> None:
    """Make modules of this program lazy that are imported from now on."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
