"""Routes of goals."""

from __future__ import annotations

from app_server.apis.route import Route, route
from app_server.apis.v2.handlers import goals
from app_server.apis.v2.handlers.threads import ThreadContext
from protocol.v2 import thread_methods as methods


def goal_routes(context: ThreadContext) -> tuple[Route, ...]:
    return (
        route(methods.THREAD_GOAL_SET, goals.thread_goal_set, context),
        route(methods.THREAD_GOAL_GET, goals.thread_goal_get, context),
        route(methods.THREAD_GOAL_CLEAR, goals.thread_goal_clear, context),
    )
