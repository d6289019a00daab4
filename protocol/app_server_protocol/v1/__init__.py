"""The conversation API: parameters and results, by resource."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from app_server_protocol.method_table import Api, Table, table_of


@cache
def table() -> Table:
    """Return the table of methods: the rows of all modules of this folder. A server loads rows as they are needed."""
    return table_of(
        Api.V1, (import_module(f"app_server_protocol.v1.{each.name}") for each in iter_modules(__path__))
    )
