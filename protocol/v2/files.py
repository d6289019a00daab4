"""Files of the machine, outside of any thread: read, write and watch them, and find them by a rough spelling of
their path.
"""

from typing import Final, Literal

from typing_extensions import TypeAliasType

from protocol.base import WireModel
from protocol.fields import Flag
from protocol.ids import AbsolutePath, PathText
from protocol.structs import EngineStruct, WireStruct
from protocol.table import ClientRequest, NoResult, ServerNotification
from protocol.v2.fields import AbsolutePathBuf


class FsReadFileParams(WireModel):
    path: AbsolutePath


class FsReadFileResponse(WireStruct):
    data_base64: str


class FsWriteFileParams(WireModel):
    path: AbsolutePath
    data_base64: str


class FsCreateDirectoryParams(WireModel):
    path: AbsolutePath
    recursive: Flag | None = None


class FsGetMetadataParams(WireModel):
    path: AbsolutePath


class FsGetMetadataResponse(WireStruct):
    """Times are 0 where they are not known."""

    is_directory: bool
    is_file: bool
    is_symlink: bool
    created_at_ms: int
    modified_at_ms: int


class FsReadDirectoryParams(WireModel):
    path: AbsolutePath


class FsReadDirectoryEntry(WireStruct):
    file_name: str
    is_directory: bool
    is_file: bool


class FsReadDirectoryResponse(WireStruct):
    entries: tuple[FsReadDirectoryEntry, ...]


class FsRemoveParams(WireModel):
    path: AbsolutePath
    recursive: Flag | None = None
    force: Flag | None = None


class FsCopyParams(WireModel):
    source_path: AbsolutePath
    destination_path: AbsolutePath
    recursive: Flag = False


class FsWatchParams(WireModel):
    watch_id: str
    path: AbsolutePath


class FsWatchResponse(WireStruct):
    path: AbsolutePathBuf


class FsUnwatchParams(WireModel):
    watch_id: str


class FsChangedNotification(WireStruct):
    """Something changed at these paths below what is watched."""

    watch_id: str
    changed_paths: tuple[AbsolutePathBuf, ...]


class FuzzyFileSearchParams(WireModel):
    """A search with the same token ends the one before."""

    query: str
    roots: tuple[PathText, ...]
    cancellation_token: str | None = None


FuzzyFileSearchMatchType = TypeAliasType("FuzzyFileSearchMatchType", Literal["file", "directory"])


class FuzzyFileSearchResult(EngineStruct):
    """One hit, in snake_case as the clients of this method expect; `indices` are the matching characters."""

    root: str
    path: str
    match_type: FuzzyFileSearchMatchType
    file_name: str
    score: int
    indices: tuple[int, ...] | None = None


class FuzzyFileSearchResponse(WireStruct):
    files: tuple[FuzzyFileSearchResult, ...]


class FuzzyFileSearchSessionStartParams(WireModel):
    session_id: str
    roots: tuple[PathText, ...]


class FuzzyFileSearchSessionUpdateParams(WireModel):
    session_id: str
    query: str


class FuzzyFileSearchSessionStopParams(WireModel):
    session_id: str


class FuzzyFileSearchSessionUpdatedNotification(WireStruct):
    session_id: str
    query: str
    files: tuple[FuzzyFileSearchResult, ...]


class FuzzyFileSearchSessionCompletedNotification(WireStruct):
    session_id: str


_SESSION: Final = "sessionId"
"""Requests about the same search are served one after another."""


_PATH: Final = "path"
"""What is done to the same path is done in order."""


_WATCH: Final = "watchId"
"""A watch begins before it ends."""


FS_READ_FILE: Final = ClientRequest(
    "fs/readFile",
    FsReadFileParams,
    FsReadFileResponse,
    "The bytes of a file.",
    ordered_by=_PATH,
)
FS_WRITE_FILE: Final = ClientRequest(
    "fs/writeFile",
    FsWriteFileParams,
    NoResult,
    "Writes a file, whole.",
    ordered_by=_PATH,
)
FS_CREATE_DIRECTORY: Final = ClientRequest(
    "fs/createDirectory",
    FsCreateDirectoryParams,
    NoResult,
    "Makes a directory, by default with those above it.",
    ordered_by=_PATH,
)
FS_GET_METADATA: Final = ClientRequest(
    "fs/getMetadata",
    FsGetMetadataParams,
    FsGetMetadataResponse,
    "What a path leads to, and its times.",
    ordered_by=_PATH,
)
FS_READ_DIRECTORY: Final = ClientRequest(
    "fs/readDirectory",
    FsReadDirectoryParams,
    FsReadDirectoryResponse,
    "The names in a directory.",
    ordered_by=_PATH,
)
FS_REMOVE: Final = ClientRequest(
    "fs/remove",
    FsRemoveParams,
    NoResult,
    "Removes a file or, by default, a directory with all that is in it.",
    ordered_by=_PATH,
)
FS_COPY: Final = ClientRequest(
    "fs/copy",
    FsCopyParams,
    NoResult,
    "Copies a file or, if asked to, a directory.",
    ordered_by="destinationPath",
)
FS_WATCH: Final = ClientRequest(
    "fs/watch",
    FsWatchParams,
    FsWatchResponse,
    "Reports changes at a path by `fs/changed`.",
    ordered_by=_WATCH,
)
FS_UNWATCH: Final = ClientRequest(
    "fs/unwatch",
    FsUnwatchParams,
    NoResult,
    "Ends a watch.",
    ordered_by=_WATCH,
)
FUZZY_FILE_SEARCH: Final = ClientRequest(
    "fuzzyFileSearch",
    FuzzyFileSearchParams,
    FuzzyFileSearchResponse,
    "Finds files by a rough spelling of their path, best first.",
)
FUZZY_FILE_SEARCH_SESSION_START: Final = ClientRequest(
    "fuzzyFileSearch/sessionStart",
    FuzzyFileSearchSessionStartParams,
    NoResult,
    "Begins a search whose query will change.",
    ordered_by=_SESSION,
    experimental=True,
)
FUZZY_FILE_SEARCH_SESSION_UPDATE: Final = ClientRequest(
    "fuzzyFileSearch/sessionUpdate",
    FuzzyFileSearchSessionUpdateParams,
    NoResult,
    "Changes the query. `fuzzyFileSearch/sessionUpdated` follows.",
    ordered_by=_SESSION,
    experimental=True,
)
FUZZY_FILE_SEARCH_SESSION_STOP: Final = ClientRequest(
    "fuzzyFileSearch/sessionStop",
    FuzzyFileSearchSessionStopParams,
    NoResult,
    "Ends the search.",
    ordered_by=_SESSION,
    experimental=True,
)
FS_CHANGED: Final = ServerNotification(
    "fs/changed", FsChangedNotification, "Something changed below a watched path."
)
FUZZY_FILE_SEARCH_SESSION_UPDATED: Final = ServerNotification(
    "fuzzyFileSearch/sessionUpdated",
    FuzzyFileSearchSessionUpdatedNotification,
    "What a search has found so far.",
)
FUZZY_FILE_SEARCH_SESSION_COMPLETED: Final = ServerNotification(
    "fuzzyFileSearch/sessionCompleted",
    FuzzyFileSearchSessionCompletedNotification,
    "A search has looked at everything.",
)
