"""The table of the Agent Client Protocol, the stable methods of version 1: the rows of all modules of this folder. For
readers of what is said; a server loads rows as they are needed.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from protocol import acp
from protocol.table import Api, table_of

TABLE: Final = table_of(
    Api.ACP, (import_module(f"protocol.acp.{each.name}") for each in iter_modules(acp.__path__))
)
