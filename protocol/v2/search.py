"""Finding files by a rough spelling of their path: once, or in a session whose query changes."""

from enum import StrEnum

from protocol.base import EngineModel, WireModel
from protocol.paths import PathText


class FuzzyFileSearchParams(WireModel):
    """A search with the same token ends the one before."""

    query: str
    roots: tuple[PathText, ...]
    cancellation_token: str | None = None


class FuzzyFileSearchMatchType(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"


class FuzzyFileSearchResult(EngineModel):
    """One hit, in snake_case as the clients of this method expect; `indices` are the matching characters."""

    root: str
    path: str
    match_type: FuzzyFileSearchMatchType
    file_name: str
    score: int
    indices: tuple[int, ...] | None = None


class FuzzyFileSearchResponse(WireModel):
    files: tuple[FuzzyFileSearchResult, ...]


class FuzzyFileSearchSessionStartParams(WireModel):
    session_id: str
    roots: tuple[PathText, ...]


class FuzzyFileSearchSessionStartResponse(WireModel):
    pass


class FuzzyFileSearchSessionUpdateParams(WireModel):
    session_id: str
    query: str


class FuzzyFileSearchSessionUpdateResponse(WireModel):
    pass


class FuzzyFileSearchSessionStopParams(WireModel):
    session_id: str


class FuzzyFileSearchSessionStopResponse(WireModel):
    pass


class FuzzyFileSearchSessionUpdatedNotification(WireModel):
    session_id: str
    query: str
    files: tuple[FuzzyFileSearchResult, ...]


class FuzzyFileSearchSessionCompletedNotification(WireModel):
    session_id: str
