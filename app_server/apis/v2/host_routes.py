"""Routes of what a client does on the machine: files, searches, commands, and commands that threads left running."""

from __future__ import annotations

from collections.abc import Sequence

from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2.client_processes import ClientProcesses
from app_server.apis.v2.handlers import background_terminals, client_commands, client_files, file_search
from app_server.apis.v2.handlers.threads import ThreadContext
from app_server.apis.v2.notify import ThreadNotifier
from app_server.apis.v2.search_sessions import SearchSessions
from app_server.core.client_files.watching import FileWatcher
from app_server.core.files.search import FileMatch
from protocol.v2 import host_methods as methods
from protocol.v2 import thread_methods as threads
from protocol.v2.files import FsChangedNotification
from protocol.v2.notifications import (
    FS_CHANGED,
    FUZZY_FILE_SEARCH_SESSION_COMPLETED,
    FUZZY_FILE_SEARCH_SESSION_UPDATED,
)
from protocol.v2.search import (
    FuzzyFileSearchSessionCompletedNotification,
    FuzzyFileSearchSessionUpdatedNotification,
)


def host_routes(
    services: ServerServices, notifier: ThreadNotifier, thread: ThreadContext
) -> tuple[Route, ...]:
    return (
        *_file_routes(services, notifier),
        *_search_routes(services, notifier),
        *_command_routes(services, notifier),
        route(threads.THREAD_BACKGROUND_TERMINALS_LIST, background_terminals.terminals_list, thread),
        route(
            threads.THREAD_BACKGROUND_TERMINALS_TERMINATE, background_terminals.terminals_terminate, thread
        ),
        route(threads.THREAD_BACKGROUND_TERMINALS_CLEAN, background_terminals.terminals_clean, thread),
    )


def _file_routes(services: ServerServices, notifier: ThreadNotifier) -> tuple[Route, ...]:
    async def notify_changed(watch_id: str, paths: Sequence[str]) -> None:
        await services.outgoing.wait_for_capacity()
        changed = FsChangedNotification(watch_id=watch_id, changed_paths=tuple(paths))
        notifier.notify(FS_CHANGED, changed)

    watcher = FileWatcher(notify_changed, services.background)
    files = client_files.ClientFileContext(services.config, services.outgoing, watcher)
    return (
        route(methods.FS_READ_FILE, client_files.fs_read_file, files),
        route(methods.FS_WRITE_FILE, client_files.fs_write_file, files),
        route(methods.FS_CREATE_DIRECTORY, client_files.fs_create_directory, files),
        route(methods.FS_GET_METADATA, client_files.fs_get_metadata, files),
        route(methods.FS_READ_DIRECTORY, client_files.fs_read_directory, files),
        route(methods.FS_REMOVE, client_files.fs_remove, files),
        route(methods.FS_COPY, client_files.fs_copy, files),
        route(methods.FS_WATCH, client_files.fs_watch, files),
        route(methods.FS_UNWATCH, client_files.fs_unwatch, files),
    )


def _search_routes(services: ServerServices, notifier: ThreadNotifier) -> tuple[Route, ...]:
    async def notify_found(session_id: str, query: str, found: Sequence[FileMatch]) -> None:
        await services.outgoing.wait_for_capacity()
        updated = FuzzyFileSearchSessionUpdatedNotification(
            session_id=session_id, query=query, files=file_search.shown_matches(found)
        )
        notifier.notify(FUZZY_FILE_SEARCH_SESSION_UPDATED, updated)
        completed = FuzzyFileSearchSessionCompletedNotification(session_id=session_id)
        notifier.notify(FUZZY_FILE_SEARCH_SESSION_COMPLETED, completed)

    sessions = SearchSessions(services.host.search, services.background, notify_found)
    search = file_search.FileSearchContext(services.host.search, sessions)
    return (
        route(methods.FUZZY_FILE_SEARCH, file_search.fuzzy_file_search, search),
        route(methods.FUZZY_FILE_SEARCH_SESSION_START, file_search.session_start, search),
        route(methods.FUZZY_FILE_SEARCH_SESSION_UPDATE, file_search.session_update, search),
        route(methods.FUZZY_FILE_SEARCH_SESSION_STOP, file_search.session_stop, search),
    )


def _command_routes(services: ServerServices, notifier: ThreadNotifier) -> tuple[Route, ...]:
    commands = client_commands.ClientCommandContext(
        services.config, services.host.runner, services.outgoing, notifier, ClientProcesses()
    )
    return (
        route(methods.COMMAND_EXEC, client_commands.command_exec, commands),
        route(methods.COMMAND_EXEC_WRITE, client_commands.command_exec_write, commands),
        route(methods.COMMAND_EXEC_RESIZE, client_commands.command_exec_resize, commands),
        route(methods.COMMAND_EXEC_TERMINATE, client_commands.command_exec_terminate, commands),
    )
