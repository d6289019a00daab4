"""The table of the conversation API: the rows of all modules of this folder."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from protocol import v1
from protocol.table import Api, table_of

TABLE: Final = table_of(
    Api.V1, (import_module(f"protocol.v1.{each.name}") for each in iter_modules(v1.__path__))
)
