"""What `resumeConversation` asks for and is answered, for `early_resumes`. Fast to import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app_server.core.config.types import RequestOverrides
from app_server.core.rollout.history_log import log_metadata
from app_server.core.rollout.listing import find_rollout
from app_server.core.rollout.plain_messages import plain_messages
from app_server.startup.early_answers import compact_json
from app_server.startup.early_openings import OF_CONVERSATIONS, plain_overrides
from app_server.startup.early_resumes import PlannedResume, ShownConversation
from app_server.startup.launch import Launch
from app_server.startup.overrides import settings_of_request
from protocol.ids import parse_conversation_id
from protocol.jsonrpc import Request, dump_notification
from protocol.names import SESSION_CONFIGURED
from protocol.paths import is_unicode
from protocol.policy import known_effort

if TYPE_CHECKING:
    from protocol.base import Json


def planned_conversation_resume(launch: Launch, request: Request) -> PlannedResume | None:
    """None where the parameters need more validation. Raises one of `LEFT_TO_THE_SERVER`."""
    given = request.params
    if not isinstance(given, dict) or not given.keys() <= {"path", "conversationId", "history", "overrides"}:
        return None
    path, id = given.get("path"), given.get("conversationId")
    overrides = plain_overrides(given.get("overrides"), OF_CONVERSATIONS)
    if given.get("history") is not None or overrides is None:
        return None
    if isinstance(path, str) and "\0" not in path and is_unicode(path) and id is None:
        rollout = launch.cwd / path
    elif path is None and isinstance(id, str) and (known := parse_conversation_id(id)) is not None:
        rollout = find_rollout(launch.home, known)
    else:
        return None
    return PlannedResume(rollout, lambda: _shown(launch, rollout, overrides), request)


def _shown(launch: Launch, path: Path, overrides: RequestOverrides) -> ShownConversation | None:
    config = settings_of_request(launch, overrides)
    stored = plain_messages(path)
    if stored is None:
        return None
    log_id, count = log_metadata(launch.home)
    messages = b',"initialMessages":' + compact_json(list(stored.messages))
    end = messages + b',"rolloutPath":' + compact_json(str(path)) + b"}"
    model: Json = {"model": config.model.name}
    configured = {
        "sessionId": stored.conversation_id,
        **model,
        "reasoningEffort": known_effort(config.model.effort),
        "historyLogId": log_id,
        "historyEntryCount": count,
    }
    resumed = {"conversationId": stored.conversation_id, **model}
    return ShownConversation(
        compact_json(resumed)[:-1] + end,
        (dump_notification(SESSION_CONFIGURED, compact_json(configured)[:-1] + end),),
        frozenset((SESSION_CONFIGURED,)),
    )
