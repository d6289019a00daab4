"""Files of the machine, outside of any thread: read, write and watch them, and find them by a rough spelling of
their path.
"""

from typing import Final, Literal

from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel
from app_server_protocol.ids import AbsolutePath, PathText
from app_server_protocol.method_table import ClientRequest, NoResult, ServerNotification
from app_server_protocol.outgoing import EngineStruct, WireStruct
from app_server_protocol.v2.fields import AbsolutePathBuf
from app_server_protocol.wire_fields import Flag


class AtPath(WireModel):
    """Request about one path. Requests about the same path are done in order."""

    ordered_by = "path"
    path: AbsolutePath


class OfWatch(WireModel):
    """A watch begins before it ends."""

    ordered_by = "watchId"
    watch_id: str


class OfSearch(WireModel):
    """Requests about the same search are served one after another."""

    ordered_by = "sessionId"
    session_id: str


class FsReadFileResponse(WireStruct):
    data_base64: str


class FsWriteFileParams(AtPath):
    data_base64: str


class FsCreateDirectoryParams(AtPath):
    recursive: Flag | None = None


class FsGetMetadataResponse(WireStruct):
    """Times are 0 where they are not known."""

    is_directory: bool
    is_file: bool
    is_symlink: bool
    created_at_ms: int
    modified_at_ms: int


class FsReadDirectoryEntry(WireStruct):
    file_name: str
    is_directory: bool
    is_file: bool


class FsReadDirectoryResponse(WireStruct):
    entries: tuple[FsReadDirectoryEntry, ...]


class FsRemoveParams(AtPath):
    recursive: Flag | None = None
    force: Flag | None = None


class FsCopyParams(WireModel):
    ordered_by = "destinationPath"
    source_path: AbsolutePath
    destination_path: AbsolutePath
    recursive: Flag = False


class FsWatchParams(OfWatch):
    path: AbsolutePath


class FsWatchResponse(WireStruct):
    path: AbsolutePathBuf


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


class FuzzyFileSearchSessionStartParams(OfSearch):
    roots: tuple[PathText, ...]


class FuzzyFileSearchSessionUpdateParams(OfSearch):
    query: str


class FuzzyFileSearchSessionUpdatedNotification(WireStruct):
    session_id: str
    query: str
    files: tuple[FuzzyFileSearchResult, ...]


class FuzzyFileSearchSessionCompletedNotification(WireStruct):
    session_id: str


FS_READ_FILE: Final = ClientRequest("fs/readFile", AtPath, FsReadFileResponse, "The bytes of a file.")
FS_WRITE_FILE: Final = ClientRequest("fs/writeFile", FsWriteFileParams, NoResult, "Writes a file, whole.")
FS_CREATE_DIRECTORY: Final = ClientRequest(
    "fs/createDirectory",
    FsCreateDirectoryParams,
    NoResult,
    "Makes a directory, by default with those above it.",
)
FS_GET_METADATA: Final = ClientRequest(
    "fs/getMetadata", AtPath, FsGetMetadataResponse, "What a path leads to, and its times."
)
FS_READ_DIRECTORY: Final = ClientRequest(
    "fs/readDirectory", AtPath, FsReadDirectoryResponse, "The names in a directory."
)
FS_REMOVE: Final = ClientRequest(
    "fs/remove",
    FsRemoveParams,
    NoResult,
    "Removes a file or, by default, a directory with all that is in it.",
)
FS_COPY: Final = ClientRequest(
    "fs/copy", FsCopyParams, NoResult, "Copies a file or, if asked to, a directory."
)
FS_WATCH: Final = ClientRequest(
    "fs/watch", FsWatchParams, FsWatchResponse, "Reports changes at a path by `fs/changed`."
)
FS_UNWATCH: Final = ClientRequest("fs/unwatch", OfWatch, NoResult, "Ends a watch.")
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
    experimental=True,
)
FUZZY_FILE_SEARCH_SESSION_UPDATE: Final = ClientRequest(
    "fuzzyFileSearch/sessionUpdate",
    FuzzyFileSearchSessionUpdateParams,
    NoResult,
    "Changes the query. `fuzzyFileSearch/sessionUpdated` follows.",
    experimental=True,
)
FUZZY_FILE_SEARCH_SESSION_STOP: Final = ClientRequest(
    "fuzzyFileSearch/sessionStop", OfSearch, NoResult, "Ends the search.", experimental=True
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
