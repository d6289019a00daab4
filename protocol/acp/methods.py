"""The table of the Agent Client Protocol: the stable methods of version 1, whose rows are beside their shapes. For
readers of what is said; a server loads rows as they are needed.
"""

from typing import Final

from protocol.acp.prompt import CANCEL, CANCEL_REQUEST, PROMPT, STEERING
from protocol.acp.requests import (
    AUTHENTICATE,
    CLOSE_SESSION,
    DELETE_SESSION,
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    LOGOUT,
    RESUME_SESSION,
    SET_CONFIG_OPTION,
    SET_MODE,
)
from protocol.acp.session import NEW_SESSION
from protocol.acp.tool_calls import (
    CREATE_ELICITATION,
    READ_TEXT_FILE,
    REQUEST_PERMISSION,
    WRITE_TEXT_FILE,
)
from protocol.table import AnyClientRequest, AnyServerRequest, Api, Table, by_method

CLIENT_REQUESTS: Final[tuple[AnyClientRequest, ...]] = (
    *(INITIALIZE, AUTHENTICATE, LOGOUT),
    *(NEW_SESSION, LOAD_SESSION, RESUME_SESSION, LIST_SESSIONS, CLOSE_SESSION, DELETE_SESSION),
    *(SET_MODE, SET_CONFIG_OPTION, PROMPT, STEERING),
)
SERVER_REQUESTS: Final[tuple[AnyServerRequest, ...]] = (
    *(REQUEST_PERMISSION, CREATE_ELICITATION, READ_TEXT_FILE, WRITE_TEXT_FILE),
)

TABLE: Final = Table(
    api=Api.ACP,
    client_requests=by_method(CLIENT_REQUESTS),
    client_notifications=by_method((CANCEL, CANCEL_REQUEST)),
    server_notifications={},
    server_requests=by_method(SERVER_REQUESTS),
)
