"""The routes of the thread API: the rows of its table that are served, with what serves them."""

from __future__ import annotations

import time
from functools import partial

import anyio

from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2 import spelling
from app_server.apis.v2.config_warnings import ConfigWarnings
from app_server.apis.v2.gate import gated
from app_server.apis.v2.goal_routes import goal_routes
from app_server.apis.v2.handlers import reading, threads, turns
from app_server.apis.v2.handlers.stored_threads import StoredThreadContext
from app_server.apis.v2.handlers.thread_work import WorkContext
from app_server.apis.v2.host_routes import host_routes
from app_server.apis.v2.item_id_seeds import ItemIdSeeds
from app_server.apis.v2.loaded_threads import LoadedThreads
from app_server.apis.v2.mcp_routes import mcp_routes
from app_server.apis.v2.notify import ThreadNotifier
from app_server.apis.v2.outbound import ThreadAdapter
from app_server.apis.v2.reading_routes import reading_routes
from app_server.apis.v2.sent_once import SentOnce
from app_server.apis.v2.setup_routes import setup_routes
from app_server.apis.v2.skills_routes import skills_routes
from app_server.apis.v2.stored_routes import stored_routes
from app_server.apis.v2.turns import shown_items, shown_turn
from app_server.apis.v2.work_routes import work_routes
from app_server.conversations.manager import ConversationManager
from app_server.conversations.unloading import IdleUnloader
from app_server.core.rollout.thread_listing import ThreadLists
from app_server.core.rollout.thread_notes import ThreadNotes
from app_server.core.rollout.turn_index import TurnIndexes
from protocol.v2 import thread_methods, turn_methods
from protocol.v2.notifications import THREAD_CLOSED, THREAD_STATUS_CHANGED
from protocol.v2.thread import NotLoadedThreadStatus
from protocol.v2.thread_events import ThreadClosedNotification, ThreadStatusChangedNotification


def routes(services: ServerServices) -> tuple[Route, ...]:
    config, client = services.config, services.handshake.client
    client.elicitation = True  # clients of this API answer questions of MCP servers

    indexes = TurnIndexes()
    seeds = ItemIdSeeds(indexes)
    notifier = ThreadNotifier(services.outgoing, client, time.time)
    warnings = ConfigWarnings(notifier)
    once = SentOnce(warned=warnings.sent)

    def make_adapter(thread_id: str) -> ThreadAdapter:
        return ThreadAdapter(thread_id, time.time, client.opted_out, seeds.take(thread_id), once=once)

    notes = ThreadNotes(config.home, time.time)
    loaded = LoadedThreads(services.conversations, make_adapter, services.handshake.user_agent)
    read = reading.ReadingContext(
        config,
        loaded,
        indexes,
        reading.Rendering(shown_turn, shown_items, spelling.thread_status),
        notes,
        ThreadLists(config.home, notes, time.time),
    )

    thread = threads.ThreadContext(
        config,
        services.conversations,
        notifier,
        make_adapter,
        read,
        loaded,
        seeds,
        _idle_unloader(services.conversations, notifier),
        services.handshake.warm_up,
        services.skills,
    )

    rows = (
        route(thread_methods.THREAD_START, threads.thread_start, thread),
        route(thread_methods.THREAD_RESUME, threads.thread_resume, thread),
        route(thread_methods.THREAD_UNSUBSCRIBE, threads.thread_unsubscribe, thread),
        route(turn_methods.TURN_START, turns.turn_start, thread),
        route(turn_methods.TURN_STEER, turns.turn_steer, thread),
        route(turn_methods.TURN_INTERRUPT, turns.turn_interrupt, thread),
        *goal_routes(thread),
        *reading_routes(read),
        *work_routes(WorkContext(thread, services.host.git)),
        *stored_routes(StoredThreadContext(read, services.conversations, notifier, notes)),
        *setup_routes(services, notifier, once.limits),
        *mcp_routes(services, notifier),
        *skills_routes(services, notifier),
        *host_routes(services, notifier, thread),
    )
    warnings.send(config)
    return tuple(gated(row, client) for row in rows)


def _idle_unloader(conversations: ConversationManager, notifier: ThreadNotifier) -> IdleUnloader:
    """Ends threads that nobody uses, in the background."""

    def closed(thread_id: str) -> None:
        notifier.notify(THREAD_CLOSED, ThreadClosedNotification(thread_id=thread_id))
        status = ThreadStatusChangedNotification(thread_id=thread_id, status=NotLoadedThreadStatus())
        notifier.notify(THREAD_STATUS_CHANGED, status)

    unloader = IdleUnloader(conversations, time.monotonic, closed)
    conversations.wait_for_room = unloader.wait_for_room
    conversations.in_background(partial(unloader.run, anyio.sleep), "idle threads")
    return unloader
