"""What `thread/resume` asks for and is answered, for `early_resumes`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from app_server.apis.capabilities import parse_capabilities
from app_server.apis.v2 import spelling
from app_server.apis.v2.lines import NotificationLines
from app_server.apis.v2.opening import in_force, overrides_of, stored_settings
from app_server.apis.v2.settings import collaboration_mode
from app_server.apis.v2.thread_ids import parse_thread_id
from app_server.apis.v2.thread_view import thread_view, whole_turns
from app_server.apis.v2.turns import shown_turn
from app_server.conversations.status import ConversationStatus
from app_server.core.config.types import Config, RequestOverrides
from app_server.core.context.project_docs import find_instructions
from app_server.core.rollout.listing import find_rollout
from app_server.core.rollout.thread_notes import ThreadNotes
from app_server.core.rollout.thread_summary import ModelInUse, ThreadSummary, read_thread_summary
from app_server.core.rollout.turn_index import TurnIndexes
from app_server.core.rollout.turn_pages import open_history
from app_server.core.turn.settings import Settings
from app_server.identity import EarlyInitialize
from app_server.startup.early_resumes import PlannedResume, ShownConversation
from app_server.startup.launch import Launch
from app_server.startup.overrides import settings_of_request
from protocol.ids import ConversationId
from protocol.jsonrpc import Request
from protocol.names import THREAD_STATUS_CHANGED
from protocol.v2.thread_events import ThreadStatusChangedNotification
from protocol.v2.thread_open import ThreadResumeParams, ThreadResumeResponse
from protocol.v2.turn import Turn

EXPERIMENTAL = frozenset(("history", "path", "runtime_workspace_roots", "permissions", "initial_turns_page"))
"""Parameters that need the client's opt-in, which the full server checks."""


def planned_thread_resume(launch: Launch, client: EarlyInitialize, request: Request) -> PlannedResume | None:
    """None where its parameters are invalid or experimental. Raises one of `LEFT_TO_THE_SERVER`."""
    try:
        params = ThreadResumeParams.model_validate(request.params)
    except ValidationError:
        return None
    if params.model_fields_set & EXPERIMENTAL:
        return None
    id = parse_thread_id(params.thread_id)
    path = find_rollout(launch.home, id)
    # Nobody reads the turns of the second answer.
    again = replace(request, params={**request.params, "excludeTurns": True})
    return PlannedResume(path, lambda: _shown(launch, client, id, path, params), again)


def _shown(
    launch: Launch, client: EarlyInitialize, id: ConversationId, path: Path, params: ThreadResumeParams
) -> ShownConversation:
    config = settings_of_request(launch, stored_settings(path, overrides_of(params)))
    settings = Settings.of(config)
    sources: list[str] = []
    instructions = config.instructions
    find_instructions(
        launch.home,
        config.cwd,
        instructions.project_doc_max_bytes,
        instructions.project_doc_fallback_filenames,
        sources=sources,
    )
    status = spelling.thread_status(ConversationStatus())
    summary = _summary(launch, path, config, settings)
    response = ThreadResumeResponse(
        thread=thread_view(summary, status, () if params.exclude_turns else _turns(path, id)),
        collaboration_mode=collaboration_mode(settings),
        **in_force(settings, config.provider.id, sources),
    )
    lines = NotificationLines(id, time.time, parse_capabilities(client.capabilities).opted_out)
    changed = ThreadStatusChangedNotification(thread_id=id, status=status)
    lines.add_raw(THREAD_STATUS_CHANGED, changed.to_json())
    return ShownConversation(response.to_json(), tuple(lines.take()), frozenset((THREAD_STATUS_CHANGED,)))


def _summary(launch: Launch, path: Path, config: Config, settings: Settings) -> ThreadSummary:
    """As of a loaded thread: with what it works with now."""
    provider = settings_of_request(launch, RequestOverrides()).provider.id
    stored = read_thread_summary(path, provider, ThreadNotes(launch.home, time.time))
    return replace(
        stored,
        model=ModelInUse(config.provider.id, settings.model, settings.effort),
        origin=replace(stored.origin, cwd=settings.cwd),
    )


def _turns(path: Path, id: ConversationId) -> tuple[Turn, ...]:
    with open_history(path, id, TurnIndexes()) as history:
        return whole_turns(history.all_turns(), shown_turn)
