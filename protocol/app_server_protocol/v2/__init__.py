"""The shapes of the thread API (0.171.0), by resource. A process that only speaks v1 does not load them."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from app_server_protocol.method_table import Api, Table, table_of


@cache
def table() -> Table:
    """Return the table of methods: the rows of all modules of this folder. A server loads rows as they are needed."""
    return table_of(
        Api.V2, (import_module(f"app_server_protocol.v2.{each.name}") for each in iter_modules(__path__))
    )
