"""The protocol: the types of all messages, without I/O and without decisions."""

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Load the shapes of MCP when the annotations of a struct that names them are read: few conversations need them."""
    if name == "mcp":
        return import_module("app_server_protocol.mcp")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
