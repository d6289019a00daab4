"""The composition root: builds all components and opens the task group of the process.

Clock, ids, environment and working directory enter here and are passed down. Tasks by lifetime: writer → connection →
background (conversations, logins). EOF ends the connection; then conversations are stored, the writer drains and the
process exits. The engine is loaded when the first conversation is opened: a client that only lists stored conversations
does not wait for it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine import engine
from app_server.engine.auth import browser, issuer, login, oauth_http
from app_server.engine.auth.accounts import Accounts
from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.checkpoints import service
from app_server.engine.client_context import (
    CODEX_API_KEY,
    OPENAI_API_KEY,
    ClientContext,
    ClientIdentity,
    env_api_keys,
    first_api_keys,
)
from app_server.engine.client_services import Host
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.context.skills import skill_catalog
from app_server.engine.model import known_models, quirks
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.storage import socket_folders, stored_conversations
from app_server.engine.support.client_info import ClientProfile, own_user_agent
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.process_memory import FreeMemoryReturn
from app_server.engine.workspace.files import search
from app_server.engine.workspace.git.find_git import find_git
from app_server.engine.workspace.git.run_git import Git
from app_server.server import engine_adapters, model_clients
from app_server.server.apis.acp import acp_routes
from app_server.server.apis.contexts import ConnectionContext, Handshake, MadeOnFirstUse
from app_server.server.apis.plain_initialize import answer_initialize
from app_server.server.apis.router import FindRoute, MethodRouter
from app_server.server.apis.v1 import ignored, v1_routes
from app_server.server.apis.v2 import thread_notifier, v2_routes
from app_server.server.client_connection import ServedClient
from app_server.server.conversations import idle
from app_server.server.conversations.manager import ConversationManager
from app_server.server.conversations.subscriptions import Client
from app_server.server.engine_loader import Assembled, LazyEngine
from app_server.server.rpc.lanes import ServerLanes
from app_server.server.rpc.outgoing import OutboundQueue
from app_server.server.rpc.rpc_connection import Connection, Router
from app_server.server.server_settings import ClientSettings, ServerSettings
from app_server_protocol.framing import Transport

if TYPE_CHECKING:
    from app_server.engine.auth.login import McpLogins
    from app_server.engine.ports import ProcessEnvironment


log = logging.getLogger(__name__)

IN_BOTH_APIS = ("fuzzyFileSearch",)
"""Methods of the conversation API that the thread API has in a form of its own."""

GRACE_SECONDS = 1.5
"""Time for conversations to shut down; clients wait two seconds before they kill the process."""


class ServedConnection(Struct, frozen=True):
    """A connection that is served."""

    context: ConnectionContext
    connection: Connection

    @property
    def client(self) -> Client:
        return self.context.client

    @property
    def at_rest(self) -> bool:
        """Whether no request is in work, and all output was written."""
        busy = self.connection.in_work or self.context.accounts.logging_in
        return not busy and self.client.outgoing.unread == 0


async def serve(transport: Transport, settings: ServerSettings) -> None:
    """Serve one client until it closes the connection. Returns once all events are stored and every child has ended."""
    async with open_server(settings) as server:
        await server.serve(transport, settings)


@asynccontextmanager
async def open_server(settings: ServerSettings) -> AsyncIterator[Server]:
    """Run a server without clients. At the end all events are stored, and every child has ended."""
    memory = FreeMemoryReturn()
    async with anyio.create_task_group() as process:
        process.start_soon(memory.return_again, name="memory")
        async with command_runner(settings) as runner, anyio.create_task_group() as background:
            server = Server(settings, runner, background, memory)
            try:
                yield server
            finally:
                with anyio.move_on_after(GRACE_SECONDS, shield=True):
                    await server.conversations.end_all()
                    await server.engine.aclose()
                background.cancel_scope.cancel()
        process.cancel_scope.cancel()


class ServerLoad(Struct, frozen=True):
    """Number of activities in a server."""

    conversations: int
    """Number of open conversations."""
    turns: int
    questions: int
    commands: int

    @property
    def any(self) -> bool:
        """Whether there is work that an end of the server would interrupt."""
        return bool(self.turns or self.questions or self.commands)


class Server:
    """Components that all clients of a process share."""

    def __init__(
        self, settings: ServerSettings, runner: CommandRunner, background: TaskGroup, memory: FreeMemoryReturn
    ) -> None:
        environment, machine = settings.environment, settings.machine
        self._settings, self._runner, self._background, self._memory = settings, runner, background, memory
        process = machine.process_environment(settings.threads or settings.home, environment)
        self._auth, self._shared = auth_manager(settings), MadeOnFirstUse()
        self._git = Git(settings.home, find_git(settings.environment, settings.cwd))

        def mcp_logins() -> McpLogins:
            http = oauth_http.OAuthHttp(environment)
            return login.McpLogins(settings.home, http, machine.wall_clock, machine.random)

        self._lanes = ServerLanes()
        self._skills = Lazy(lambda: skill_catalog.SkillCatalog(settings.home, environment))
        self._mcp_logins = Lazy(mcp_logins)
        self._stored = Lazy(
            lambda: stored_conversations.StoredConversations(settings.home, machine.wall_clock)
        )
        self._search = Lazy(lambda: search.FileSearch(machine.time_ns))
        self.engine = LazyEngine(partial(self._assemble, process), runner, environment, background)
        self.conversations = ConversationManager(
            self.engine.open, background, settings.limits.conversations, machine.wall_clock
        )
        if (sharing := settings.sharing) is not None:
            self.conversations.outlasts_clients = True
            unattended = idle.UnattendedReaper(
                self.conversations,
                machine.monotonic,
                turn_seconds=sharing.unwatched_minutes * 60,
                question_seconds=sharing.question_hours * 3600,
            )
            background.start_soon(unattended.run, anyio.sleep, name="unattended")
            background.start_soon(self._unloader.run, anyio.sleep, name="idle conversations")

    def _assemble(self, process: ProcessEnvironment) -> Assembled:
        """Make the engine. This loads the modules of the agent."""
        auth, background, runner = self._auth, self._background, self._runner
        questions = model_clients.ModelQuestions(model_clients.Networks(self._settings.machine.http), auth)
        clock, lessons = process.wall_clock, quirks.Lessons()
        known = known_models.KnownModels(
            auth.home, questions.ask, questions.account, background, clock, lessons
        )
        models = model_clients.Models(questions.networks, auth, process.jitter, known, lessons, process.gate)
        adapters = engine_adapters.EngineAdapters(process, runner, auth, background)
        services = engine.EngineServices(
            process=process,
            runner=runner,
            checkpoints=Lazy(lambda: service.Checkpoints(self._git, process.new_conversation_id, clock)),
            skills=self._skills,
            model=models.of,
            known_models=known,
            mcp=adapters.mcp,
            telemetry=adapters.telemetry,
            turn_completed=adapters.turn_completed,
        )
        return Assembled(engine.Engine(services), models, adapters)

    @property
    def _unloader(self) -> idle.IdleReaper:
        clock = self._settings.machine.monotonic
        return self._shared.get(idle.IdleReaper, lambda: idle.IdleReaper(self.conversations, clock))

    @property
    def work(self) -> ServerLoad:
        live = self.conversations.all()
        return ServerLoad(
            conversations=len(live),
            turns=sum(each.busy for each in live),
            questions=sum(len(each.questions.open) for each in live),
            commands=self._runner.running,
        )

    async def settle(self) -> None:
        """Refuse new work from now on, and wait for the running turns. Each conversation is ended after its turn, so
        that another server can open it.
        """
        self.conversations.draining = True
        await self.conversations.end_when_settled()

    async def unload_idle(self) -> None:
        """End each idle conversation, so that another server can open it."""
        await self._unloader.look(idle_seconds=0)

    async def end_conversations(self) -> None:
        """Interrupt running work, and end every conversation after its events were sent and stored."""
        await self.conversations.end_all()

    async def serve(
        self,
        transport: Transport,
        place: ClientSettings,
        *,
        joined: Callable[[ServedConnection], None] | None = None,
    ) -> str | None:
        """Serve one client until it closes the connection; running work of its conversations goes on. Return the reason
        if it was disconnected, else None. `joined` is called before the first request.
        """
        client = ServedClient(
            transport,
            self._settings.limits,
            self._settings.machine.monotonic,
            self._memory.return_now,
            acp=place.acp,
            shared=place.shared,
        )
        async with anyio.create_task_group() as connection:
            connection.start_soon(client.write, connection, name="writer")
            if place.shared:
                connection.start_soon(client.watch, name="slow client")
            try:
                with client.scope:
                    await self._serve(transport, client.outgoing, place, joined)
            finally:
                await client.finish()
                connection.cancel_scope.cancel()
        return client.notice

    async def _serve(
        self,
        transport: Transport,
        outgoing: OutboundQueue,
        place: ClientSettings,
        joined: Callable[[ServedConnection], None] | None,
    ) -> None:
        async with anyio.create_task_group() as background:
            context = self._context(outgoing, place, background)
            self.conversations.clients.add(context.client)
            try:
                router = _router(context, place)
                most = self._settings.limits.requests_of(shared=place.shared)
                connection = Connection(transport.lines(), outgoing, router, most, self._lanes)
                if joined is not None:
                    joined(ServedConnection(context, connection))
                await connection.serve()
            finally:
                self.conversations.leave(context.client)
                background.cancel_scope.cancel()

    def _context(
        self, outgoing: OutboundQueue, place: ClientSettings, background: TaskGroup
    ) -> ConnectionContext:
        """Make the context of the handlers of one connection."""
        machine = self._settings.machine
        profile, user_agent = ClientProfile(), own_user_agent(place.environment)
        config = UserSettings(
            home=place.home,
            cwd=place.cwd,
            cli=place.cli,
            own_folder=place.own_folder,
            environment=place.environment,
        )
        caller = ClientContext(
            environment=place.environment if place.brings_environment else None,
            identity=lambda: ClientIdentity(user_agent.originator, user_agent.text()),
            elicitation=lambda: profile.elicitation,
            key_variables=key_variables(place),
            first_key_variable=CODEX_API_KEY if place.takes_codex_key else None,
        )
        return ConnectionContext(
            config=config,
            conversations=self.conversations,
            client=Client(outgoing, profile, caller, place.receives_all_threads, place.has_cwd),
            handshake=Handshake(profile, user_agent),
            accounts=Accounts(
                self._auth.with_keys(
                    env_api_keys(place.environment, caller.key_variables),
                    first_api_keys(place.environment, caller),
                ),
                config,
                self._mcp_logins,
                background,
                originator=lambda: user_agent.originator,
                new_id=machine.new_id,
                random=machine.random,
                env=place.environment,
            ),
            host=Host(config, self._runner, self._git, self._search, self._skills),
            engine=self.engine,
            stored=self._stored,
            shared=self._shared,
            own=MadeOnFirstUse(),
            background=background,
            machine=machine,
        )


def command_runner(settings: ServerSettings) -> CommandRunner:
    runtime = settings.environment.get("XDG_RUNTIME_DIR")
    return settings.machine.runner(
        python=sys.executable,
        home=str(settings.home),
        environment=settings.environment,
        output_cap=settings.limits.output_bytes,
        kept=settings.kept,
        known=lambda: socket_folders.known_folders(str(settings.home), runtime),
    )


def auth_manager(settings: ServerSettings) -> AuthManager:
    environment = settings.environment

    return AuthManager(
        settings.home,
        clock=settings.machine.wall_clock,
        issuer=Lazy(lambda: issuer.Issuer(environment.get(browser.ISSUER_VARIABLE), environment)),
        env_api_keys=env_api_keys(environment, key_variables(settings)),
    )


def key_variables(place: ClientSettings) -> tuple[str, ...]:
    """Return the variables with an API key; hosts of the Agent Client Protocol have one of their own."""
    return (CODEX_API_KEY, OPENAI_API_KEY) if place.acp else (OPENAI_API_KEY,)


def _router(context: ConnectionContext, place: ClientSettings) -> Router:
    if place.acp:
        return acp_routes.open_router(context)

    def conversations() -> FindRoute:
        return v1_routes.find_route(context)

    def threads() -> FindRoute:
        return v2_routes.find_route(context)

    client = context.handshake.client

    def tell_ignored(notice: str, conversation: str | None, over_threads: bool) -> None:
        if over_threads or not ignored.warn_in_conversation(context, notice, conversation):
            thread_notifier.tell_ignored(context, notice)

    initialize = partial(answer_initialize, context)
    return MethodRouter(
        conversations, threads, IN_BOTH_APIS, client, context.require_running, tell_ignored, initialize
    )
