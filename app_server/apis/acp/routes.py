"""The methods of this protocol with what serves them, and the router of a connection that speaks it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from app_server.apis.acp.handlers import handshake, listing, options, prompts, sessions
from app_server.apis.acp.router import AcpRouter
from app_server.apis.acp.sessions import Sessions
from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.core.rollout.thread_listing import ThreadLists
from app_server.core.rollout.thread_notes import ThreadNotes
from protocol.acp import methods
from protocol.base import Json


def open_router(services: ServerServices, early: Mapping[str, Json] | None) -> AcpRouter:
    """`early`: the parameters of an `initialize` that was answered before this was loaded."""
    opened = Sessions(services.conversations, services.outgoing, services.background)
    login = handshake.LoginContext(
        services.config, services.accounts.auth, services.accounts.logins, opened, services.handshake
    )
    if early is not None:
        handshake.accept(login, early)

    def cancel(session_id: str) -> None:
        session = opened.find(session_id)
        if session is not None:
            session.turns.cancel()

    client = services.handshake.client
    return AcpRouter(routes(services, opened, login), lambda: client.initialized, cancel)


def routes(services: ServerServices, opened: Sessions, login: handshake.LoginContext) -> tuple[Route, ...]:
    notes = ThreadNotes(services.config.home, time.time)
    session = sessions.SessionContext(
        services.config,
        notes,
        services.conversations,
        opened,
        services.outgoing,
        login,
        services.handshake.warm_up,
        services.engine,
    )
    prompting = prompts.PromptContext(opened, services.accounts.auth, services.config.home)
    listed = listing.ListContext(ThreadLists(services.config.home, notes, time.time))
    return (
        route(methods.INITIALIZE, handshake.initialize, login),
        route(methods.AUTHENTICATE, handshake.authenticate, login),
        route(methods.LOGOUT, handshake.logout, login),
        route(methods.NEW_SESSION, sessions.new_session, session),
        route(methods.LOAD_SESSION, sessions.load_session, session),
        route(methods.RESUME_SESSION, sessions.resume_session, session),
        route(methods.LIST_SESSIONS, listing.list_sessions, listed),
        route(methods.CLOSE_SESSION, sessions.close_session, session),
        route(methods.DELETE_SESSION, sessions.delete_session, session),
        route(methods.SET_MODE, options.set_mode, opened),
        route(methods.SET_CONFIG_OPTION, options.set_config_option, opened),
        route(methods.PROMPT, prompts.prompt, prompting),
        route(methods.STEERING, prompts.steering, prompting),
    )
