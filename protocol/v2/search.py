"""Finding files by a rough spelling of their path: once, or in a session whose query changes."""

from enum import StrEnum

from protocol.base import WireModel
from protocol.paths import PathText
from protocol.structs import EngineStruct, WireStruct


class FuzzyFileSearchParams(WireModel):
    """A search with the same token ends the one before."""

    query: str
    roots: tuple[PathText, ...]
    cancellation_token: str | None = None


class FuzzyFileSearchMatchType(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"


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


class FuzzyFileSearchSessionStartResponse(WireStruct):
    pass


class FuzzyFileSearchSessionUpdateParams(WireModel):
    session_id: str
    query: str


class FuzzyFileSearchSessionUpdateResponse(WireStruct):
    pass


class FuzzyFileSearchSessionStopParams(WireModel):
    session_id: str


class FuzzyFileSearchSessionStopResponse(WireStruct):
    pass


class FuzzyFileSearchSessionUpdatedNotification(WireStruct):
    session_id: str
    query: str
    files: tuple[FuzzyFileSearchResult, ...]


class FuzzyFileSearchSessionCompletedNotification(WireStruct):
    session_id: str
