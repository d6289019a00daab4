"""`fs/*`: files for the client, with the rights of the user and outside of any sandbox.

The user's configuration can switch all of it off. Blocking work is done in threads; what is read goes to the client
only as fast as the client reads.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TypeVar

import anyio

from app_server.apis.client_rights import require_client_rights
from app_server.apis.result import HandlerResult
from app_server.apis.services import ConfigSource
from app_server.core.client_files import files
from app_server.core.client_files.copying import Copying
from app_server.core.client_files.opening import FileRefused
from app_server.core.client_files.watching import FileWatcher
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import RpcError, internal_error, invalid_request
from app_server.rpc.outgoing import Outgoing
from protocol.records import dataclass
from protocol.v2 import files as wire

READERS = 4
"""Files and directories that are read at once: one may take 200 MB until it is written."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientFileContext:
    config: ConfigSource
    outgoing: Outgoing
    watcher: FileWatcher
    readers: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(READERS))

    def check(self, method: str) -> None:
        require_client_rights(self.config, method)

    async def read(self, work: Callable[[], T]) -> T:
        async with self.readers:
            await self.outgoing.wait_for_capacity()
            with reported_errors():
                return await run_in_thread(work, abandon_on_cancel=True)


async def fs_read_file(context: ClientFileContext, params: wire.FsReadFileParams) -> wire.FsReadFileResponse:
    context.check("fs/readFile")
    home = str(context.config.home)
    text = await context.read(lambda: base64.b64encode(files.read_file(params.path, home)).decode())
    return wire.FsReadFileResponse(data_base64=text)


async def fs_write_file(
    context: ClientFileContext, params: wire.FsWriteFileParams
) -> wire.FsWriteFileResponse:
    context.check("fs/writeFile")
    await _run(lambda: files.write_file(params.path, _decoded(params.data_base64)))
    return wire.FsWriteFileResponse()


async def fs_create_directory(
    context: ClientFileContext, params: wire.FsCreateDirectoryParams
) -> wire.FsCreateDirectoryResponse:
    context.check("fs/createDirectory")
    await _run(partial(files.create_directory, params.path, recursive=params.recursive is not False))
    return wire.FsCreateDirectoryResponse()


async def fs_get_metadata(
    context: ClientFileContext, params: wire.FsGetMetadataParams
) -> wire.FsGetMetadataResponse:
    context.check("fs/getMetadata")
    found = await _run(lambda: files.metadata(params.path))
    return wire.FsGetMetadataResponse(
        is_directory=found.is_directory,
        is_file=found.is_file,
        is_symlink=found.is_symlink,
        created_at_ms=found.created_ms,
        modified_at_ms=found.modified_ms,
    )


async def fs_read_directory(
    context: ClientFileContext, params: wire.FsReadDirectoryParams
) -> wire.FsReadDirectoryResponse:
    context.check("fs/readDirectory")
    found = await context.read(lambda: files.list_directory(params.path))
    return wire.FsReadDirectoryResponse(
        entries=tuple(
            wire.FsReadDirectoryEntry(
                file_name=each.name, is_directory=each.is_directory, is_file=each.is_file
            )
            for each in found
        )
    )


async def fs_remove(context: ClientFileContext, params: wire.FsRemoveParams) -> wire.FsRemoveResponse:
    context.check("fs/remove")
    recursive, force = params.recursive is not False, params.force is not False
    await _run(partial(files.remove, params.path, recursive=recursive, force=force))
    return wire.FsRemoveResponse()


async def fs_copy(context: ClientFileContext, params: wire.FsCopyParams) -> wire.FsCopyResponse:
    context.check("fs/copy")
    given_up = threading.Event()
    copying = Copying(str(context.config.home), given_up.is_set)
    source, destination = params.source_path, params.destination_path
    try:
        await _run(partial(copying.copy, source, destination, recursive=params.recursive))
    finally:
        given_up.set()
    return wire.FsCopyResponse()


async def fs_watch(
    context: ClientFileContext, params: wire.FsWatchParams
) -> HandlerResult[wire.FsWatchResponse]:
    context.check("fs/watch")
    with reported_errors():
        path = await context.watcher.watch(params.watch_id, params.path)

    async def begin() -> None:
        context.watcher.begin(params.watch_id)

    return HandlerResult(wire.FsWatchResponse(path=path), begin)


async def fs_unwatch(context: ClientFileContext, params: wire.FsUnwatchParams) -> wire.FsUnwatchResponse:
    """Also for a watch that is not there."""
    context.watcher.unwatch(params.watch_id)
    return wire.FsUnwatchResponse()


async def _run(work: Callable[[], T]) -> T:
    with reported_errors():
        return await run_in_thread(work, abandon_on_cancel=True)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Errors of the system in the words that clients of this API know."""
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
