"""What `thread/resume` asks for and is answered, for `early_resumes`. Fast to import."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.apis.v2.reopening import with_last_settings
from app_server.core.config.types import Config, RequestOverrides
from app_server.core.context.project_docs import configured_instructions
from app_server.core.rollout.listing import find_rollout
from app_server.core.rollout.plain_messages import NotPlain
from app_server.core.rollout.plain_settings import plain_last_settings
from app_server.core.rollout.thread_notes import ThreadNotes
from app_server.core.rollout.thread_summary import read_thread_summary
from app_server.identity import EarlyInitialize
from app_server.startup.early_answers import compact_json
from app_server.startup.early_openings import SETTINGS, plain_overrides, shown_settings
from app_server.startup.early_resumes import PlannedResume, ShownConversation
from app_server.startup.early_thread_shape import early_notification, early_thread
from app_server.startup.early_threads import shown_summary
from app_server.startup.early_turns import early_turns
from app_server.startup.launch import Launch
from app_server.startup.overrides import settings_of_request
from protocol.ids import ConversationId, parse_conversation_id
from protocol.jsonrpc import Request
from protocol.names import THREAD_STATUS_CHANGED
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

MOST_BYTES = 8 * 1024 * 1024
"""Of more turns than that, the full server leaves items out."""

IDLE: Json = {"type": "idle"}


def planned_thread_resume(launch: Launch, client: EarlyInitialize, request: Request) -> PlannedResume | None:
    """None where the parameters need more validation. Raises one of `LEFT_TO_THE_SERVER`."""
    given = request.params
    if not isinstance(given, dict) or not isinstance(given.get("excludeTurns", False), bool):
        return None
    id = given.get("threadId")
    known = parse_conversation_id(id) if isinstance(id, str) else None
    rest = {name: value for name, value in given.items() if name not in ("threadId", "excludeTurns")}
    overrides = plain_overrides(rest, SETTINGS)
    if known is None or overrides is None:
        return None
    resume = _ThreadResume(launch, client, known, find_rollout(launch.home, known), overrides)
    with_turns = not given.get("excludeTurns", False)
    # Nobody reads the turns of the second answer.
    again = replace(request, params={**given, "excludeTurns": True})
    return PlannedResume(resume.path, lambda: resume.shown(with_turns=with_turns), again)


@dataclass(frozen=True, slots=True)
class _ThreadResume:
    launch: Launch
    client: EarlyInitialize
    id: ConversationId
    path: Path
    overrides: RequestOverrides

    def shown(self, *, with_turns: bool) -> ShownConversation | None:
        try:
            last = plain_last_settings(self.path)
            turns = early_turns(self.path, self.id) if with_turns else []
        except NotPlain:
            return None
        config = settings_of_request(self.launch, with_last_settings(self.overrides, last))
        sources: list[str] = []
        configured_instructions(config, sources=sources)
        settings = shown_settings(config, sources)
        if settings is None:
            return None
        result = compact_json(
            {
                "thread": self._thread(config, turns),
                **settings,
                "collaborationMode": _default_mode(config),
                "initialTurnsPage": None,
                "turnsBackwardsCursor": None,
                "itemsBackwardsCursor": None,
            }
        )
        if len(result) > MOST_BYTES:
            return None
        changed = early_notification(
            self.client, THREAD_STATUS_CHANGED, {"threadId": self.id, "status": IDLE}
        )
        return ShownConversation(result, changed, frozenset((THREAD_STATUS_CHANGED,)))

    def _thread(self, config: Config, turns: list[Json]) -> dict[str, Json]:
        """As of a loaded thread: with what it works with now."""
        notes = ThreadNotes(self.launch.home, time.time)
        summary = read_thread_summary(self.path, config.provider.id, notes)
        fields = {
            **shown_summary(summary),
            "modelProvider": config.provider.id,
            "model": config.model.name,
            "reasoningEffort": config.model.effort,
            "cwd": str(config.cwd),
            "status": IDLE,
            "turns": turns,
        }
        return early_thread(summary.id, summary.updated_at, summary.origin.git_info, fields)


def _default_mode(config: Config) -> Json:
    settings = {
        "model": config.model.name,
        "reasoning_effort": config.model.effort,
        "developer_instructions": None,
    }
    return {"mode": "default", "settings": settings}
