"""Builds sessions from a configuration and an origin.

Owns the order of opening: first it opens or creates the rollout, then it sets up the history, and only then it creates
the session. It waits neither for the network nor for MCP servers or git.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from app_server.core.approvals.broker import ApprovalBroker
from app_server.core.approvals.memory import ApprovalMemory
from app_server.core.config.types import Config
from app_server.core.context.compacted_history import (
    build_compacted_history,
    collect_user_messages,
    with_marked_summary,
)
from app_server.core.context.opening_messages import opening_messages
from app_server.core.context.project_docs import find_instructions
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.info import read_git_info
from app_server.core.git.snapshot import Git
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.model_client import ModelClient
from app_server.core.opening import (
    Fork,
    GivenHistory,
    NewConversation,
    Opened,
    Origin,
    ProcessEnvironment,
    StoredRollout,
)
from app_server.core.rollout.history_file import MessageHistory
from app_server.core.rollout.resume import Rebuild, append_all, read_for_fork, rebuild_history, reopen
from app_server.core.rollout.rollout_names import new_rollout_path, utc_timestamp
from app_server.core.rollout.writer import RolloutWriter
from app_server.core.session.elicitations import Elicitations
from app_server.core.session.services import Instructions, Services, TurnCompleted
from app_server.core.session.session import Session
from app_server.core.session.state import SessionState
from app_server.core.telemetry.conversation_telemetry import ConversationTelemetry
from app_server.core.threads import run_in_thread
from app_server.core.turn.outbox import Outbox
from app_server.core.turn.settings import Settings
from protocol.events.msg import EventMsg
from protocol.events.notices import DeprecationNoticeEvent, WarningEvent
from protocol.ids import ConversationId
from protocol.responses import ResponseItem
from protocol.rollout import CompactedItem, SessionMetaLine

OPENING_ID = "auto-compact-0"
"""The id of events that are emitted while opening; codex 0.58 numbers them like the turns that it starts itself."""


class ModelClients(Protocol):
    """Creates the model clients of sessions."""

    def of(self, config: Config, telemetry: ConversationTelemetry) -> ModelClient: ...


class EnginePorts(Protocol):
    """The services outside of the engine that it depends on. The composition root implements them."""

    def originator(self) -> str: ...

    def elicitation(self) -> bool:
        """Whether the client supports elicitation requests of MCP servers."""
        ...

    def mcp(self, config: Config, elicitations: Elicitations) -> McpManager: ...

    async def telemetry(self, config: Config, conversation_id: ConversationId) -> ConversationTelemetry: ...

    def turn_completed(self, config: Config, conversation_id: ConversationId) -> TurnCompleted: ...


class Engine:
    """Opens conversations for one server."""

    def __init__(
        self,
        process: ProcessEnvironment,
        runner: CommandRunner,
        models: ModelClients,
        git: Git,
        ports: EnginePorts,
    ) -> None:
        self._process, self._runner, self._models, self._git, self._ports = (
            process,
            runner,
            models,
            git,
            ports,
        )

    async def open(self, config: Config, origin: Origin) -> Opened:
        """Raises ConversationError if the stored one cannot be read, or another process writes it."""
        match origin:
            case NewConversation():
                return await self._begin(config, None)
            case GivenHistory():
                return await self._begin(config, origin.items)
            case Fork():
                return await self._fork(config, origin.path)
            case StoredRollout():
                return await self._resume(config, origin.path)

    # --- the four origins
    async def _begin(self, config: Config, given: Sequence[ResponseItem] | None) -> Opened:
        conversation_id, instructions, writer = self._new_rollout(config)
        telemetry = await self._ports.telemetry(config, conversation_id)
        opened = self._session(config, conversation_id, writer, instructions, (), telemetry)
        items = given if given is not None else self._opening(config, instructions)
        opened.session.begin_with(OPENING_ID, items)
        return opened

    async def _fork(self, config: Config, path: Path) -> Opened:
        """The new file gets every line of the old one, so it is listed and resumed like any other."""
        stored, lines = await run_in_thread(read_for_fork, path)
        conversation_id, instructions, writer = self._new_rollout(config)
        await run_in_thread(append_all, writer, lines)
        telemetry = await self._ports.telemetry(config, conversation_id)
        opened = self._session(
            config, conversation_id, writer, instructions, stored.initial_messages, telemetry
        )
        opened.session.restore(rebuild_history(stored.items, self._rebuild(config, instructions)))
        return opened

    async def _resume(self, config: Config, path: Path) -> Opened:
        reopened = await run_in_thread(reopen, path, self._process.now)
        stored, instructions = reopened.stored, self._instructions(config)
        telemetry = await self._ports.telemetry(config, stored.meta.id)
        opened = self._session(
            config, stored.meta.id, reopened.writer, instructions, stored.initial_messages, telemetry
        )
        opened.session.restore(rebuild_history(stored.items, self._rebuild(config, instructions)))
        if stored.last_model is not None and stored.last_model != config.model:
            opened.session.warn(OPENING_ID, _other_model(stored.last_model, config.model))
        return opened

    # --- parts of a session
    def _new_rollout(self, config: Config) -> tuple[ConversationId, Instructions, RolloutWriter]:
        conversation_id = self._process.new_conversation_id()
        instructions = self._instructions(config)
        path = new_rollout_path(self._process.home, self._process.now(), conversation_id)
        meta = self._meta(config, conversation_id, instructions)
        writer = RolloutWriter.create(path, self._process.now, [meta])
        return conversation_id, instructions, writer

    def _session(
        self,
        config: Config,
        conversation_id: ConversationId,
        writer: RolloutWriter,
        instructions: Instructions,
        messages: tuple[EventMsg, ...],
        telemetry: ConversationTelemetry,
    ) -> Opened:
        outbox = Outbox(writer)
        state = SessionState(Settings.of(config))
        roots = self._runner.roots.open()
        roots.learn(state.settings.sandbox_policy, state.settings.cwd)
        elicitations = Elicitations(lambda event: outbox.emit("", event), supported=self._ports.elicitation())
        services = Services(
            conversation_id=conversation_id,
            config=config,
            instructions=instructions,
            model=self._models.of(config, telemetry),
            telemetry=telemetry,
            outbox=outbox,
            broker=ApprovalBroker(),
            approved=ApprovalMemory(),
            runner=self._runner,
            roots=roots,
            mcp=self._ports.mcp(config, elicitations),
            clock=self._process.clock,
            now=self._process.now,
            new_id=self._process.new_id,
            new_turn_id=lambda: str(self._process.new_conversation_id()),
            rollout_path=writer.path,
            history_file=MessageHistory(self._process.home, config.history),
            turn_completed=self._ports.turn_completed(config, conversation_id),
            git=self._git,
            elicitations=elicitations,
        )
        telemetry.conversation_starts(config)
        for warning in (*config.warnings, *instructions.refusals):
            outbox.emit("", WarningEvent(message=warning))
        for old, present in config.old_names:
            outbox.emit("", _old_name_notice(old, present))
        session = Session(services, state, writer.close)
        return Opened(
            conversation_id=conversation_id,
            session=session,
            model=config.model,
            effort=config.model_reasoning_effort,
            rollout_path=writer.path,
            initial_messages=messages,
        )

    def _instructions(self, config: Config) -> Instructions:
        refusals: list[str] = []
        agents = find_instructions(
            self._process.home,
            config.cwd,
            config.project_doc_max_bytes,
            config.project_doc_fallback_filenames,
            refusals.append,
        )
        shell = self._process.shell_path
        name = os.path.basename(shell)
        return Instructions(agents=agents, shell=name, shell_path=shell, refusals=tuple(refusals))

    def _opening(self, config: Config, instructions: Instructions) -> list[ResponseItem]:
        return opening_messages(
            Settings.of(config).environment(instructions.shell),
            developer=config.developer_instructions,
            agents=instructions.agents,
        )

    def _meta(self, config: Config, id: ConversationId, instructions: Instructions) -> SessionMetaLine:
        return SessionMetaLine(
            id=id,
            timestamp=utc_timestamp(self._process.now()),
            cwd=str(config.cwd),
            originator=self._ports.originator(),
            cli_version=self._process.version,
            instructions=instructions.agents,
            model_provider=config.model_provider_id,
            git=read_git_info(config.cwd),
        )

    def _rebuild(self, config: Config, instructions: Instructions) -> Rebuild:
        def rebuild(before: Sequence[ResponseItem], line: CompactedItem) -> Sequence[ResponseItem]:
            if line.replacement_history is not None:
                return with_marked_summary(line.replacement_history, line.message)
            opening = self._opening(config, instructions)
            return build_compacted_history(opening, collect_user_messages(before), line.message)

        return rebuild


def _old_name_notice(old: str, present: str) -> DeprecationNoticeEvent:
    # Clients show this text unchanged; it is that of codex 0.58.
    return DeprecationNoticeEvent(
        summary=f"`{old}` is deprecated. Use `{present}` instead.",
        details=f"Enable it with `--enable {present}` or `[features].{present}` in config.toml. "
        "See https://github.com/openai/codex/blob/main/docs/config.md#feature-flags for details.",
    )


def _other_model(before: str, now: str) -> str:
    return (
        f"This session was recorded with model `{before}` but is resuming with `{now}`. "
        f"Consider switching back to `{before}` as it may affect Codex performance."
    )
