"""The table of the thread API: every method of it, once, by resource. Nothing else spells these methods' names.

The rows of the requests and notifications are beside this module; those of the server's requests are here.
"""

from typing import Final

from protocol import names
from protocol.table import AnyServerRequest, Api, ClientNotification, ServerRequest, Table, by_method
from protocol.v2 import (
    approval,
    extension_methods,
    host_methods,
    notifications,
    permission,
    question,
    setup_methods,
    thread_methods,
    turn_methods,
)

INITIALIZED: Final = ClientNotification(names.INITIALIZED, "The client is ready. Accepted, not required.")

ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL: Final = ServerRequest(
    "item/commandExecution/requestApproval",
    approval.CommandExecutionRequestApprovalParams,
    approval.CommandExecutionRequestApprovalResponse,
    "May a command run?",
)
ITEM_FILE_CHANGE_REQUEST_APPROVAL: Final = ServerRequest(
    "item/fileChange/requestApproval",
    approval.FileChangeRequestApprovalParams,
    approval.FileChangeRequestApprovalResponse,
    "May files change?",
)
ITEM_PERMISSIONS_REQUEST_APPROVAL: Final = ServerRequest(
    "item/permissions/requestApproval",
    permission.PermissionsRequestApprovalParams,
    permission.PermissionsRequestApprovalResponse,
    "May a turn have more than its sandbox gives?",
)
ITEM_TOOL_REQUEST_USER_INPUT: Final = ServerRequest(
    "item/tool/requestUserInput",
    question.ToolRequestUserInputParams,
    question.ToolRequestUserInputResponse,
    "The model asks the user.",
)
ITEM_TOOL_CALL: Final = ServerRequest(
    "item/tool/call",
    question.DynamicToolCallParams,
    question.DynamicToolCallResponse,
    "The model calls a tool that the client brought.",
)
MCP_SERVER_ELICITATION_REQUEST: Final = ServerRequest(
    "mcpServer/elicitation/request",
    question.McpServerElicitationRequestParams,
    question.McpServerElicitationRequestResponse,
    "An MCP server asks the user, or one of its tools wants to run.",
)

SERVER_REQUESTS: Final[tuple[AnyServerRequest, ...]] = (
    ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
    ITEM_FILE_CHANGE_REQUEST_APPROVAL,
    ITEM_PERMISSIONS_REQUEST_APPROVAL,
    ITEM_TOOL_REQUEST_USER_INPUT,
    ITEM_TOOL_CALL,
    MCP_SERVER_ELICITATION_REQUEST,
)

TABLE: Final = Table(
    api=Api.V2,
    client_requests=by_method(
        (
            *setup_methods.REQUESTS,
            *thread_methods.REQUESTS,
            *turn_methods.REQUESTS,
            *host_methods.REQUESTS,
            *extension_methods.REQUESTS,
        )
    ),
    client_notifications=by_method((INITIALIZED,)),
    server_notifications=by_method(notifications.NOTIFICATIONS),
    server_requests=by_method(SERVER_REQUESTS),
)
