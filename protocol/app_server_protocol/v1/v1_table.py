"""The table of methods of the conversation API: the rows of all modules of this folder, which have parameters and
results, by resource. A server loads rows as they are needed.
"""

from typing import Final

from app_server_protocol.method_table import Api, Table, table_of
from app_server_protocol.v1 import approval, conversation, ops, setup, stored

TABLE: Final[Table] = table_of(Api.V1, (approval, conversation, ops, setup, stored))
