"""The Agent Client Protocol, version 1: the shapes of its stable part that this server sends or accepts."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from app_server_protocol.method_table import Api, Table, table_of


@cache
def table() -> Table:
    """Return the table of methods: the rows of all modules of this folder. A server loads rows as they are needed."""
    return table_of(
        Api.ACP, (import_module(f"app_server_protocol.acp.{each.name}") for each in iter_modules(__path__))
    )
