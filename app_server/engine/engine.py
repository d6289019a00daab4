"""Builds sessions from a configuration and an origin, each with its part of the engine's services.

Owns the order of opening:

1. it opens or creates the rollout;
2. it sets up the history;
3. it creates the session.

It waits neither for the network nor for MCP servers or git.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.engine.approvals.broker import ApprovalBroker
from app_server.engine.approvals.consent import ApprovalMemory
from app_server.engine.approvals.exec_policy import ExecPolicy
from app_server.engine.client_context import ActiveClient, ClientContext
from app_server.engine.config.config_values import Config
from app_server.engine.config.tolerance import joined
from app_server.engine.context.history import (
    ConversationHistory,
)
from app_server.engine.context.project_docs import configured_instructions
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.model.known_models import KnownModels
from app_server.engine.model.model_client import ModelClient
from app_server.engine.model.model_facts import tier_in_force
from app_server.engine.ports import ProcessEnvironment
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.session import operations
from app_server.engine.session.facade import SessionHandle
from app_server.engine.session.model_notices import other_model_notice, window_notice
from app_server.engine.session.session import Session
from app_server.engine.session.session_servers import Elicitations
from app_server.engine.session.session_services import (
    ConversationSetup,
    HomeFiles,
    Instructions,
    ModelClientProvider,
    Reports,
    SessionServices,
    SessionState,
    TurnCompleted,
)
from app_server.engine.session.windows import documents_notice, first_bounds
from app_server.engine.storage import rollout_reader
from app_server.engine.storage.history_file import MessageHistory, SharedMessages
from app_server.engine.storage.record import revert_line
from app_server.engine.storage.rollout_names import new_rollout_path
from app_server.engine.storage.writer import NullRolloutWriter, RolloutWriter
from app_server.engine.support import user_messages
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.lazy_imports import load
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.telemetry.telemetry_events import ConversationTelemetry
from app_server.engine.thread_origin import (
    Fork,
    NewConversation,
    OpenedConversation,
    Origin,
    StoredRollout,
    SuppliedHistory,
)
from app_server.engine.tools import client_tool
from app_server.engine.tools.registry import RESERVED_NAMES
from app_server.engine.tools.terminals import Terminals
from app_server.engine.tools.tool_base import ApprovalServices, ClockAndIds, CommandServices
from app_server.engine.turn.outbox import Outbox, Transcript
from app_server.engine.workspace.git.repository import read_git_info
from app_server_protocol.engine.events import McpServerStateChanged
from app_server_protocol.engine.notices import DeprecationNotice, WarningNotice
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.ids import ConversationId
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import PAGINATED, SessionMetaLine, utc_timestamp
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.checkpoints.service import Checkpoints
    from app_server.engine.context.skills.skill_catalog import SkillCatalog
    from app_server.engine.storage.rollout_reader import Reopened, StoredConversation
    from app_server.engine.support.engine_errors import NotStored


OPENING_ID = "auto-compact-0"
"""Id of events that are emitted while opening; codex 0.58 numbers them like the turns that it starts itself."""


class EngineServices(Struct, frozen=True, kw_only=True):
    """Services that all sessions of a server share. The composition root passes them in."""

    process: ProcessEnvironment
    runner: CommandRunner
    checkpoints: Lazy[Checkpoints]
    skills: Lazy[SkillCatalog]
    model: Callable[[Config, ConversationTelemetry, ActiveClient], ModelClient]
    known_models: KnownModels
    mcp: Callable[[Config, ClientContext, Elicitations, Callable[[McpServerStateChanged], None]], McpManager]
    telemetry: Callable[[Config, ClientContext, ConversationId], Awaitable[ConversationTelemetry]]
    turn_completed: Callable[[Config, ClientContext, ConversationId], TurnCompleted | None]


@contextmanager
def _closed_on_failure(writer: RolloutWriter | NullRolloutWriter) -> Iterator[None]:
    """Close the rollout file if opening the conversation fails, or its client has given up."""
    try:
        yield
    except BaseException:
        writer.close()
        raise


class Engine:
    """Opens conversations for one server."""

    def __init__(self, services: EngineServices) -> None:
        self._services, self._process = services, services.process

    async def open(self, config: Config, origin: Origin, caller: ClientContext) -> OpenedConversation:
        """Open a conversation for a client. Raises ConversationError if the stored one cannot be read, or if another
        process writes it.
        """
        stored: StoredConversation | None = None
        not_reverted: NotStored | None = None
        match origin:
            case NewConversation(ephemeral=ephemeral, paginated=paginated):
                given = origin.client_tools
                tools = client_tool.checked_tools(given, RESERVED_NAMES) if given else ()
                session = await self._begin(
                    config,
                    caller,
                    None,
                    tools,
                    ephemeral=ephemeral,
                    paginated=paginated,
                    skill_folders=origin.skill_folders,
                )
            case SuppliedHistory(paginated=paginated):
                session = await self._begin(config, caller, origin.items, paginated=paginated)
            case Fork():
                session, stored = await self._fork(config, caller, origin)
            case StoredRollout():
                session, reopened = await self._resume(config, caller, origin)
                stored, not_reverted = reopened.stored, reopened.not_reverted
        forked_from = stored.meta.id if stored is not None and isinstance(origin, Fork) else None
        return OpenedConversation(SessionHandle(session), forked_from, stored, not_reverted)

    def load_turns(self) -> None:
        """Load the modules that opening does not need, before the first turn. Slow: use a thread."""
        load(operations)

    # --- the four origins
    async def _begin(
        self,
        config: Config,
        caller: ClientContext,
        given: Sequence[ResponseItem] | None,
        client_tools: tuple[ClientTool, ...] = (),
        *,
        ephemeral: bool = False,
        paginated: bool = False,
        skill_folders: tuple[str, ...] = (),
    ) -> Session:
        setup, writer = self._new_rollout(
            config, caller, client_tools, ephemeral=ephemeral, paginated=paginated
        )
        setup = replace(setup, skill_folders=skill_folders) if skill_folders else setup
        with _closed_on_failure(writer):
            session = await self._session(setup, writer)
            items = given if given is not None else session.first_items()
            session.begin_with(OPENING_ID, items)
        return session

    async def _fork(
        self, config: Config, caller: ClientContext, origin: Fork
    ) -> tuple[Session, StoredConversation]:
        """Copy every line of the old file but for its goal: the new file is listed and resumed like any other."""
        reading = rollout_reader
        stored = await run_in_thread(reading.read_rollout, origin.path, origin.keeps)
        setup, writer = self._new_rollout(
            config,
            caller,
            stored.meta.client_tools or (),
            ephemeral=origin.ephemeral,
            paginated=stored.is_paginated,
            forked_from=stored.meta,
        )
        with _closed_on_failure(writer):
            if isinstance(writer, RolloutWriter):
                await run_in_thread(reading.copy_lines, stored, writer)
            session = await self._session(setup, writer)
            items = reading.rebuild_history(
                (*stored.items, *reading.recovered_items(stored)),
                session.compacted_again,
            )
            session.restore(items, None, stored.usage)
        return session, stored

    async def _resume(
        self, config: Config, caller: ClientContext, origin: StoredRollout
    ) -> tuple[Session, Reopened]:
        reading, revert = rollout_reader, origin.revert
        line = None if revert is None else revert_line(revert.keeps, revert.turns)
        read = partial(reading.reopen, messages=origin.messages, turns=origin.turns)
        reopened = await run_in_thread(read, origin.path, self._process.now, self._process.disk, line)
        stored, writer = reopened.stored, reopened.writer
        last = stored.last
        if origin.keeps_system_prompt and last.system_prompt is not None:
            config = replace(config, thread=replace(config.thread, system_prompt=last.system_prompt))
        with _closed_on_failure(writer):
            setup = ConversationSetup(
                id=stored.meta.id,
                config=config,
                caller=caller,
                instructions=self._instructions(config),
                rollout_path=writer.path,
                client_tools=stored.meta.client_tools or (),
            )
            session = await self._session(setup, writer)
            items = reading.rebuild_history(stored.items, session.compacted_again)
            usage = stored.usage if origin.keeps_usage else None
            session.restore(items, stored.goal, usage, None if revert is None else revert.settings)
            if stored.damaged:
                session.warn(OPENING_ID, str(user_messages.lines_unreadable(stored.path, stored.damaged)))
            if revert is None and last.model is not None and last.model != config.thread.model:
                facts = partial(
                    self._services.known_models.facts,
                    config,
                    ActiveClient(caller, self._process.environment),
                )
                provider = stored.meta.model_provider
                session.warn(OPENING_ID, other_model_notice(last.model, provider, config, facts))
        return session, reopened

    # --- parts of a session
    async def _session(self, setup: ConversationSetup, writer: RolloutWriter | NullRolloutWriter) -> Session:
        telemetry = await self._services.telemetry(setup.config, setup.caller, ConversationId(setup.id))
        return assemble_session(self._services, setup, writer, telemetry)

    def _new_rollout(
        self,
        config: Config,
        caller: ClientContext,
        client_tools: tuple[ClientTool, ...],
        *,
        ephemeral: bool = False,
        paginated: bool = False,
        forked_from: SessionMetaLine | None = None,
    ) -> tuple[ConversationSetup, RolloutWriter | NullRolloutWriter]:
        instructions, id = self._instructions(config), self._process.new_conversation_id()
        writer: RolloutWriter | NullRolloutWriter = NullRolloutWriter()
        meta = None
        if not ephemeral:
            path = new_rollout_path(self._process.threads, self._process.now(), id)
            meta = SessionMetaLine(
                id=id,
                timestamp=utc_timestamp(self._process.now()),
                cwd=str(config.cwd),
                originator=caller.identity().originator,
                cli_version=self._process.version,
                instructions=instructions.agents,
                model_provider=config.provider.id,
                client_tools=client_tools or None,
                git=read_git_info(config.cwd),
                session_id=id if paginated else None,
                history_mode=PAGINATED if paginated else None,
                forked_from_id=None if forked_from is None else forked_from.id,
                base_instructions=None if forked_from is None else forked_from.base_instructions,
            )
            writer = RolloutWriter.create(
                path,
                self._process.now,
                [meta],
                disk=self._process.disk,
                paginated=id if paginated else None,
            )
        setup = ConversationSetup(
            id=id,
            config=config,
            caller=caller,
            instructions=instructions,
            rollout_path=writer.path,
            head=meta,
            client_tools=client_tools,
        )
        return setup, writer

    def _instructions(self, config: Config) -> Instructions:
        refusals: list[str] = []
        sources: list[str] = []
        agents = configured_instructions(config, self._process.environment, refusals.append, sources)
        return Instructions(
            agents=agents,
            sources=tuple(sources),
            shell=os.path.basename(self._process.shell_path),
            refusals=tuple(refusals),
        )


def assemble_session(
    engine: EngineServices,
    conversation: ConversationSetup,
    writer: RolloutWriter | NullRolloutWriter,
    telemetry: ConversationTelemetry,
) -> Session:
    """Create the session of a conversation, and emit notices about its settings for the user."""
    config, caller, home = conversation.config, conversation.caller, conversation.config.home
    outbox, rules = Outbox(writer), ExecPolicy(home)
    state = SessionState(config.thread, Transcript(ConversationHistory(), outbox))
    elicitations = _elicitations(outbox, state, may_ask=caller.elicitation())
    current = ActiveClient(caller, engine.process.environment)
    services = SessionServices(
        conversation=conversation,
        state=state,
        outbox=outbox,
        model=ModelClientProvider(
            current, partial(engine.model, config, telemetry), engine.known_models, config
        ),
        commands=_commands(engine, state.settings, current),
        approvals=ApprovalServices(ApprovalBroker(), ApprovalMemory(), outbox.flush, rules),
        mcp=engine.mcp(config, caller, elicitations, lambda change: outbox.emit("", change)),
        elicitations=elicitations,
        reports=Reports(telemetry, engine.turn_completed(config, caller, ConversationId(conversation.id))),
        sources=_clock_and_ids(engine.process),
        checkpoints=engine.checkpoints,
        home=HomeFiles(SharedMessages(MessageHistory(home, config.history)), engine.skills),
    )
    telemetry.conversation_starts(config)
    about_settings = joined(config.notices.warnings)
    missing = (
        None if os.path.isdir(config.cwd) else str(user_messages.working_directory_missing(str(config.cwd)))
    )
    tier, no_tier = tier_in_force(config.thread.service_tier, config.thread.model, services.model.facts)
    state.settings = replace(state.settings, service_tier=tier)
    row = services.model.facts().row(config.thread.model)
    documents = documents_notice(
        conversation.instructions.agents, config.thread.model, first_bounds(config, services.model.facts())
    )
    warnings = [
        each
        for each in (missing, about_settings, no_tier, window_notice(config, row), documents)
        if each is not None
    ]
    for warning in (*warnings, *conversation.instructions.refusals, *rules.problems):
        outbox.emit("", WarningNotice(message=warning))
    for old, present in config.notices.old_names:
        outbox.emit("", _old_name_notice(old, present))
    return Session(services, writer.close)


def _commands(engine: EngineServices, settings: ThreadSettings, caller: ActiveClient) -> CommandServices:
    roots = engine.runner.roots.open()
    roots.learn(settings.sandbox_policy, settings.cwd, caller.environment.get("TMPDIR"))
    return CommandServices(engine.runner, roots, Terminals(), engine.process.shell_path, caller)


def _elicitations(outbox: Outbox, state: SessionState, *, may_ask: bool) -> Elicitations:
    return Elicitations(
        lambda event, turn_id: outbox.emit("", event, turn_id=turn_id),
        may_ask=lambda: may_ask and state.settings.asks(lambda kinds: kinds.mcp_elicitations),
    )


def _clock_and_ids(process: ProcessEnvironment) -> ClockAndIds:
    return ClockAndIds(
        clock=process.clock,
        now=process.now,
        wall_clock=process.wall_clock,
        new_id=process.new_id,
        new_turn_id=process.new_conversation_id,
    )


def _old_name_notice(old: str, present: str) -> DeprecationNotice:
    # Clients show this text unchanged; it is that of codex 0.58.
    return DeprecationNotice(
        summary=f"`{old}` is deprecated. Use `{present}` instead.",
        details=f"Enable it with `--enable {present}` or `[features].{present}` in config.toml. "
        "See https://github.com/openai/codex/blob/main/docs/config.md#feature-flags for details.",
    )
