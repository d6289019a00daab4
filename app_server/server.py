"""The composition root: builds all components and opens the task group of the process.

Clock, ids, environment and working directory enter here and are passed down. Tasks by lifetime: writer → connection →
background (conversations, logins). EOF ends the connection; then conversations are stored, the writer drains and the
process exits. The engine is loaded when the first conversation is opened: a client that only lists stored
conversations does not wait for it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server.apis.router import FindRoute, MethodRouter
from app_server.apis.services import Handshake, ServerServices, Shared
from app_server.conversations.client import Client
from app_server.conversations.manager import ConversationManager
from app_server.core.auth.accounts import Accounts
from app_server.core.auth.auth_manager import AuthManager
from app_server.core.auth.credentials import env_api_key
from app_server.core.config.settings import UserSettings
from app_server.core.config.types import Config, SettingsPlace
from app_server.core.errors import CoreError
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.run_git import Git
from app_server.core.host import Host
from app_server.core.lazy import Lazy
from app_server.core.opening import Opened, Origin
from app_server.core.process_memory import FreeMemoryReturn
from app_server.core.threads import run_in_thread
from app_server.identity import ClientProfile, EarlyInitialize, Limits, own_user_agent
from app_server.machine import Machine
from app_server.rpc.connection import Connection, Router
from app_server.rpc.outgoing import Outgoing
from app_server.transport.framing import Transport, TransportClosed

if TYPE_CHECKING:
    from app_server.assembly import Assembled
    from app_server.core.auth.issuer import Issuer
    from app_server.core.auth.mcp_login import McpLogins
    from app_server.core.files.search import FileSearch
    from app_server.core.mcp.requests import McpRequests
    from app_server.core.rollout.stored_conversations import StoredConversations
    from app_server.core.skills.skill_catalog import SkillCatalog


COMMANDS_AFTER = 0.5
"""Seconds from the first conversation until commands are prepared: its first turn goes first, and by then the model is
asked, as a rule. A command that comes earlier does not wait for that.
"""


class LazyEngine:
    """Opens conversations and lists models. The first use loads and assembles it, in the event loop, so that responses
    keep the order of their requests.
    """

    def __init__(
        self, assemble: Lazy[Callable[[], Assembled]], runner: CommandRunner, background: TaskGroup
    ) -> None:
        self._assemble, self._runner, self._background = assemble, runner, background
        self._assembled: Assembled | None = None
        self._opened = False

    async def open(self, config: Config, origin: Origin) -> Opened:
        """Open a conversation as `Engine.open` does. The first one is followed by a turn, as a rule: prepare for it."""
        opened = await self._ready().engine.open(config, origin)
        if not self._opened:
            self._opened = True
            self._background.start_soon(self._prepare_commands, name="launcher and sandbox probe")
            self._background.start_soon(self._load_turns, name="loading of turns")
        return opened

    async def names(self, config: Config) -> tuple[str, ...]:
        return await self._ready().models.names(config)

    def mcp_alone(self, config: Config) -> AbstractAsyncContextManager[McpRequests]:
        """Run MCP servers of no conversation for as long as the block."""
        return self._ready().adapters.mcp_alone(config)

    async def aclose(self) -> None:
        if self._assembled is not None:
            await self._assembled.models.http.aclose()
            await self._assembled.adapters.close()

    async def _prepare_commands(self) -> None:
        """Start the launcher and probe the sandbox. An error occurs again, and is reported, at the first command."""
        await anyio.sleep(COMMANDS_AFTER)
        try:
            self._runner.warm_up()
            await self._runner.sandbox.state()
        except (CoreError, OSError) as error:
            log.warning("the sandbox probe failed ahead of the first command: %s", error)

    async def _load_turns(self) -> None:
        await run_in_thread(self._ready().engine.load_turns)
        await self._ready().models.http.warm_up()

    def _ready(self) -> Assembled:
        if self._assembled is None:
            self._assembled = self._assemble.get()()
        return self._assembled


log = logging.getLogger(__name__)

IN_BOTH_APIS = ("fuzzyFileSearch",)
"""Methods of the conversation API that the thread API has in a form of its own."""

GRACE_SECONDS = 1.5
"""Time for conversations to shut down; clients wait two seconds before they kill the process."""


class ServerSettings(SettingsPlace, frozen=True, kw_only=True):
    """The settings from the command line and the environment."""

    limits: Limits = Limits()
    acp: bool = False
    """The client speaks the Agent Client Protocol, and nothing else."""
    threads: Path | None = None
    """The home in which new conversations are stored; None: that of the settings."""
    machine: Machine = Machine()


async def serve(transport: Transport, settings: ServerSettings, early: EarlyInitialize | None = None) -> None:
    """Serve one client until it closes the connection. Returns once everything is stored and every child has ended.

    `early` is an `initialize` that was answered before this server was loaded.
    """
    memory = FreeMemoryReturn()
    outgoing = Outgoing(
        transport.write,
        settings.limits.unread_bytes,
        jsonrpc=settings.acp,
        after_large_batch=memory.return_now,
    )
    async with anyio.create_task_group() as process:
        process.start_soon(_write, outgoing, process, name="writer")
        process.start_soon(memory.return_again, name="memory")
        try:
            await _serve_client(transport, outgoing, settings, early)
        finally:
            with anyio.move_on_after(GRACE_SECONDS, shield=True):
                await outgoing.finish()
            process.cancel_scope.cancel()


async def _serve_client(
    transport: Transport, outgoing: Outgoing, settings: ServerSettings, early: EarlyInitialize | None
) -> None:
    async with command_runner(settings) as runner, anyio.create_task_group() as background:
        services, engine = _compose(settings, outgoing, runner, background)

        try:
            router = _router(services, settings, early)
            await Connection(transport, outgoing, router, settings.limits.requests).serve()
        finally:
            with anyio.move_on_after(GRACE_SECONDS, shield=True):
                services.conversations.leave(services.client)
                await services.conversations.end_all()
                await engine.aclose()
            background.cancel_scope.cancel()


def command_runner(settings: ServerSettings) -> CommandRunner:
    return settings.machine.runner(
        python=sys.executable,
        home=str(settings.home),
        tmpdir=settings.environment.get("TMPDIR"),
        environment=settings.environment,
        output_cap=settings.limits.output_bytes,
    )


def auth_manager(settings: ServerSettings) -> AuthManager:
    environment = settings.environment

    def load_issuer() -> Issuer:
        from app_server.core.auth import browser, issuer  # noqa: PLC0415 - only for logins

        return issuer.Issuer(environment.get(browser.ISSUER_VARIABLE), environment)

    return AuthManager(
        settings.home,
        clock=settings.machine.wall_clock,
        issuer=Lazy(load_issuer),
        env_api_key=env_api_key(environment, acp=settings.acp),
    )


def _router(services: ServerServices, settings: ServerSettings, early: EarlyInitialize | None) -> Router:
    if settings.acp:
        from app_server.apis.acp.routes import open_router  # noqa: PLC0415 - only for its own command

        return open_router(services, None if early is None else early.params)

    def conversations() -> FindRoute:
        from app_server.apis.v1.routes import find_route  # noqa: PLC0415 - only for clients that speak it

        return find_route(services)

    def threads() -> FindRoute:
        from app_server.apis.v2.routes import find_route  # noqa: PLC0415 - only for clients that speak it

        return find_route(services)

    if early is not None:
        services.handshake.accept(early.name, early.version, early.capabilities)
    return MethodRouter(conversations, threads, IN_BOTH_APIS, services.handshake.client)


def _compose(
    settings: ServerSettings, outgoing: Outgoing, runner: CommandRunner, background: TaskGroup
) -> tuple[ServerServices, LazyEngine]:
    environment, machine = settings.environment, settings.machine
    process = machine.process_environment(settings.threads or settings.home, environment)
    auth = auth_manager(settings)
    client, user_agent = ClientProfile(), own_user_agent(environment)
    git = Git(settings.home)

    def load() -> Callable[[], Assembled]:
        from app_server.assembly import assemble  # noqa: PLC0415 - slow to import

        http = machine.http(environment)
        return lambda: assemble(process, http, runner, git, auth, user_agent, client, background, skills)

    def load_skills() -> SkillCatalog:
        from app_server.core.skills.skill_catalog import SkillCatalog  # noqa: PLC0415 - the thread API's only

        return SkillCatalog(settings.home, environment.get("HOME"))

    def load_mcp_logins() -> McpLogins:
        from app_server.core.auth import mcp_login, oauth_http  # noqa: PLC0415 - where a user logs in at one

        http = oauth_http.OAuthHttp(environment)
        return mcp_login.McpLogins(settings.home, http, machine.wall_clock, machine.random)

    def load_stored() -> StoredConversations:
        from app_server.core.rollout.stored_conversations import StoredConversations  # noqa: PLC0415 - not to begin one

        return StoredConversations(settings.home, machine.wall_clock)

    def load_search() -> FileSearch:
        from app_server.core.files.search import FileSearch  # noqa: PLC0415 - with the first search

        return FileSearch(machine.time_ns)

    skills = Lazy(load_skills)
    known = Client(outgoing, client)
    engine = LazyEngine(Lazy(load), runner, background)
    config = UserSettings(home=settings.home, cwd=settings.cwd, cli=settings.cli, environment=environment)
    conversations = ConversationManager(
        engine.open, background, settings.limits.conversations, machine.wall_clock
    )
    conversations.clients.add(known)
    services = ServerServices(
        config=config,
        conversations=conversations,
        client=known,
        handshake=Handshake(client, user_agent),
        accounts=Accounts(
            auth,
            config,
            Lazy(load_mcp_logins),
            background,
            originator=lambda: user_agent.originator,
            new_id=process.new_id,
            random=machine.random,
        ),
        host=Host(config, runner, git, Lazy(load_search), skills),
        engine=engine,
        stored=Lazy(load_stored),
        shared=Shared(),
        background=background,
        machine=machine,
    )
    return services, engine


async def _write(outgoing: Outgoing, process: TaskGroup) -> None:
    try:
        await outgoing.write_queued()
    except TransportClosed:
        log.info("the client no longer reads; shutting down")
        outgoing.close()
        process.cancel_scope.cancel()
