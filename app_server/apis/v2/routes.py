"""The routes of the thread API: the rows of its table that are served, with what serves them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio

from app_server.apis.route import HandlerResult, Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2.handlers import reading, threads, turns
from app_server.apis.v2.handlers.account import account_routes, refusals
from app_server.apis.v2.handlers.client_commands import command_routes
from app_server.apis.v2.handlers.client_files import file_routes, search_routes
from app_server.apis.v2.handlers.configuration import config_routes
from app_server.apis.v2.handlers.mcp_servers import mcp_routes
from app_server.apis.v2.handlers.models import model_routes
from app_server.apis.v2.handlers.skills import extension_routes, skills_routes
from app_server.apis.v2.handlers.stored_threads import StoredThreadContext, stored_routes
from app_server.apis.v2.handlers.thread_list import reading_routes
from app_server.apis.v2.handlers.thread_work import WorkContext, work_routes
from app_server.apis.v2.loaded_threads import ItemIdSeeds, LoadedThreads
from app_server.apis.v2.news import AccountLimits, SentOnce
from app_server.apis.v2.notify import ConfigWarnings, ThreadNotifier
from app_server.apis.v2.outbound import ThreadAdapter
from app_server.apis.v2.settings import thread_status
from app_server.apis.v2.turns import shown_items, shown_turn
from app_server.conversations.manager import ConversationManager
from app_server.conversations.unloading import IdleUnloader
from app_server.core.rollout.thread_listing import ThreadLists
from app_server.core.rollout.thread_notes import ThreadNotes
from app_server.core.rollout.turn_index import TurnIndexes
from app_server.identity import ClientProfile
from app_server.rpc.errors import invalid_request
from protocol.base import Json, WireModel
from protocol.structs import Written
from protocol.v2.fields import experimental_fields_in_use
from protocol.v2.settings import GranularAskForApproval
from protocol.v2.thread import (
    THREAD_CLOSED,
    THREAD_STATUS_CHANGED,
    NotLoadedThreadStatus,
    ThreadClosedNotification,
    ThreadStatusChangedNotification,
)
from protocol.v2.thread_open import THREAD_RESUME, THREAD_START, THREAD_UNSUBSCRIBE
from protocol.v2.turn import TURN_INTERRUPT, TURN_START, TURN_STEER


def needed_capability(method: str, params: WireModel) -> str | None:
    """What in these parameters is experimental, as the refusal names it; None where nothing is."""
    fields = experimental_fields_in_use(params)
    if fields:
        return f"{method}.{fields[0]}"
    if any(isinstance(value, GranularAskForApproval) for value in vars(params).values()):
        return "askForApproval.granular"
    return None


def gated(route: Route, client: ClientProfile) -> Route:
    """The route, closed to parameters that this client has not opted in to."""

    async def handle(params: Json) -> Written | HandlerResult[Written]:
        needed = None if client.experimental_api else needed_capability(route.method, params)
        if needed is not None:
            raise invalid_request(
                f"{needed} requires experimentalApi capability", "experimental_api_required"
            )
        return await route.handle(params)

    return Route(route.row, handle)


def setup_routes(
    services: ServerServices, notifier: ThreadNotifier, limits: AccountLimits
) -> tuple[Route, ...]:
    return (
        *model_routes(services),
        *account_routes(services, notifier, limits),
        *config_routes(services),
        *extension_routes(services),
        *refusals(services.accounts.auth),
    )


def routes(services: ServerServices) -> tuple[Route, ...]:
    config, client = services.config, services.handshake.client
    client.elicitation = True  # clients of this API answer questions of MCP servers

    indexes = TurnIndexes()
    seeds = ItemIdSeeds(indexes)
    notifier = ThreadNotifier(services.outgoing, client, services.machine.wall_clock)
    warnings = ConfigWarnings(notifier)
    once = SentOnce(warned=warnings.sent)

    def make_adapter(thread_id: str) -> ThreadAdapter:
        return ThreadAdapter(
            thread_id, services.machine.wall_clock, client.opted_out, seeds.take(thread_id), once=once
        )

    notes = ThreadNotes(config.home, services.machine.wall_clock)
    loaded = LoadedThreads(services.conversations, make_adapter, services.handshake.user_agent)
    read = reading.ReadingContext(
        config,
        loaded,
        indexes,
        reading.Rendering(shown_turn, shown_items, thread_status),
        notes,
        ThreadLists(config.home, notes, services.machine.wall_clock),
    )

    thread = threads.ThreadContext(
        config,
        services.conversations,
        notifier,
        make_adapter,
        read,
        loaded,
        seeds,
        _idle_unloader(services.conversations, notifier, services.machine.monotonic),
        services.skills,
    )

    rows = (
        route(THREAD_START, threads.thread_start, thread),
        route(THREAD_RESUME, threads.thread_resume, thread),
        route(THREAD_UNSUBSCRIBE, threads.thread_unsubscribe, thread),
        route(TURN_START, turns.turn_start, thread),
        route(TURN_STEER, turns.turn_steer, thread),
        route(TURN_INTERRUPT, turns.turn_interrupt, thread),
        *reading_routes(read),
        *work_routes(WorkContext(thread, services.host.git)),
        *stored_routes(StoredThreadContext(read, services.conversations, notifier, notes)),
        *setup_routes(services, notifier, once.limits),
        *mcp_routes(services, notifier),
        *skills_routes(services, notifier),
        *file_routes(services, notifier),
        *search_routes(services, notifier),
        *command_routes(services, notifier),
    )
    warnings.send(config)
    return tuple(gated(row, client) for row in rows)


def _idle_unloader(
    conversations: ConversationManager, notifier: ThreadNotifier, clock: Callable[[], float]
) -> IdleUnloader:
    """Ends threads that nobody uses, in the background."""

    def closed(thread_id: str) -> None:
        notifier.notify(THREAD_CLOSED, ThreadClosedNotification(thread_id=thread_id))
        status = ThreadStatusChangedNotification(thread_id=thread_id, status=NotLoadedThreadStatus())
        notifier.notify(THREAD_STATUS_CHANGED, status)

    unloader = IdleUnloader(conversations, clock, closed)
    conversations.wait_for_room = unloader.wait_for_room
    conversations.in_background(partial(unloader.run, anyio.sleep), "idle threads")
    return unloader
