"""Files for the client, with the rights of the user and outside of any sandbox: `fs/*`, and `fuzzyFileSearch`, which
searches once or in a session whose query changes.

The user's configuration can switch all of `fs/*` off. Blocking work is done in threads; file contents are sent only as
fast as the client reads.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.support.engine_errors import FileRefused
from app_server.engine.workspace.files.fuzzy import FileMatch
from app_server.engine.workspace.files.search import FileSearch
from app_server.engine.workspace.fs.client_files import ClientFiles
from app_server.engine.workspace.fs.watching import FileWatcher
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.thread_notifier import to_client
from app_server_protocol.outgoing import struct_from
from app_server_protocol.rpc_errors import RpcError, internal_error, invalid_field, invalid_request
from app_server_protocol.v2 import files as wire

READERS = 4
"""Maximum number of files and directories that are read at once: one may take 200 MB of memory until it is sent."""

T = TypeVar("T")


class FileReads(Struct):
    """The reads of one client that go on at once."""

    slots: anyio.Semaphore = msgspec.field(default_factory=lambda: anyio.Semaphore(READERS))


async def _read(context: ConnectionContext, work: Callable[[ClientFiles], T]) -> T:
    async with context.own.get(FileReads, FileReads).slots:
        await context.client.outgoing.wait_for_capacity()
        return await _run(context, work)


async def _run(context: ConnectionContext, work: Callable[[ClientFiles], T]) -> T:
    with reported_errors():
        return await context.host.with_files(work)


def _watcher(context: ConnectionContext) -> FileWatcher:
    async def notify_changed(watch_id: str, paths: Sequence[str]) -> None:
        await context.client.outgoing.wait_for_capacity()
        to_client(context).notify(wire.FS_CHANGED, watch_id=watch_id, changed_paths=tuple(paths))

    return context.own.get(FileWatcher, lambda: context.host.watcher(notify_changed, context.background))


async def fs_read_file(context: ConnectionContext, params: wire.AtPath) -> wire.FsReadFileResponse:
    text = await _read(context, lambda files: base64.b64encode(files.read(params.path)).decode())
    return wire.FsReadFileResponse(data_base64=text)


async def fs_write_file(context: ConnectionContext, params: wire.FsWriteFileParams) -> None:
    await _run(context, lambda files: files.write(params.path, _decoded(params.data_base64)))
    for live in context.conversations.all():
        await live.session.user_wrote(params.path)
        break  # the sessions of a server share their checkpoints


async def fs_create_directory(context: ConnectionContext, params: wire.FsCreateDirectoryParams) -> None:
    recursive = params.recursive is not False
    await _run(context, lambda files: files.create_directory(params.path, recursive=recursive))


async def fs_get_metadata(context: ConnectionContext, params: wire.AtPath) -> wire.FsGetMetadataResponse:
    found = await _run(context, lambda files: files.metadata(params.path))
    return struct_from(wire.FsGetMetadataResponse, found)


async def fs_read_directory(context: ConnectionContext, params: wire.AtPath) -> wire.FsReadDirectoryResponse:
    found = await _read(context, lambda files: files.list(params.path))
    return wire.FsReadDirectoryResponse(
        entries=tuple(struct_from(wire.FsReadDirectoryEntry, each) for each in found)
    )


async def fs_remove(context: ConnectionContext, params: wire.FsRemoveParams) -> None:
    recursive, force = params.recursive is not False, params.force is not False
    await _run(context, lambda files: files.remove(params.path, recursive=recursive, force=force))


async def fs_copy(context: ConnectionContext, params: wire.FsCopyParams) -> None:
    given_up = threading.Event()
    source, destination, recursive = params.source_path, params.destination_path, params.recursive
    try:
        await _run(
            context, lambda files: files.copy(source, destination, given_up.is_set, recursive=recursive)
        )
    finally:
        given_up.set()


async def fs_watch(
    context: ConnectionContext, params: wire.FsWatchParams
) -> AsyncIterator[wire.FsWatchResponse]:
    with reported_errors():
        path = await _watcher(context).watch(params.watch_id, params.path)
    yield wire.FsWatchResponse(path=path)
    _watcher(context).begin(params.watch_id)


async def fs_unwatch(context: ConnectionContext, params: wire.OfWatch) -> None:
    """End a watch; a watch that does not exist is no error."""
    _watcher(context).unwatch(params.watch_id)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Convert errors of the operating system into errors with texts that clients of this API know."""
    try:
        yield
    except FileRefused as error:
        raise invalid_request(str(error), error.kind) from error
    except OSError as error:
        raise system_error(error) from error


def system_error(error: OSError) -> RpcError:
    if error.errno is None:
        return internal_error(str(error), "io")
    return internal_error(f"{os.strerror(error.errno)} (os error {error.errno})", "io")


def _decoded(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise FileRefused(
            f"fs/writeFile requires valid base64 dataBase64: {error}", "invalid_params"
        ) from error


MOST = 64
"""Maximum number of search sessions of one client."""

Found = Callable[[str, str, Sequence[FileMatch]], Awaitable[None]]
"""Function that notifies the client of the session, its query, and the files found."""


class SearchSession(Struct):
    roots: tuple[str, ...]
    running: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    """Cancel scope of the search for the latest query."""


class SearchSessions(Struct):
    """All search sessions of one client, by the client's own names."""

    search: FileSearch
    tasks: TaskGroup
    found: Found
    _sessions: dict[str, SearchSession] = msgspec.field(default_factory=dict)

    def start(self, id: str, roots: tuple[str, ...]) -> SearchSession:
        """Begin a session; it replaces one of the same name. Raises RpcError."""
        self.stop(id)
        if len(self._sessions) >= MOST:
            raise invalid_request(f"no more than {MOST} file searches can be open", "too_many_sessions")
        session = self._sessions[id] = SearchSession(roots)
        return session

    def get(self, id: str) -> SearchSession:
        """Return a session. Raises RpcError."""
        session = self._sessions.get(id)
        if session is None:
            raise invalid_request(f"fuzzy file search session not found: {id}", "session_not_found")
        return session

    def look_for(self, id: str, session: SearchSession, query: str) -> None:
        """Begin a search, unless the session has ended meanwhile; results of the search before are no longer sent."""
        session.running.cancel()
        if self._sessions.get(id) is session:
            session.running = anyio.CancelScope()
            self.tasks.start_soon(self._search, session.running, id, session.roots, query, name="file search")

    def stop(self, id: str) -> None:
        session = self._sessions.pop(id, None)
        if session is not None:
            session.running.cancel()

    async def _search(self, scope: anyio.CancelScope, id: str, roots: tuple[str, ...], query: str) -> None:
        with scope:
            await self.found(id, query, await self.search.search(query, roots, names_count=True))


def _sessions(context: ConnectionContext) -> SearchSessions:
    async def notify_found(session_id: str, query: str, found: Sequence[FileMatch]) -> None:
        await context.client.outgoing.wait_for_capacity()
        notifier = to_client(context)
        notifier.notify(
            wire.FUZZY_FILE_SEARCH_SESSION_UPDATED,
            session_id=session_id,
            query=query,
            files=shown_matches(found),
        )
        notifier.notify(wire.FUZZY_FILE_SEARCH_SESSION_COMPLETED, session_id=session_id)

    return context.own.get(
        SearchSessions, lambda: SearchSessions(context.host.search.get(), context.background, notify_found)
    )


async def fuzzy_file_search(
    context: ConnectionContext, params: wire.FuzzyFileSearchParams
) -> wire.FuzzyFileSearchResponse:
    """Search once; a second search with the same token cancels the first, which then returns no files."""
    found = await _sessions(context).search.search(
        params.query, params.roots, params.cancellation_token, names_count=True
    )
    return wire.FuzzyFileSearchResponse(files=shown_matches(found))


async def session_start(
    context: ConnectionContext, params: wire.FuzzyFileSearchSessionStartParams
) -> AsyncIterator[None]:
    """Begin a session; its first notification has no query and no files."""
    id = params.session_id
    if not id:
        raise invalid_field("sessionId must not be empty", "sessionId")
    if not params.roots:
        raise internal_error(
            "failed to start fuzzy file search session: at least one search directory is required", "no_roots"
        )
    session = _sessions(context).start(id, params.roots)
    yield
    _sessions(context).look_for(id, session, "")


async def session_update(
    context: ConnectionContext, params: wire.FuzzyFileSearchSessionUpdateParams
) -> AsyncIterator[None]:
    session = _sessions(context).get(params.session_id)
    yield
    _sessions(context).look_for(params.session_id, session, params.query)


async def session_stop(context: ConnectionContext, params: wire.OfSearch) -> None:
    """End a session; a session that does not exist is no error."""
    _sessions(context).stop(params.session_id)


def shown_matches(found: Sequence[FileMatch]) -> tuple[wire.FuzzyFileSearchResult, ...]:
    return tuple(
        struct_from(wire.FuzzyFileSearchResult, match, match_type="directory" if match.is_folder else "file")
        for match in found
    )


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    with_rights = (
        route(wire.FS_READ_FILE, fs_read_file, context),
        route(wire.FS_WRITE_FILE, fs_write_file, context),
        route(wire.FS_CREATE_DIRECTORY, fs_create_directory, context),
        route(wire.FS_GET_METADATA, fs_get_metadata, context),
        route(wire.FS_READ_DIRECTORY, fs_read_directory, context),
        route(wire.FS_REMOVE, fs_remove, context),
        route(wire.FS_COPY, fs_copy, context),
        route(wire.FS_WATCH, fs_watch, context),
    )
    return (
        *(_guarded(each, context) for each in with_rights),
        route(wire.FS_UNWATCH, fs_unwatch, context),
        route(wire.FUZZY_FILE_SEARCH, fuzzy_file_search, context),
        route(wire.FUZZY_FILE_SEARCH_SESSION_START, session_start, context),
        route(wire.FUZZY_FILE_SEARCH_SESSION_UPDATE, session_update, context),
        route(wire.FUZZY_FILE_SEARCH_SESSION_STOP, session_stop, context),
    )


def _guarded(route: Route, context: ConnectionContext) -> Route:
    """Return the route, restricted to clients that have the user's rights."""

    return route.checked(lambda params: context.require_client_rights(route.method))
