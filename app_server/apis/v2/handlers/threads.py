"""Opening threads: a new one, a stored one, or joining one that is open; and letting go of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from app_server.apis.result import HandlerResult
from app_server.apis.services import ConfigSource
from app_server.apis.v2 import spelling
from app_server.apis.v2.handlers.reading import ReadingContext
from app_server.apis.v2.loaded_threads import LoadedThreads
from app_server.apis.v2.notify import ThreadNotifier
from app_server.apis.v2.thread_ids import parse_thread_id, rollout_not_found, thread_not_found
from app_server.apis.v2.thread_view import thread_view, whole_turns
from app_server.apis.warm_up import WarmUp
from app_server.conversations.adapter import AdapterFactory
from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager
from app_server.conversations.operation_ids import operation_numbers
from app_server.core.config.types import Config, RequestOverrides
from app_server.core.errors import ConfigError, RolloutNotFound
from app_server.core.opening import NewConversation, StoredRollout
from app_server.core.rollout.last_settings import last_turn_context
from app_server.core.rollout.listing import find_rollout
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import invalid_request
from protocol.ids import ConversationId
from protocol.policy import SandboxPolicy, WorkspaceWrite
from protocol.records import dataclass
from protocol.v2.notifications import THREAD_STARTED, THREAD_STATUS_CHANGED
from protocol.v2.policy import ApprovalsReviewer
from protocol.v2.thread import Thread
from protocol.v2.thread_events import ThreadStartedNotification, ThreadStatusChangedNotification
from protocol.v2.thread_open import (
    ThreadResumeParams,
    ThreadResumeResponse,
    ThreadStartParams,
    ThreadStartResponse,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResponse,
    ThreadUnsubscribeStatus,
)
from protocol.v2.turn import Turn

SUBSCRIPTION = "threads"
"""The one subscription that a connection has to a thread over this API."""

PERMISSION_PROFILES = {
    ":read-only": "read-only",
    ":workspace": "workspace-write",
    ":danger-full-access": "danger-full-access",
}
"""The built-in permission profiles, and the sandbox modes that they are."""


@dataclass(frozen=True, slots=True)
class ThreadContext:
    config: ConfigSource
    conversations: ConversationManager
    notifier: ThreadNotifier
    make_adapter: AdapterFactory
    reading: ReadingContext
    loaded: LoadedThreads
    warm_up: WarmUp
    operation_ids: Callable[[], Callable[[], str]] = operation_numbers


async def thread_start(
    context: ThreadContext, params: ThreadStartParams
) -> HandlerResult[ThreadStartResponse]:
    if params.ephemeral:
        raise invalid_request(
            "ephemeral threads are not supported by this version", "unsupported", "ephemeral"
        )
    context.warm_up.expect_turn()
    config = _load(context, _overrides(params))
    live, _ = await context.conversations.open(config, NewConversation(), context.operation_ids())
    live.subscribe(SUBSCRIPTION, context.make_adapter, raw=params.experimental_raw_events)
    thread = await _shown_thread(context, live)
    response = ThreadStartResponse(thread=thread, **_in_force(live))

    async def announce() -> None:
        context.notifier.notify(THREAD_STARTED, ThreadStartedNotification(thread=thread))

    return HandlerResult(response, announce)


async def thread_resume(
    context: ThreadContext, params: ThreadResumeParams
) -> HandlerResult[ThreadResumeResponse]:
    live = context.conversations.find(parse_thread_id(params.thread_id))
    if live is None:
        live = await _reopen(context, params)
    turns = () if params.exclude_turns else await _turns(context, live)
    response = ThreadResumeResponse(thread=await _shown_thread(context, live, turns), **_in_force(live))
    joined = live

    async def subscribe() -> None:
        # After the response: what is open is asked again, and whatever happens from here on is sent.
        joined.subscribe(SUBSCRIPTION, context.make_adapter, raw=False)
        context.warm_up.expect_turn()

    return HandlerResult(response, subscribe)


async def thread_unsubscribe(
    context: ThreadContext, params: ThreadUnsubscribeParams
) -> ThreadUnsubscribeResponse:
    live = context.conversations.find(parse_thread_id(params.thread_id))
    if live is None:
        return ThreadUnsubscribeResponse(status=ThreadUnsubscribeStatus.NOT_LOADED)
    if not live.subscribed(context.make_adapter):
        return ThreadUnsubscribeResponse(status=ThreadUnsubscribeStatus.NOT_SUBSCRIBED)
    live.unsubscribe(SUBSCRIPTION)
    return ThreadUnsubscribeResponse(status=ThreadUnsubscribeStatus.UNSUBSCRIBED)


def loaded(context: ThreadContext, thread_id: str) -> LiveConversation:
    """The open thread. Raises RpcError where there is none."""
    live = context.conversations.find(parse_thread_id(thread_id))
    if live is None:
        raise thread_not_found(thread_id)
    return live


# --- parts
async def _reopen(context: ThreadContext, params: ThreadResumeParams) -> LiveConversation:
    path = await _stored(context, parse_thread_id(params.thread_id))
    overrides = await run_in_thread(_stored_settings, path, _overrides(params))
    config = _load(context, overrides)
    live, _ = await context.conversations.open(config, StoredRollout(path), context.operation_ids())
    live.adapter(context.make_adapter)
    status = spelling.thread_status(live.status)
    context.notifier.notify(
        THREAD_STATUS_CHANGED, ThreadStatusChangedNotification(thread_id=live.id, status=status)
    )
    return live


def _stored_settings(path: Path, given: RequestOverrides) -> RequestOverrides:
    """What the request leaves open is as it was in the thread's last turn."""
    last = last_turn_context(path)
    if last is None:
        return given
    sandbox = given.sandbox
    settings = dict(given.settings)
    if sandbox is None and "sandbox_mode" not in settings:
        sandbox = last.sandbox_policy.mode
        settings |= _workspace_settings(last.sandbox_policy)
    return replace(
        given,
        settings=settings,
        sandbox=sandbox,
        cwd=given.cwd or last.cwd,
        approval_policy=given.approval_policy or last.approval_policy,
        model=given.model or last.model,
    )


def _workspace_settings(policy: SandboxPolicy) -> dict[str, object]:
    if not isinstance(policy, WorkspaceWrite):
        return {}
    table = "sandbox_workspace_write"
    return {
        f"{table}.writable_roots": list(policy.writable_roots),
        f"{table}.network_access": policy.network_access,
        f"{table}.exclude_tmpdir_env_var": policy.exclude_tmpdir_env_var,
        f"{table}.exclude_slash_tmp": policy.exclude_slash_tmp,
    }


def _load(context: ThreadContext, overrides: RequestOverrides) -> Config:
    try:
        return context.config.load(overrides)
    except ConfigError as error:
        raise invalid_request(f"failed to load configuration: {error}", "config") from error


def _overrides(params: ThreadStartParams | ThreadResumeParams) -> RequestOverrides:
    sandbox = params.sandbox.value if params.sandbox else None
    if params.permissions is not None:
        if sandbox is not None:
            raise invalid_request("`permissions` cannot be combined with `sandbox`", "invalid_params")
        sandbox = PERMISSION_PROFILES.get(params.permissions)
        if sandbox is None:
            raise invalid_request(f"unknown permission profile: {params.permissions}", "invalid_params")
    policy = params.approval_policy
    return RequestOverrides(
        settings=params.config or {},
        model=params.model,
        model_provider=params.model_provider,
        cwd=params.cwd,
        approval_policy=None if policy is None else spelling.approval_policy(policy),
        sandbox=sandbox,
        base_instructions=params.base_instructions,
        developer_instructions=params.developer_instructions,
    )


def _in_force(live: LiveConversation) -> dict[str, object]:
    """The settings that the next turn starts from."""
    settings = live.session.settings
    return {
        "model": settings.model,
        "model_provider": live.session.model_provider,
        "cwd": settings.cwd,
        "approval_policy": spelling.approval_mode(settings.approval_policy),
        "approvals_reviewer": ApprovalsReviewer.USER,
        "sandbox": spelling.shown_sandbox_policy(settings.sandbox_policy),
        "reasoning_effort": spelling.shown_effort(settings.effort),
        "instruction_sources": (),
        "runtime_workspace_roots": (settings.cwd,),
    }


async def _shown_thread(
    context: ThreadContext, live: LiveConversation, turns: tuple[Turn, ...] = ()
) -> Thread:
    summary = await context.reading.summary(await context.reading.find(live.id))
    return thread_view(summary, spelling.thread_status(live.status), turns)


async def _turns(context: ThreadContext, live: LiveConversation) -> tuple[Turn, ...]:
    """Oldest first; one that runs is the last, with the items that go on."""
    thread = await context.reading.find(live.id)
    turns = await context.reading.read(
        thread, lambda history: whole_turns(history.all_turns(), context.reading.rendering.turn)
    )
    running = context.loaded.running_turn(live.id)
    if running is None:
        return turns
    return (*(turn for turn in turns if turn.id != running.id), running)


async def _stored(context: ThreadContext, thread_id: ConversationId) -> Path:
    try:
        return await run_in_thread(find_rollout, context.config.home, thread_id)
    except RolloutNotFound:
        raise rollout_not_found(thread_id) from None
