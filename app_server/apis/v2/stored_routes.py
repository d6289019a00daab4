"""Routes of changing stored threads."""

from __future__ import annotations

from app_server.apis.route import Route, route
from app_server.apis.v2.handlers import stored_threads
from protocol.v2 import thread_methods as methods


def stored_routes(context: stored_threads.StoredThreadContext) -> tuple[Route, ...]:
    return (
        route(methods.THREAD_ARCHIVE, stored_threads.thread_archive, context),
        route(methods.THREAD_UNARCHIVE, stored_threads.thread_unarchive, context),
        route(methods.THREAD_DELETE, stored_threads.thread_delete, context),
        route(methods.THREAD_NAME_SET, stored_threads.thread_name_set, context),
        route(methods.THREAD_METADATA_UPDATE, stored_threads.thread_metadata_update, context),
    )
