"""The table of the thread API: the rows of all modules of this folder."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from protocol import v2
from protocol.table import Api, table_of

TABLE: Final = table_of(
    Api.V2, (import_module(f"protocol.v2.{each.name}") for each in iter_modules(v2.__path__))
)
