"""Routes of reading threads."""

from __future__ import annotations

from app_server.apis.route import Route, route
from app_server.apis.v2.handlers import reading, thread_list, thread_search
from protocol.v2 import thread_methods as methods


def reading_routes(context: reading.ReadingContext) -> tuple[Route, ...]:
    return (
        route(methods.THREAD_READ, reading.thread_read, context),
        route(methods.THREAD_TURNS_LIST, reading.thread_turns_list, context),
        route(methods.THREAD_ITEMS_LIST, reading.thread_items_list, context),
        route(methods.THREAD_LIST, thread_list.thread_list, context),
        route(methods.THREAD_SEARCH, thread_search.thread_search, context),
        route(methods.THREAD_LOADED_LIST, reading.thread_loaded_list, context),
    )
