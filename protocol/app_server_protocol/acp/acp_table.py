"""The table of methods of the Agent Client Protocol, version 1: the rows of all modules of this folder, which have the
shapes of its stable part that this server sends or accepts. A server loads rows as they are needed.
"""

from typing import Final

from app_server_protocol.acp import requests, sessions, tool_calls
from app_server_protocol.method_table import Api, Table, table_of

TABLE: Final[Table] = table_of(Api.ACP, (requests, sessions, tool_calls))
