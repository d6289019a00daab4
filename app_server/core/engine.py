"""Builds sessions from a configuration and an origin.

Owns the order of opening: first it opens or creates the rollout, then it sets up the history, and only then it creates
the session. It waits neither for the network nor for MCP servers or git.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app_server.core.approvals.broker import ApprovalBroker
from app_server.core.approvals.consent import ApprovalMemory
from app_server.core.approvals.rule_book import RuleBook
from app_server.core.config.types import Config
from app_server.core.context.compacted_history import (
    build_compacted_history,
    collect_user_messages,
    with_marked_summary,
)
from app_server.core.context.environment_context import opening_messages
from app_server.core.context.project_docs import configured_instructions
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.ghost import Snapshots
from app_server.core.git.repository import read_git_info
from app_server.core.git.snapshot import Git
from app_server.core.lazy import Lazy
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
from app_server.core.rollout.conversation import (
    Rebuild,
    StoredConversation,
    copy_lines,
    read_for_fork,
    rebuild_history,
    reopen,
)
from app_server.core.rollout.disk import REAL_DISK
from app_server.core.rollout.history_file import MessageHistory, SharedMessages
from app_server.core.rollout.record import revert_line
from app_server.core.rollout.rollout_names import new_rollout_path, utc_timestamp
from app_server.core.rollout.writer import NoRollout, RolloutWriter
from app_server.core.session.services import (
    ClockAndIds,
    ConversationSetup,
    Instructions,
    Reports,
    Services,
    SessionState,
    TurnCompleted,
)
from app_server.core.session.session import PERFORM, Session
from app_server.core.session.session_servers import Elicitations
from app_server.core.telemetry.telemetry_events import ConversationTelemetry
from app_server.core.threads import run_in_thread
from app_server.core.tools.client_tool import checked_tools
from app_server.core.tools.contract import ApprovalServices, CommandServices
from app_server.core.tools.registry import RESERVED_NAMES
from app_server.core.tools.terminals import Terminals
from app_server.core.turn.outbox import Outbox
from app_server.core.turn.settings import Settings
from protocol.engine.events import McpServerStateChanged
from protocol.engine.questions import ClientTool
from protocol.events.notices import DeprecationNoticeEvent, WarningEvent
from protocol.ids import ConversationId
from protocol.policy import AskForApproval
from protocol.responses import ResponseItem
from protocol.rollout import CompactedItem, GitInfo, SessionMetaLine
from protocol.structs import replace

if TYPE_CHECKING:
    from app_server.core.skills.skill_catalog import SkillCatalog

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

    def mcp(
        self,
        config: Config,
        elicitations: Elicitations,
        on_state: Callable[[McpServerStateChanged], None],
    ) -> McpManager: ...

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
        skills: Lazy[SkillCatalog],
    ) -> None:
        self._process, self._runner, self._models, self._ports = process, runner, models, ports
        self._snapshots, self._skills = Snapshots(git), skills

    async def open(self, config: Config, origin: Origin) -> Opened:
        """Raises ConversationError if the stored one cannot be read, or another process writes it."""
        match origin:
            case NewConversation(ephemeral=ephemeral):
                given = origin.client_tools
                tools = checked_tools(given, RESERVED_NAMES) if given else ()
                return await self._begin(config, None, tools, ephemeral=ephemeral)
            case GivenHistory():
                return await self._begin(config, origin.items)
            case Fork():
                return await self._fork(config, origin)
            case StoredRollout():
                return await self._resume(config, origin)

    def load_turns(self) -> None:
        """What opening does without, ahead of the first turn. Slow: use a thread."""
        PERFORM.get()

    # --- the four origins
    async def _begin(
        self,
        config: Config,
        given: Sequence[ResponseItem] | None,
        client_tools: tuple[ClientTool, ...] = (),
        *,
        ephemeral: bool = False,
    ) -> Opened:
        conversation_id, instructions, writer = self._new_rollout(config, client_tools, ephemeral=ephemeral)
        telemetry = await self._ports.telemetry(config, conversation_id)
        opened = self._session(
            config, conversation_id, writer, instructions, telemetry, client_tools=client_tools
        )
        items = given if given is not None else self._opening(config, instructions)
        opened.session.begin_with(OPENING_ID, items)
        return opened

    async def _fork(self, config: Config, origin: Fork) -> Opened:
        """The new file gets every line of the old one but for its goal, so it is listed and resumed like any other."""
        stored = await run_in_thread(read_for_fork, origin.path, origin.keeps)
        client_tools = stored.meta.client_tools or ()
        conversation_id, instructions, writer = self._new_rollout(
            config, client_tools, ephemeral=origin.ephemeral, forked_from=stored.meta.id
        )
        if isinstance(writer, RolloutWriter):
            await run_in_thread(copy_lines, stored, writer)
        telemetry = await self._ports.telemetry(config, conversation_id)
        opened = self._session(
            config, conversation_id, writer, instructions, telemetry, stored, client_tools=client_tools
        )
        items = (*stored.items, *stored.leftover)
        opened.session.restore(rebuild_history(items, self._rebuild(config, instructions)), None)
        return replace(opened, forked_from=stored.meta.id)

    async def _resume(self, config: Config, origin: StoredRollout) -> Opened:
        revert = origin.revert
        line = None if revert is None else revert_line(revert.keeps, revert.turns)
        reopened = await run_in_thread(
            partial(
                reopen,
                origin.path,
                self._process.now,
                REAL_DISK,
                line,
                messages=origin.messages,
                turns=origin.turns,
            )
        )
        stored, instructions = reopened.stored, self._instructions(config)
        telemetry = await self._ports.telemetry(config, stored.meta.id)
        opened = self._session(
            config,
            stored.meta.id,
            reopened.writer,
            instructions,
            telemetry,
            stored,
            client_tools=stored.meta.client_tools or (),
        )
        items = rebuild_history(stored.items, self._rebuild(config, instructions))
        opened.session.restore(items, stored.goal, None if revert is None else revert.settings)
        if revert is None and stored.last_model is not None and stored.last_model != config.model.name:
            opened.session.warn(OPENING_ID, _other_model(stored.last_model, config.model.name))
        return opened

    # --- parts of a session
    def _new_rollout(
        self,
        config: Config,
        client_tools: tuple[ClientTool, ...],
        *,
        ephemeral: bool = False,
        forked_from: str | None = None,
    ) -> tuple[ConversationId, Instructions, RolloutWriter | NoRollout]:
        instructions = self._instructions(config)
        conversation_id = self._process.new_conversation_id()
        if ephemeral:
            return conversation_id, instructions, NoRollout()
        path = new_rollout_path(self._process.home, self._process.now(), conversation_id)
        meta = self._meta(config, conversation_id, instructions, client_tools, forked_from)
        writer = RolloutWriter.create(path, self._process.now, [meta])
        return conversation_id, instructions, writer

    def _session(
        self,
        config: Config,
        conversation_id: ConversationId,
        writer: RolloutWriter | NoRollout,
        instructions: Instructions,
        telemetry: ConversationTelemetry,
        stored: StoredConversation | None = None,
        *,
        client_tools: tuple[ClientTool, ...],
    ) -> Opened:
        outbox, rules = Outbox(writer), RuleBook(self._process.home)
        state = SessionState(Settings.of(config))
        roots = self._runner.roots.open()
        roots.learn(state.settings.sandbox_policy, state.settings.cwd)
        elicitation = self._ports.elicitation()
        elicitations = Elicitations(
            lambda event, turn_id: outbox.emit("", event, turn_id=turn_id),
            may_ask=lambda is_approval: elicitation and _may_elicit(state.settings, is_approval=is_approval),
        )
        services = Services(
            conversation=ConversationSetup(
                id=conversation_id,
                config=config,
                instructions=instructions,
                rollout_path=writer.path,
                client_tools=client_tools,
            ),
            outbox=outbox,
            model=self._models.of(config, telemetry),
            commands=CommandServices(self._runner, roots, Terminals(), self._process.shell_path),
            approvals=ApprovalServices(ApprovalBroker(), ApprovalMemory(), outbox.flush, rules),
            mcp=self._ports.mcp(config, elicitations, lambda change: outbox.emit("", change)),
            elicitations=elicitations,
            messages=SharedMessages(MessageHistory(self._process.home, config.history)),
            reports=Reports(telemetry, self._ports.turn_completed(config, conversation_id)),
            sources=self._clock_and_ids(),
            snapshots=self._snapshots,
            skills=self._skills,
        )
        telemetry.conversation_starts(config)
        for warning in (*map(str, config.notices.warnings), *instructions.refusals, *rules.problems):
            outbox.emit("", WarningEvent(message=warning))
        for old, present in config.notices.old_names:
            outbox.emit("", _old_name_notice(old, present))
        session = Session(services, state, writer.close)
        return Opened(
            conversation_id=conversation_id,
            session=session,
            model=config.model.name,
            effort=config.model.effort,
            rollout_path=writer.path,
            stored=stored,
        )

    def _clock_and_ids(self) -> ClockAndIds:
        process = self._process
        return ClockAndIds(
            clock=process.clock,
            now=process.now,
            new_id=process.new_id,
            new_turn_id=lambda: str(process.new_conversation_id()),
        )

    def _instructions(self, config: Config) -> Instructions:
        refusals: list[str] = []
        sources: list[str] = []
        agents = configured_instructions(config, refusals.append, sources)
        return Instructions(
            agents=agents,
            sources=tuple(sources),
            shell=os.path.basename(self._process.shell_path),
            refusals=tuple(refusals),
        )

    def _opening(self, config: Config, instructions: Instructions) -> list[ResponseItem]:
        return opening_messages(
            Settings.of(config).environment(instructions.shell),
            developer=config.instructions.developer,
            agents=instructions.agents,
        )

    def _meta(
        self,
        config: Config,
        id: ConversationId,
        instructions: Instructions,
        client_tools: tuple[ClientTool, ...],
        forked_from: str | None,
    ) -> SessionMetaLine:
        return SessionMetaLine(
            id=id,
            timestamp=utc_timestamp(self._process.now()),
            cwd=str(config.cwd),
            originator=self._ports.originator(),
            cli_version=self._process.version,
            instructions=instructions.agents,
            model_provider=config.provider.id,
            client_tools=client_tools or None,
            git=_git_info(config.cwd),
            forked_from_id=forked_from,
        )

    def _rebuild(self, config: Config, instructions: Instructions) -> Rebuild:
        def rebuild(before: Sequence[ResponseItem], line: CompactedItem) -> Sequence[ResponseItem]:
            if line.replacement_history is not None:
                return with_marked_summary(line.replacement_history, line.message)
            opening = self._opening(config, instructions)
            return build_compacted_history(opening, collect_user_messages(before), line.message)

        return rebuild


def _git_info(folder: Path) -> GitInfo | None:
    found = read_git_info(folder)
    if found is None:
        return None
    return GitInfo(commit_hash=found.commit_hash, branch=found.branch, repository_url=found.repository_url)


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


def _may_elicit(settings: Settings, *, is_approval: bool) -> bool:
    if is_approval and settings.approval_policy is AskForApproval.NEVER:
        return False
    return settings.asks(lambda kinds: kinds.mcp_elicitations)
