"""The machine without a conversation: file search, diffs, and `execOneOffCommand` in the requested sandbox."""

from __future__ import annotations

import logging
from pathlib import Path

from msgspec import Struct

from app_server.core.config.fence import check_sandbox
from app_server.core.config.settings import UserSettings
from app_server.core.errors import LaunchError
from app_server.core.exec.command import CommandSpec, Stream
from app_server.core.exec.environment import command_environment
from app_server.core.exec.runner import CommandRunner
from app_server.core.files.search import FileSearch
from app_server.core.git.run_git import Git
from app_server.core.git.upstream import diff_to_remote
from app_server.rpc.errors import internal_error, invalid_request
from protocol.v1.misc import (
    ExecOneOffCommandParams,
    ExecOneOffCommandResponse,
    FuzzyFileSearchParams,
    FuzzyFileSearchResponse,
    FuzzyFileSearchResult,
    GitDiffToRemoteParams,
    GitDiffToRemoteResponse,
    GitSha,
)


class FileContext(Struct, frozen=True):
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


log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS = 10_000


class CommandContext(Struct, frozen=True):
    config: UserSettings
    runner: CommandRunner


async def exec_one_off_command(
    context: CommandContext, params: ExecOneOffCommandParams
) -> ExecOneOffCommandResponse:
    """The default policy is the configured one. After a time-out the exit code is 124."""
    if not params.command:
        raise invalid_request("command must not be empty", "invalid_params", "command")
    config = context.config.load()
    cwd = str(context.config.cwd / (params.cwd or ""))
    policy = params.sandbox_policy or config.permissions.sandbox_policy
    check_sandbox(config.fence, policy, cwd)
    plan = context.runner.plan(policy, cwd)
    for notice in plan.notices if plan is not None else ():
        log.warning("execOneOffCommand: %s", notice)
    spec = CommandSpec(
        argv=params.command,
        cwd=cwd,
        env=command_environment(
            config.permissions.environment,
            context.runner.environment_for_commands,
            plan=plan,
            withheld=config.credential_variables(),
        ),
        timeout_ms=DEFAULT_TIMEOUT_MS if params.timeout_ms is None else params.timeout_ms,
        sandbox=plan,
    )
    try:
        result = await context.runner.run(spec, _ignore)
    except LaunchError as error:
        raise internal_error(f"exec failed: {error}", "exec") from error
    return ExecOneOffCommandResponse(
        exit_code=result.exit_code,
        stdout=result.stdout.decode("utf-8", "replace"),
        stderr=result.stderr.decode("utf-8", "replace"),
    )


def _ignore(stream: Stream, data: bytes) -> None:
    pass
