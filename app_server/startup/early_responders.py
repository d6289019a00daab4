"""Which requests are answered before the server is loaded. What answers one is loaded with the first request for it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.core.lazy import Lazy
from app_server.identity import EarlyInitialize
from app_server.rpc.version import with_version
from app_server.startup.early_answers import EarlyAnswer, EarlyResponder, SpokenApi
from app_server.startup.early_handshake import EarlyResponders
from app_server.startup.launch import Launch
from protocol.ids import new_conversation_id
from protocol.jsonrpc import Request
from protocol.names import (
    LIST_CONVERSATIONS,
    NEW_CONVERSATION,
    NEW_SESSION,
    RESUME_CONVERSATION,
    THREAD_LIST,
    THREAD_RESUME,
    THREAD_START,
)

if TYPE_CHECKING:
    from app_server.startup.early_conversations import PlannedConversation

log = logging.getLogger(__name__)


def early_responders(launch: Launch, spoken: SpokenApi, server: Lazy[object]) -> EarlyResponders:
    def for_client(client: EarlyInitialize) -> EarlyResponder:
        if launch.acp:
            session = _sessions(launch, client)  # one follows always: loaded while the client asks for it
            responders = {NEW_SESSION: Lazy(lambda: session)}
        else:
            responders = {
                NEW_CONVERSATION: Lazy(lambda: _conversations(launch, client)),
                THREAD_START: Lazy(lambda: _started_threads(launch, client)),
                RESUME_CONVERSATION: Lazy(lambda: _resumed_conversations(launch)),
                THREAD_RESUME: Lazy(lambda: _resumed_threads(launch, client)),
            }
            if launch.plain:
                responders[LIST_CONVERSATIONS] = Lazy(lambda: _list(launch.home))
                responders[THREAD_LIST] = Lazy(lambda: _threads(launch.home))

        def answer(request: Request) -> EarlyAnswer | None:
            spoken.threads |= "/" in request.method
            if request.method == THREAD_RESUME and server.started:
                return None  # it may need models: two threads would load the same modules
            responder = responders.get(request.method)
            try:
                found = None if responder is None else responder.get()(request)
            except Exception:  # the full server then serves the request, and reports the error
                log.exception("%s could not be answered early", request.method)
                return None
            if found is not None and launch.acp:
                notifications = tuple(with_version(line) for line in found.notifications)
                return replace(found, response=with_version(found.response), notifications=notifications)
            return found

        return answer

    return for_client


def _conversations(launch: Launch, client: EarlyInitialize) -> EarlyResponder:
    from app_server.startup.early_openings import planned_conversation  # noqa: PLC0415

    return _beginning(client, lambda request: planned_conversation(launch, request))


def _started_threads(launch: Launch, client: EarlyInitialize) -> EarlyResponder:
    from app_server.startup.early_openings import planned_thread  # noqa: PLC0415

    return _beginning(client, lambda request: planned_thread(launch, request))


def _resumed_conversations(launch: Launch) -> EarlyResponder:
    from app_server.startup.early_resumed_conversations import planned_conversation_resume  # noqa: PLC0415
    from app_server.startup.early_resumes import early_resume  # noqa: PLC0415

    return early_resume(lambda request: planned_conversation_resume(launch, request))


def _resumed_threads(launch: Launch, client: EarlyInitialize) -> EarlyResponder:
    from app_server.startup.early_resumed_threads import planned_thread_resume  # noqa: PLC0415
    from app_server.startup.early_resumes import early_resume  # noqa: PLC0415

    return early_resume(lambda request: planned_thread_resume(launch, client, request))


def _sessions(launch: Launch, client: EarlyInitialize) -> EarlyResponder:
    from app_server.startup.early_sessions import planned_session  # noqa: PLC0415

    return _beginning(client, lambda request: planned_session(launch, request))


def _beginning(
    client: EarlyInitialize, plan: Callable[[Request], PlannedConversation | None]
) -> EarlyResponder:
    from app_server.startup.early_conversations import EarlyConversations  # noqa: PLC0415

    return EarlyConversations(
        plan=plan,
        client=client,
        now=lambda: datetime.now().astimezone(),
        new_id=lambda: new_conversation_id(time.time_ns() // 1_000_000, os.urandom(10)),
    ).answer


def _list(home: Path) -> EarlyResponder:
    from app_server.startup.early_list import early_list  # noqa: PLC0415

    return lambda request: early_list(request, home)


def _threads(home: Path) -> EarlyResponder:
    from app_server.startup.early_threads import EarlyThreads  # noqa: PLC0415

    return EarlyThreads(home).answer
