"""The server on the process's stdin and stdout, and its signals. Imports nearly everything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

import anyio
from anyio.abc import TaskGroup

from app_server.server.bootstrap.launch import ProcessOptions
from app_server.server.bootstrap.overrides import cli_overrides
from app_server.server.bootstrap.stdio import StdioTransport
from app_server.server.composition import serve
from app_server.server.server_settings import ServerSettings

log = logging.getLogger(__name__)


def run(write_fd: int, launch: ProcessOptions) -> None:
    """Serve until the client has closed the connection and all events are stored."""
    wait_for_children_without_threads()
    anyio.run(_run, write_fd, launch)


def wait_for_children_without_threads() -> None:
    """Make Python wait for children as later versions do, without a thread: a thread could not be started in a
    shortage.
    """
    if sys.platform == "linux" and sys.version_info < (3, 12):
        with contextlib.suppress(OSError):
            os.close(os.pidfd_open(os.getpid()))  # older kernels, and some filters of system calls, refuse it
            asyncio.get_event_loop_policy().set_child_watcher(asyncio.PidfdChildWatcher())


async def _run(write_fd: int, launch: ProcessOptions) -> None:
    transport = StdioTransport(0, write_fd, launch.limits.line_bytes)
    async with anyio.create_task_group() as process:
        process.start_soon(_cancel_on_signal, process, name="signals")
        await serve(transport, settings_of(launch))
        process.cancel_scope.cancel()


async def _cancel_on_signal(process: TaskGroup) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            log.info("shutting down on %s", number.name)
            process.cancel_scope.cancel()
            return


def settings_of(launch: ProcessOptions) -> ServerSettings:
    """Return the settings of the server according to its command line and environment."""
    return ServerSettings(
        home=launch.home,
        cwd=launch.cwd,
        environment=launch.environment,
        limits=launch.limits,
        acp=launch.acp,
        cli=cli_overrides(launch),
    )
