"""Work on an open thread that no words of the user begin: compaction, reviews, the user's commands, items for the
history, and settings.
"""

from __future__ import annotations

from pathlib import Path

from app_server.apis.client_rights import require_client_rights
from app_server.apis.v2.handlers.threads import ThreadContext, loaded
from app_server.apis.v2.inbound import response_items
from app_server.apis.v2.settings import settings_change
from app_server.apis.v2.turns import review_turn
from app_server.core.git.merge_base import merge_base
from app_server.core.git.snapshot import Git
from app_server.core.session import review_requests
from app_server.core.session.turn_requests import AddItems, ChangeSettings, RunShell
from app_server.rpc.errors import RpcError, invalid_request
from protocol.events.review import ReviewRequest
from protocol.jsonrpc import INVALID_PARAMS
from protocol.ops import CompactOp, ReviewOp
from protocol.records import dataclass
from protocol.v2 import review
from protocol.v2.review import ReviewStartParams, ReviewStartResponse
from protocol.v2.settings import ThreadSettingsUpdateParams, ThreadSettingsUpdateResponse
from protocol.v2.thread_work import (
    ThreadCompactStartParams,
    ThreadCompactStartResponse,
    ThreadInjectItemsParams,
    ThreadInjectItemsResponse,
    ThreadShellCommandParams,
    ThreadShellCommandResponse,
)

SHELL_TIMEOUT_MS = 60 * 60 * 1000
"""The user can interrupt; this is for what was forgotten."""


@dataclass(frozen=True, slots=True)
class WorkContext:
    threads: ThreadContext
    git: Git


async def thread_compact_start(
    context: WorkContext, params: ThreadCompactStartParams
) -> ThreadCompactStartResponse:
    """A turn of its own; it ends the one that runs."""
    live = loaded(context.threads, params.thread_id)
    live.submit(CompactOp(), via=context.threads.make_adapter)
    return ThreadCompactStartResponse()


async def thread_inject_items(
    context: WorkContext, params: ThreadInjectItemsParams
) -> ThreadInjectItemsResponse:
    live = loaded(context.threads, params.thread_id)
    live.session.submit(live.new_operation(), AddItems(response_items(params.items, "items")))
    return ThreadInjectItemsResponse()


async def thread_shell_command(
    context: WorkContext, params: ThreadShellCommandParams
) -> ThreadShellCommandResponse:
    live = loaded(context.threads, params.thread_id)
    require_client_rights(context.threads.config, "thread/shellCommand")
    if not params.command.strip():
        raise invalid_request("command must not be empty", "invalid_params", "command")
    timeout = SHELL_TIMEOUT_MS if params.timeout_ms is None else params.timeout_ms
    if timeout < 0:
        text = f"thread/shellCommand timeoutMs must be non-negative, got {timeout}"
        raise RpcError(INVALID_PARAMS, text, {"kind": "invalid_params", "field": "timeoutMs"})
    request = RunShell(params.command.strip(), timeout)
    live.session.submit(live.new_operation(context.threads.make_adapter), request)
    return ThreadShellCommandResponse()


async def thread_settings_update(
    context: WorkContext, params: ThreadSettingsUpdateParams
) -> ThreadSettingsUpdateResponse:
    """They hold from the next turn on; `thread/settings/updated` says what is in force where something changed."""
    live = loaded(context.threads, params.thread_id)
    change = settings_change(params, live.session.facts)
    live.session.submit(live.new_operation(), ChangeSettings(change))
    return ThreadSettingsUpdateResponse()


async def review_start(context: WorkContext, params: ReviewStartParams) -> ReviewStartResponse:
    """A turn of its own; it ends the one that runs."""
    live = loaded(context.threads, params.thread_id)
    request = await _review_request(context, params.target, live.session.facts.settings.cwd)
    operation = live.new_operation(context.threads.make_adapter)
    turn_id = live.session.submit(operation, ReviewOp(review_request=request))
    return ReviewStartResponse(turn=review_turn(turn_id, request.user_facing_hint), review_thread_id=live.id)


async def _review_request(context: WorkContext, target: review.ReviewTarget, cwd: str) -> ReviewRequest:
    match target:
        case review.UncommittedChangesReviewTarget():
            return review_requests.uncommitted_changes()
        case review.BaseBranchReviewTarget():
            branch = _required_text(target.branch, "branch")
            base = await merge_base(context.git, Path(cwd), branch)
            return review_requests.against_branch(branch, base)
        case review.CommitReviewTarget():
            title = (target.title or "").strip()
            return review_requests.of_commit(_required_text(target.sha, "sha"), title or None)
        case review.CustomReviewTarget():
            return review_requests.as_instructed(_required_text(target.instructions, "instructions"))


def _required_text(text: str, field: str) -> str:
    text = text.strip()
    if not text:
        raise invalid_request(f"{field} must not be empty", "invalid_params", f"target.{field}")
    return text
