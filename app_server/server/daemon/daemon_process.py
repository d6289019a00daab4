"""A server that several clients share, as a process: it listens and serves, and loads the remaining modules in quiet
moments.

`lifetime` decides when it ends. A server of one client loads no module of this package.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio

from app_server.engine.config.config_values import Config, SharingSettings
from app_server.engine.config.settings_service import load_config
from app_server.engine.sandbox.roots import SLASH_TMP
from app_server.engine.support.engine_errors import ConfigError
from app_server.engine.support.real_path import within
from app_server.engine.support.socket_paths import STARTS_WITHIN
from app_server.server.bootstrap.claim import claim_stdout
from app_server.server.bootstrap.full_server import settings_of, wait_for_children_without_threads
from app_server.server.bootstrap.launch import ProcessOptions, parse_launch
from app_server.server.bootstrap.server_process import begin_loading, end_loading, guard_memory
from app_server.server.bootstrap.standard_streams import complain
from app_server.server.bootstrap.stdio import StdioTransport
from app_server.server.composition import Server, open_server
from app_server.server.daemon.acceptor import Acceptor
from app_server.server.daemon.addresses import (
    Addresses,
    BadOption,
    CannotListen,
    parse_addresses,
    passed_sockets,
)
from app_server.server.daemon.control import Control
from app_server.server.daemon.listeners import Listeners, TokenOptions
from app_server.server.daemon.preload import InstallationChanged, load_everything, load_in_quiet_moments
from app_server.server.daemon.shutdown import Shutdown
from app_server.server.logs import set_up_logging
from app_server.server.proxy.spawn import Startup
from app_server.server.server_settings import ServerSettings
from app_server_protocol.policy import writable_names
from app_server_protocol.values import replace

log = logging.getLogger(__name__)

MOST_OF_LOG = 10 << 20
"""Maximum size of the log, in bytes; one old log is kept besides."""
OLD = ".old"


def serve_shared(options: Mapping[str, Any], startup: Startup | None) -> int:
    """Serve at the addresses of `--listen` until stopped; return the exit status. `options` are those of the command
    line, by their names.
    """
    is_watched = startup is None or startup.is_watched
    try:
        launch = parse_launch(options, os.environ)
        addresses = parse_addresses(options["listen"], str(launch.home))
        passed = passed_sockets(os.environ, os.getpid())
    except (ValueError, BadOption) as error:
        complain("app-server", str(error))
        return 2
    if not is_watched and addresses.places:
        set_up_logging(os.environ, LogFile(addresses.places[0].log).write)
    begin_loading()
    guard_memory()
    token = TokenOptions(options.get("ws_token_file"), options.get("ws_token_sha256"))
    try:
        config = _config(launch)
        doors = Listeners(addresses, str(launch.home), token, writable_folders(launch, config, startup))
        is_loaded = startup is not None and startup.succeeds
        if startup is not None and startup.succeeds:
            load_everything()
            startup.tell_loaded()
        doors.hold(passed, STARTS_WITHIN if is_loaded else 0)
        end_loading()
        wait_for_children_without_threads()
        process = SharedProcess(
            launch, addresses, doors, startup, config, is_watched=is_watched, is_loaded=is_loaded
        )
        failure = anyio.run(process.run)
    except BadOption as error:
        complain("app-server", str(error))
        return 2
    except CannotListen as error:
        failure = str(error)
    if failure is not None:
        complain("app-server", failure)
    return 0 if failure is None else 1


WATCHED = "it is watched by who has started it, and would seem to have ended: start it anew there"
"""Reason why a server does not retire."""


class SharedProcess:
    """The parts of the process, put together."""

    def __init__(
        self,
        launch: ProcessOptions,
        addresses: Addresses,
        doors: Listeners,
        startup: Startup | None,
        config: Config | None,
        *,
        is_watched: bool,
        is_loaded: bool,
    ) -> None:
        """Put the process together. `config` is the user's, None if it cannot be read. `is_watched` says whether
        another program reads stderr, and waits for the end of this process; `is_loaded` says whether all modules that
        it may need are loaded.
        """
        self._launch, self._addresses, self._doors, self._startup = launch, addresses, doors, startup
        self._is_watched, self._was_loaded = is_watched, is_loaded
        self._is_loaded = False
        self._sharing = SharingSettings() if config is None else config.sharing

    async def run(self) -> str | None:
        """Serve until the end; return the reason if the server cannot listen, else None."""
        wire = claim_stdout()
        settings = self._settings()
        async with open_server(settings) as server:
            reception = Acceptor(
                server,
                settings,
                most=settings.limits.clients,
                line_limit=settings.limits.line_bytes,
                wall_clock=settings.machine.wall_clock,
                answer=lambda question, arrival: control.answer(question, arrival),
            )
            try:
                reception.doors = self._doors.open(
                    settings.environment,
                    settings.limits.line_bytes,
                    why_full=reception.why_full,
                    is_loaded=lambda: self._is_loaded,
                )
            except CannotListen as error:
                return str(error)
            stays = WATCHED if self._is_watched else None
            lifetime = Shutdown(server, reception, self._sharing, settings.environment, stays=stays)
            control = Control(
                reception,
                lifetime,
                lambda: server.work,
                words=sys.argv[1:],
                is_loaded=lambda: self._is_loaded,
                started=settings.machine.wall_clock(),
                log=self._log_path(),
            )
            async with anyio.create_task_group() as tasks:
                await tasks.start(reception.run, name="reception")
                tasks.start_soon(self._load, server, reception, lifetime, name="loading")
                if self._addresses.stdio:
                    tasks.start_soon(self._host_stdio, wire, reception, lifetime, name="stdio")
                await lifetime.run(lambda: self._announce(reception, control))
                tasks.cancel_scope.cancel()
        return None

    async def _load(self, server: Server, reception: Acceptor, lifetime: Shutdown) -> None:
        """Load, while clients are served, the modules that they have not needed yet; then do the preparations that
        otherwise begin with the first turn or command.
        """
        if not self._was_loaded:
            try:
                await load_in_quiet_moments(lambda: not server.work.any and reception.is_quiet)
            except InstallationChanged:
                log.warning("another version was installed while this one was loaded")
                lifetime.retire()
                return
            end_loading()
        await server.engine.prepare()
        raise_descriptor_limit()  # after the start of the launcher, whose commands keep the usual limit
        self._is_loaded = True

    def _settings(self) -> ServerSettings:
        """Return the settings of the server, which also apply to clients without a preface."""
        return replace(
            settings_of(self._launch),
            brings_environment=False,
            has_cwd=self._startup is None,  # else its starter or a service manager chose the directory
            shared=True,
            sharing=self._sharing,
        )

    async def _host_stdio(self, wire: int, reception: Acceptor, lifetime: Shutdown) -> None:
        """Serve the client on stdin and stdout. Once it has left, the server ends with the last of its clients."""
        transport = StdioTransport(0, wire, self._launch.limits.line_bytes)
        await reception.host(transport, replace(settings_of(self._launch), receives_all_threads=False))
        while reception.present:
            await reception.left.wait()
        lifetime.stop()

    # --- information for other processes
    def _announce(self, reception: Acceptor, control: Control) -> None:
        for door in reception.doors:
            print(f"listening on {door.address}", file=sys.stderr, flush=True)  # noqa: T201  for who has started it
            if door.held is not None and door.held.place.reference is not None:
                with suppress(OSError):  # the file is not essential
                    door.held.describe(json.dumps(control.facts(), indent=1))
        if self._startup is not None:
            self._startup.end()

    def _log_path(self) -> str | None:
        """Return the file behind stderr; None if another program reads it."""
        places = self._addresses.places
        return None if self._is_watched or not places else places[0].log


def _config(launch: ProcessOptions) -> Config | None:
    """Return the user's configuration; None if it cannot be read."""
    try:
        return load_config(settings_of(launch))
    except ConfigError as error:
        log.error("the settings cannot be used: %s", error)
        return None


def writable_folders(
    launch: ProcessOptions, config: Config | None, startup: Startup | None
) -> dict[str, str]:
    """Return the folders in which commands of any conversation may write, each with a clause that says so. The folder
    in which a user has started the server is the workspace, unless it is the user's home directory or above that.
    """
    found = {SLASH_TMP: f"commands may write in {SLASH_TMP}"}
    tmpdir, user_home = launch.environment.get("TMPDIR"), launch.environment.get("HOME") or "/"
    if tmpdir and os.path.isabs(tmpdir):
        found[tmpdir] = "commands may write in $TMPDIR"
    cwd = str(launch.cwd)
    if startup is None and not within(os.path.realpath(user_home), os.path.realpath(cwd)):
        found[cwd] = "commands may write in the workspace, the folder in which the server was started"
    policy = None if config is None else config.thread.sandbox_policy
    if policy is not None:
        roots = writable_names(policy, cwd)
        found.update((root, f"commands may write in {root}, by the settings") for root in roots)
    return found


def raise_descriptor_limit() -> None:
    """Raise the limit of descriptors to the maximum that the system allows, so that it does not limit connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class LogFile:
    """The log of a server whose stderr no program reads: writes to stderr, and replaces the file behind it when that is
    full.
    """

    def __init__(self, path: str, most: int = MOST_OF_LOG, fd: int = 2) -> None:
        self._path, self._most, self._fd = path, most, fd

    def write(self, data: bytes) -> int:
        """Append a line. Raises OSError."""
        if os.fstat(self._fd).st_size + len(data) > self._most:
            self._begin_anew()
        return os.write(self._fd, data)

    def _begin_anew(self) -> None:
        """Rename the file to its old name; all writers to the descriptor go on in the new one."""
        try:
            os.replace(self._path, self._path + OLD)
            fresh = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        except OSError:
            return  # the log goes on in the old file
        try:
            os.dup2(fresh, self._fd)
        finally:
            os.close(fresh)
