"""The machine without a conversation: file search, diffs, and `execOneOffCommand` in the requested sandbox."""

from __future__ import annotations

from pathlib import Path

from app_server.apis.services import ServerServices
from app_server.core.errors import LaunchError
from app_server.core.host import WantedCommand
from app_server.rpc.errors import internal_error, invalid_request
from protocol.v1 import misc as wire


async def fuzzy_file_search(
    services: ServerServices, params: wire.FuzzyFileSearchParams
) -> wire.FuzzyFileSearchResponse:
    """Search for files; a second search with the same token cancels the first, which then returns none."""
    roots = [Path(root) for root in params.roots]
    hits = await services.host.search.search(params.query, roots, params.cancellation_token)
    return wire.FuzzyFileSearchResponse(
        files=tuple(
            wire.FuzzyFileSearchResult(
                root=hit.root, path=hit.path, file_name=hit.file_name, score=hit.score, indices=hit.indices
            )
            for hit in hits
        )
    )


async def git_diff_to_remote(
    services: ServerServices, params: wire.GitDiffToRemoteParams
) -> wire.GitDiffToRemoteResponse:
    found = await services.host.diff_to_remote(Path(params.cwd))
    if found is None:
        raise invalid_request(f'failed to compute git diff to remote for cwd: "{params.cwd}"', "git_diff")
    return wire.GitDiffToRemoteResponse(sha=wire.GitSha(found.sha), diff=found.diff)


DEFAULT_TIMEOUT_MS = 10_000


async def exec_one_off_command(
    services: ServerServices, params: wire.ExecOneOffCommandParams
) -> wire.ExecOneOffCommandResponse:
    """Run a command, under the configured policy by default. After a time-out the exit code is 124."""
    if not params.command:
        raise invalid_request("command must not be empty", "invalid_params", "command")
    wanted = WantedCommand(
        argv=params.command,
        cwd=params.cwd,
        policy=params.sandbox_policy,
        timeout_ms=DEFAULT_TIMEOUT_MS if params.timeout_ms is None else params.timeout_ms,
    )
    try:
        result = await services.host.run(wanted)
    except LaunchError as error:
        raise internal_error(f"exec failed: {error}", "exec") from error
    return wire.ExecOneOffCommandResponse(
        exit_code=result.exit_code,
        stdout=result.stdout.decode("utf-8", "replace"),
        stderr=result.stderr.decode("utf-8", "replace"),
    )
