"""Puts one session together: what it works with, from the services of the engine and what was opened.

Separate from `engine`, which decides what a conversation begins with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from app_server.core.approvals.broker import ApprovalBroker
from app_server.core.approvals.consent import ApprovalMemory
from app_server.core.approvals.rule_book import RuleBook
from app_server.core.caller import Caller, CurrentCaller
from app_server.core.config.types import Config
from app_server.core.context.history import ConversationHistory
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.ghost import Snapshots
from app_server.core.lazy import Lazy
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.model_client import ModelClient
from app_server.core.opening import ProcessEnvironment
from app_server.core.rollout.history_file import MessageHistory, SharedMessages
from app_server.core.rollout.writer import NoRollout, RolloutWriter
from app_server.core.session.services import (
    CallersModel,
    ConversationSetup,
    HomeFiles,
    Reports,
    Services,
    SessionState,
    TurnCompleted,
)
from app_server.core.session.session import Session
from app_server.core.session.session_servers import Elicitations
from app_server.core.telemetry.telemetry_events import ConversationTelemetry
from app_server.core.tools.contract import ApprovalServices, ClockAndIds, CommandServices
from app_server.core.tools.terminals import Terminals
from app_server.core.turn.outbox import Outbox, Transcript
from protocol.engine.events import McpServerStateChanged
from protocol.engine.settings import ModeSettings, Settings
from protocol.events.notices import DeprecationNoticeEvent, WarningEvent
from protocol.ids import ConversationId
from protocol.policy import AskForApproval

if TYPE_CHECKING:
    from app_server.core.skills.skill_catalog import SkillCatalog


class ModelClients(Protocol):
    """Creates the model clients of sessions."""

    def of(self, config: Config, telemetry: ConversationTelemetry, caller: CurrentCaller) -> ModelClient: ...


class EnginePorts(Protocol):
    """The services outside of the engine that it depends on. The composition root implements them."""

    def mcp(
        self,
        config: Config,
        caller: Caller,
        elicitations: Elicitations,
        on_state: Callable[[McpServerStateChanged], None],
    ) -> McpManager: ...

    async def telemetry(
        self, config: Config, caller: Caller, conversation_id: ConversationId
    ) -> ConversationTelemetry: ...

    def turn_completed(
        self, config: Config, caller: Caller, conversation_id: ConversationId
    ) -> TurnCompleted | None: ...


class EngineServices(Struct, frozen=True):
    """Services that all sessions of a server share."""

    process: ProcessEnvironment
    runner: CommandRunner
    models: ModelClients
    snapshots: Snapshots
    ports: EnginePorts
    skills: Lazy[SkillCatalog]


def assemble_session(
    engine: EngineServices,
    conversation: ConversationSetup,
    writer: RolloutWriter | NoRollout,
    telemetry: ConversationTelemetry,
) -> Session:
    """Make the session of a conversation, and emit what its user has to know about its settings."""
    config, caller, home = conversation.config, conversation.caller, conversation.config.home
    outbox, rules = Outbox(writer), RuleBook(home)
    state = SessionState(first_settings(config), Transcript(ConversationHistory(), outbox))
    elicitations = _elicitations(outbox, state, may_ask=caller.elicitation())
    current = CurrentCaller(caller, engine.process.environment)
    services = Services(
        conversation=conversation,
        state=state,
        outbox=outbox,
        model=CallersModel(current, partial(engine.models.of, config, telemetry)),
        commands=_commands(engine, state.settings, current),
        approvals=ApprovalServices(ApprovalBroker(), ApprovalMemory(), outbox.flush, rules),
        mcp=engine.ports.mcp(config, caller, elicitations, lambda change: outbox.emit("", change)),
        elicitations=elicitations,
        reports=Reports(
            telemetry, engine.ports.turn_completed(config, caller, ConversationId(conversation.id))
        ),
        sources=_clock_and_ids(engine.process),
        snapshots=engine.snapshots,
        home=HomeFiles(SharedMessages(MessageHistory(home, config.history)), engine.skills),
    )
    telemetry.conversation_starts(config)
    warnings = map(str, config.notices.warnings)
    for warning in (*warnings, *conversation.instructions.refusals, *rules.problems):
        outbox.emit("", WarningEvent(message=warning))
    for old, present in config.notices.old_names:
        outbox.emit("", _old_name_notice(old, present))
    return Session(services, writer.close)


def first_settings(config: Config) -> Settings:
    """Return the settings that the first turn starts from."""
    return Settings(
        cwd=str(config.cwd),
        approval_policy=config.permissions.approval_policy,
        sandbox_policy=config.permissions.sandbox_policy,
        model=config.model.name,
        effort=config.model.effort,
        summary=config.model.summary,
        granular=config.permissions.granular,
        permission_profile=config.permissions.profile,
        mode=ModeSettings(config.instructions.mode, config.instructions.of_mode),
        workspace_roots=config.permissions.workspace_roots,
    )


def _commands(engine: EngineServices, settings: Settings, caller: CurrentCaller) -> CommandServices:
    roots = engine.runner.roots.open()
    roots.learn(settings.sandbox_policy, settings.cwd)
    return CommandServices(engine.runner, roots, Terminals(), engine.process.shell_path, caller)


def _elicitations(outbox: Outbox, state: SessionState, *, may_ask: bool) -> Elicitations:
    return Elicitations(
        lambda event, turn_id: outbox.emit("", event, turn_id=turn_id),
        may_ask=lambda is_approval: may_ask and _may_elicit(state.settings, is_approval=is_approval),
    )


def _clock_and_ids(process: ProcessEnvironment) -> ClockAndIds:
    return ClockAndIds(
        clock=process.clock,
        now=process.now,
        wall_clock=process.wall_clock,
        new_id=process.new_id,
        new_turn_id=process.new_conversation_id,
    )


def _old_name_notice(old: str, present: str) -> DeprecationNoticeEvent:
    # Clients show this text unchanged; it is that of codex 0.58.
    return DeprecationNoticeEvent(
        summary=f"`{old}` is deprecated. Use `{present}` instead.",
        details=f"Enable it with `--enable {present}` or `[features].{present}` in config.toml. "
        "See https://github.com/openai/codex/blob/main/docs/config.md#feature-flags for details.",
    )


def _may_elicit(settings: Settings, *, is_approval: bool) -> bool:
    if is_approval and settings.approval_policy is AskForApproval.NEVER:
        return False
    return settings.asks(lambda kinds: kinds.mcp_elicitations)
