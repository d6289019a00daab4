"""The routes of the thread API: the rows of its table that are served, with what serves them."""

from __future__ import annotations

import time

from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2 import spelling
from app_server.apis.v2.gate import gated
from app_server.apis.v2.handlers import reading, threads, turns
from app_server.apis.v2.loaded_threads import LoadedThreads
from app_server.apis.v2.notify import ThreadNotifier
from app_server.apis.v2.outbound import ThreadAdapter
from app_server.apis.v2.reading_routes import reading_routes
from app_server.apis.v2.setup_routes import setup_routes
from app_server.apis.v2.turns import shown_items, shown_turn
from app_server.core.rollout.turn_index import TurnIndexes
from protocol.v2 import thread_methods, turn_methods


def routes(services: ServerServices) -> tuple[Route, ...]:
    config, client = services.config, services.handshake.client
    client.elicitation = True  # clients of this API answer questions of MCP servers

    def make_adapter(thread_id: str) -> ThreadAdapter:
        return ThreadAdapter(thread_id, time.time, client.opted_out)

    loaded = LoadedThreads(services.conversations, make_adapter, services.handshake.user_agent)
    read = reading.ReadingContext(
        config,
        loaded,
        TurnIndexes(),
        reading.Rendering(shown_turn, shown_items, spelling.thread_status),
        _unnamed,
    )
    thread = threads.ThreadContext(
        config,
        services.conversations,
        ThreadNotifier(services.outgoing, client, time.time),
        make_adapter,
        read,
        loaded,
        services.handshake.warm_up,
    )
    rows = (
        route(thread_methods.THREAD_START, threads.thread_start, thread),
        route(thread_methods.THREAD_RESUME, threads.thread_resume, thread),
        route(thread_methods.THREAD_UNSUBSCRIBE, threads.thread_unsubscribe, thread),
        route(turn_methods.TURN_START, turns.turn_start, thread),
        route(turn_methods.TURN_STEER, turns.turn_steer, thread),
        route(turn_methods.TURN_INTERRUPT, turns.turn_interrupt, thread),
        *reading_routes(read),
        *setup_routes(services),
    )
    return tuple(gated(row, client) for row in rows)


def _unnamed(thread_id: str) -> None:
    """Threads have no names yet."""
