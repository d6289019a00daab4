"""The composition root: builds everything, wires it, opens the process's task group.

Clock, ids, environment and working directory enter here and are passed down. Tasks by lifetime: writer → connection
→ background (conversations, logins) ; EOF ends the connection, conversations are told to store what they have, the
writer drains, the process leaves.
"""

from __future__ import annotations

import logging
import os
import pwd
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server import __version__
from app_server.conversations.manager import ConversationManager
from app_server.core.auth.authorize import ISSUER_VARIABLE
from app_server.core.auth.issuer import Issuer
from app_server.core.auth.manager import AuthManager
from app_server.core.config.types import CliOverrides
from app_server.core.exec.runner import CommandRunner
from app_server.core.files.search import FileSearch
from app_server.core.git.snapshot import Git
from app_server.core.opening import Surroundings
from app_server.greeting import Greeting, own_user_agent
from app_server.handlers.context import Client, HandlerContext
from app_server.handlers.handshake import start_warm_up
from app_server.handlers.router import MethodRouter
from app_server.lazy_engine import LazyEngine
from app_server.limits import Limits
from app_server.rpc.connection import Connection
from app_server.rpc.outgoing import Outgoing
from app_server.transport.contract import Transport, TransportClosed
from protocol.ids import new_conversation_id
from protocol.records import dataclass

if TYPE_CHECKING:
    from app_server.extras import Assembled

log = logging.getLogger(__name__)

GRACE_SECONDS = 1.5
"""For conversations to end in good order; clients wait two seconds before they kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the command line and the environment say."""

    home: Path
    cwd: Path
    environment: Mapping[str, str]
    cli: CliOverrides = CliOverrides()
    limits: Limits = Limits()


async def serve(transport: Transport, settings: ServerSettings, greeting: Greeting | None = None) -> None:
    """Serve one client until it leaves. Returns once everything is stored and every child has ended.

    `greeting` is what passed between the two before this server was loaded.
    """
    outgoing = Outgoing(transport.write, settings.limits.unread_bytes)
    async with anyio.create_task_group() as process:
        process.start_soon(_write, outgoing, process, name="writer")
        try:
            await _serve_client(transport, outgoing, settings, greeting)
        finally:
            with anyio.move_on_after(GRACE_SECONDS, shield=True):
                await outgoing.finish()
            process.cancel_scope.cancel()


async def _serve_client(
    transport: Transport, outgoing: Outgoing, settings: ServerSettings, greeting: Greeting | None
) -> None:
    surroundings = _surroundings(settings)
    runner = CommandRunner(
        python=sys.executable,
        home=str(settings.home),
        tmpdir=settings.environment.get("TMPDIR"),
        environment=settings.environment,
        output_cap=settings.limits.output_bytes,
    )
    async with runner, anyio.create_task_group() as background:
        context = _context(settings, surroundings, outgoing, runner, background, greeting)
        try:
            if context.client.initialized:
                start_warm_up(context)
            router = MethodRouter(context)
            await Connection(transport, outgoing, router, settings.limits.requests).serve()
        finally:
            with anyio.move_on_after(GRACE_SECONDS, shield=True):
                await context.manager.end_all()
                await context.close()
            background.cancel_scope.cancel()


def _context(
    settings: ServerSettings,
    surroundings: Surroundings,
    outgoing: Outgoing,
    runner: CommandRunner,
    background: TaskGroup,
    greeting: Greeting | None,
) -> HandlerContext:
    auth = AuthManager(
        settings.home,
        clock=time.time,
        issuer=Issuer(settings.environment.get(ISSUER_VARIABLE), settings.environment),
        env_api_key=settings.environment.get("OPENAI_API_KEY"),
    )
    user_agent = greeting.user_agent if greeting else own_user_agent(settings.environment)
    git = Git(scratch=settings.home / "tmp")
    client = Client(initialized=greeting is not None and greeting.done)

    def load() -> Callable[[], Assembled]:
        from app_server.extras import assemble  # noqa: PLC0415 - slow to import

        return lambda: assemble(surroundings, runner, git, auth, user_agent, client, background)

    engine = LazyEngine(load)
    return HandlerContext(
        home=settings.home,
        cwd=settings.cwd,
        cli=settings.cli,
        surroundings=surroundings,
        manager=ConversationManager(engine.open, outgoing, background, settings.limits.conversations),
        outgoing=outgoing,
        runner=runner,
        auth=auth,
        git=git,
        search=FileSearch(time.time_ns),
        user_agent=user_agent,
        background=background,
        new_id=surroundings.new_id,
        random=os.urandom,
        models=engine,
        closing=(engine.aclose,),
        client=client,
    )


def _surroundings(settings: ServerSettings) -> Surroundings:
    return Surroundings(
        home=settings.home,
        environment=settings.environment,
        version=__version__,
        shell_path=_shell(settings.environment),
        now=lambda: datetime.now().astimezone(),
        clock=time.monotonic,
        new_conversation_id=lambda: new_conversation_id(time.time_ns() // 1_000_000, os.urandom(10)),
        new_id=lambda: str(uuid.uuid4()),
    )


def _shell(environment: Mapping[str, str]) -> str:
    """The user's login shell, as the system knows it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        return environment.get("SHELL") or "/bin/sh"


async def _write(outgoing: Outgoing, process: TaskGroup) -> None:
    try:
        await outgoing.run()
    except TransportClosed:
        log.info("the client no longer reads; leaving")
        outgoing.close()
        process.cancel_scope.cancel()
