"""The table of methods of the thread API (0.171.0): the rows of all modules of this folder, which have its shapes, by
resource. A server loads rows as they are needed; a process that only speaks v1 loads none of them.
"""

from typing import Final

from app_server_protocol.method_table import Api, Table, table_of
from app_server_protocol.v2 import (
    account,
    checkpoints,
    commands,
    config,
    files,
    hook_listing,
    hook_runs,
    items,
    mcp,
    models,
    question,
    server,
    settings,
    skills,
    thread,
    thread_open,
    thread_store,
    thread_work,
    turn,
)

TABLE: Final[Table] = table_of(
    Api.V2,
    (
        account,
        checkpoints,
        commands,
        config,
        files,
        hook_listing,
        hook_runs,
        items,
        mcp,
        models,
        question,
        server,
        settings,
        skills,
        thread,
        thread_open,
        thread_store,
        thread_work,
        turn,
    ),
)
