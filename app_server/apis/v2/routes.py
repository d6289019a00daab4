"""The routes of the thread API: the rows of its table that are served, with what serves them."""

from __future__ import annotations

import time

from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2.handlers import threads, turns
from app_server.apis.v2.notify import ThreadNotifier
from app_server.apis.v2.outbound import ThreadAdapter
from app_server.apis.v2.thread_reader import ThreadReader
from app_server.core.rollout.turn_index import TurnIndexes
from protocol.v2 import thread_methods, turn_methods


def routes(services: ServerServices) -> tuple[Route, ...]:
    client = services.handshake.client
    client.elicitation = True  # clients of this API answer questions of MCP servers

    def make_adapter(thread_id: str) -> ThreadAdapter:
        return ThreadAdapter(thread_id, time.time, client.opted_out)

    reader = ThreadReader(services.config, services.conversations, make_adapter, TurnIndexes())
    thread = threads.ThreadContext(
        services.config,
        services.conversations,
        ThreadNotifier(services.outgoing, client, time.time),
        make_adapter,
        reader,
        services.handshake.warm_up,
    )
    return (
        route(thread_methods.THREAD_START, threads.thread_start, thread),
        route(thread_methods.THREAD_RESUME, threads.thread_resume, thread),
        route(thread_methods.THREAD_UNSUBSCRIBE, threads.thread_unsubscribe, thread),
        route(turn_methods.TURN_START, turns.turn_start, thread),
        route(turn_methods.TURN_STEER, turns.turn_steer, thread),
        route(turn_methods.TURN_INTERRUPT, turns.turn_interrupt, thread),
    )
