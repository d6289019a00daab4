"""File search and diffs."""

from __future__ import annotations

from pathlib import Path

from app_server.core.files.search import FileSearch
from app_server.core.git.snapshot import Git
from app_server.core.git.upstream import diff_to_remote
from app_server.rpc.errors import invalid_request
from protocol.records import dataclass
from protocol.v1.misc import (
    FuzzyFileSearchParams,
    FuzzyFileSearchResponse,
    FuzzyFileSearchResult,
    GitDiffToRemoteParams,
    GitDiffToRemoteResponse,
    GitSha,
)


@dataclass(frozen=True, slots=True)
class FileContext:
    search: FileSearch
    git: Git


async def fuzzy_file_search(context: FileContext, params: FuzzyFileSearchParams) -> FuzzyFileSearchResponse:
    """A second search with the same token cancels the first, which then returns no files."""
    roots = [Path(root) for root in params.roots]
    hits = await context.search.search(params.query, roots, params.cancellation_token)
    return FuzzyFileSearchResponse(
        files=tuple(
            FuzzyFileSearchResult(
                root=hit.root, path=hit.path, file_name=hit.file_name, score=hit.score, indices=hit.indices
            )
            for hit in hits
        )
    )


async def git_diff_to_remote(context: FileContext, params: GitDiffToRemoteParams) -> GitDiffToRemoteResponse:
    found = await diff_to_remote(context.git, Path(params.cwd))
    if found is None:
        raise invalid_request(f'failed to compute git diff to remote for cwd: "{params.cwd}"', "git_diff")
    return GitDiffToRemoteResponse(sha=GitSha(found.sha), diff=found.diff)
