"""Files, git, and commands that run outside of any conversation."""

from typing import NewType

from protocol.base import WireModel
from protocol.fields import Count, SandboxPolicy
from protocol.ids import PathText
from protocol.structs import EngineStruct, WireStruct

GitSha = NewType("GitSha", str)


class FuzzyFileSearchParams(WireModel):
    """Finds files below the roots whose path resembles the query. A search with the same token ends the one
    before."""

    query: str
    roots: tuple[PathText, ...]
    cancellation_token: str | None = None


class FuzzyFileSearchResult(EngineStruct):
    """One hit, in snake_case as the clients of this method expect; `indices` are the matching characters."""

    root: str
    path: str
    file_name: str
    score: int
    indices: tuple[int, ...] | None = None


class FuzzyFileSearchResponse(WireStruct):
    files: tuple[FuzzyFileSearchResult, ...]


class GitDiffToRemoteParams(WireModel):
    cwd: PathText


class GitDiffToRemoteResponse(WireStruct):
    """The nearest commit that the remote has, and all that changed since, untracked files too."""

    sha: GitSha
    diff: str


class ExecOneOffCommandParams(WireModel):
    """Runs a command without a conversation. Without a policy the configured sandbox holds."""

    command: tuple[str, ...]
    timeout_ms: Count | None = None
    cwd: PathText | None = None
    sandbox_policy: SandboxPolicy | None = None


class ExecOneOffCommandResponse(WireStruct):
    exit_code: int
    stdout: str
    stderr: str
