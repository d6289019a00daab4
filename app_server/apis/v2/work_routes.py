"""Routes of work on open threads: copies and cuts of them, compaction, reviews, the user's commands, settings."""

from __future__ import annotations

from app_server.apis.route import Route, route
from app_server.apis.v2.handlers import thread_copies, thread_work
from protocol.v2 import thread_methods, turn_methods


def work_routes(context: thread_work.WorkContext) -> tuple[Route, ...]:
    return (
        route(thread_methods.THREAD_FORK, thread_copies.thread_fork, context.threads),
        route(thread_methods.THREAD_REVERT, thread_copies.thread_revert, context.threads),
        route(thread_methods.THREAD_COMPACT_START, thread_work.thread_compact_start, context),
        route(thread_methods.THREAD_INJECT_ITEMS, thread_work.thread_inject_items, context),
        route(thread_methods.THREAD_SHELL_COMMAND, thread_work.thread_shell_command, context),
        route(thread_methods.THREAD_SETTINGS_UPDATE, thread_work.thread_settings_update, context),
        route(turn_methods.REVIEW_START, thread_work.review_start, context),
    )
