"""Methods about the machine, outside of any thread: files, searches, commands, MCP servers."""

from typing import Final

from protocol.table import AnyClientRequest, ClientRequest, NoParams
from protocol.v2 import commands, files, mcp, search

_SESSION: Final = "sessionId"
"""Requests about the same search are served one after another."""

_PATH: Final = "path"
"""What is done to the same path is done in order."""

_WATCH: Final = "watchId"
"""A watch begins before it ends."""

FS_READ_FILE: Final = ClientRequest(
    "fs/readFile",
    files.FsReadFileParams,
    files.FsReadFileResponse,
    "The bytes of a file.",
    ordered_by=_PATH,
)
FS_WRITE_FILE: Final = ClientRequest(
    "fs/writeFile",
    files.FsWriteFileParams,
    files.FsWriteFileResponse,
    "Writes a file, whole.",
    ordered_by=_PATH,
)
FS_CREATE_DIRECTORY: Final = ClientRequest(
    "fs/createDirectory",
    files.FsCreateDirectoryParams,
    files.FsCreateDirectoryResponse,
    "Makes a directory, by default with those above it.",
    ordered_by=_PATH,
)
FS_GET_METADATA: Final = ClientRequest(
    "fs/getMetadata",
    files.FsGetMetadataParams,
    files.FsGetMetadataResponse,
    "What a path leads to, and its times.",
    ordered_by=_PATH,
)
FS_READ_DIRECTORY: Final = ClientRequest(
    "fs/readDirectory",
    files.FsReadDirectoryParams,
    files.FsReadDirectoryResponse,
    "The names in a directory.",
    ordered_by=_PATH,
)
FS_REMOVE: Final = ClientRequest(
    "fs/remove",
    files.FsRemoveParams,
    files.FsRemoveResponse,
    "Removes a file or, by default, a directory with all that is in it.",
    ordered_by=_PATH,
)
FS_COPY: Final = ClientRequest(
    "fs/copy",
    files.FsCopyParams,
    files.FsCopyResponse,
    "Copies a file or, if asked to, a directory.",
    ordered_by="destinationPath",
)
FS_WATCH: Final = ClientRequest(
    "fs/watch",
    files.FsWatchParams,
    files.FsWatchResponse,
    "Reports changes at a path by `fs/changed`.",
    ordered_by=_WATCH,
)
FS_UNWATCH: Final = ClientRequest(
    "fs/unwatch",
    files.FsUnwatchParams,
    files.FsUnwatchResponse,
    "Ends a watch.",
    ordered_by=_WATCH,
)
FUZZY_FILE_SEARCH: Final = ClientRequest(
    "fuzzyFileSearch",
    search.FuzzyFileSearchParams,
    search.FuzzyFileSearchResponse,
    "Finds files by a rough spelling of their path, best first.",
)
FUZZY_FILE_SEARCH_SESSION_START: Final = ClientRequest(
    "fuzzyFileSearch/sessionStart",
    search.FuzzyFileSearchSessionStartParams,
    search.FuzzyFileSearchSessionStartResponse,
    "Begins a search whose query will change.",
    ordered_by=_SESSION,
    experimental=True,
)
FUZZY_FILE_SEARCH_SESSION_UPDATE: Final = ClientRequest(
    "fuzzyFileSearch/sessionUpdate",
    search.FuzzyFileSearchSessionUpdateParams,
    search.FuzzyFileSearchSessionUpdateResponse,
    "Changes the query. `fuzzyFileSearch/sessionUpdated` follows.",
    ordered_by=_SESSION,
    experimental=True,
)
FUZZY_FILE_SEARCH_SESSION_STOP: Final = ClientRequest(
    "fuzzyFileSearch/sessionStop",
    search.FuzzyFileSearchSessionStopParams,
    search.FuzzyFileSearchSessionStopResponse,
    "Ends the search.",
    ordered_by=_SESSION,
    experimental=True,
)
COMMAND_EXEC: Final = ClientRequest(
    "command/exec",
    commands.CommandExecParams,
    commands.CommandExecResponse,
    "Runs a command in the sandbox, without asking. The answer comes when it has ended.",
)
COMMAND_EXEC_WRITE: Final = ClientRequest(
    "command/exec/write",
    commands.CommandExecWriteParams,
    commands.CommandExecWriteResponse,
    "Writes to the input of a command, or closes it.",
)
COMMAND_EXEC_RESIZE: Final = ClientRequest(
    "command/exec/resize",
    commands.CommandExecResizeParams,
    commands.CommandExecResizeResponse,
    "Sets the size of a command's terminal.",
)
COMMAND_EXEC_TERMINATE: Final = ClientRequest(
    "command/exec/terminate",
    commands.CommandExecTerminateParams,
    commands.CommandExecTerminateResponse,
    "Ends a command and all that it started.",
)
MCP_SERVER_STATUS_LIST: Final = ClientRequest(
    "mcpServerStatus/list",
    mcp.ListMcpServerStatusParams,
    mcp.ListMcpServerStatusResponse,
    "The MCP servers and what they offer, by pages.",
)
MCP_SERVER_TOOL_CALL: Final = ClientRequest(
    "mcpServer/tool/call",
    mcp.McpServerToolCallParams,
    mcp.McpServerToolCallResponse,
    "Calls a tool for the client, not for the model.",
)
MCP_SERVER_RESOURCE_READ: Final = ClientRequest(
    "mcpServer/resource/read",
    mcp.McpResourceReadParams,
    mcp.McpResourceReadResponse,
    "Reads a resource of a server.",
)
MCP_SERVER_OAUTH_LOGIN: Final = ClientRequest(
    "mcpServer/oauth/login",
    mcp.McpServerOauthLoginParams,
    mcp.McpServerOauthLoginResponse,
    "Begins a login at a server.",
)
CONFIG_MCP_SERVER_RELOAD: Final = ClientRequest(
    "config/mcpServer/reload",
    NoParams,
    mcp.McpServerRefreshResponse,
    "Reads the configuration again and starts the servers of open threads anew.",
)

REQUESTS: Final[tuple[AnyClientRequest, ...]] = (
    FS_READ_FILE,
    FS_WRITE_FILE,
    FS_CREATE_DIRECTORY,
    FS_GET_METADATA,
    FS_READ_DIRECTORY,
    FS_REMOVE,
    FS_COPY,
    FS_WATCH,
    FS_UNWATCH,
    FUZZY_FILE_SEARCH,
    FUZZY_FILE_SEARCH_SESSION_START,
    FUZZY_FILE_SEARCH_SESSION_UPDATE,
    FUZZY_FILE_SEARCH_SESSION_STOP,
    COMMAND_EXEC,
    COMMAND_EXEC_WRITE,
    COMMAND_EXEC_RESIZE,
    COMMAND_EXEC_TERMINATE,
    MCP_SERVER_STATUS_LIST,
    MCP_SERVER_TOOL_CALL,
    MCP_SERVER_RESOURCE_READ,
    MCP_SERVER_OAUTH_LOGIN,
    CONFIG_MCP_SERVER_RELOAD,
)
