"""What a session works with, put together once by the engine: collaborators, clock and ids. No behaviour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from app_server.core.approvals.broker import ApprovalBroker
from app_server.core.approvals.memory import ApprovalMemory
from app_server.core.approvals.pending_answers import PendingAnswers
from app_server.core.approvals.rule_book import RuleBook
from app_server.core.config.types import Config
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.snapshot import Git
from app_server.core.lazy import Lazy
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.model_client import ModelClient
from app_server.core.rollout.history_file import MessageHistory
from app_server.core.sandbox.roots import ConversationRoots
from app_server.core.session.elicitations import Elicitations
from app_server.core.telemetry.conversation_telemetry import ConversationTelemetry
from app_server.core.tools.contract import ClientQuestions
from app_server.core.tools.terminals import Terminals
from app_server.core.turn.outbox import Outbox
from protocol.engine.client_tools import ClientTool
from protocol.records import dataclass

if TYPE_CHECKING:
    from app_server.core.skills.skill_catalog import SkillCatalog

TurnCompleted = Callable[[str, Sequence[str], str | None], None]
"""Is told of each completed turn: its id, what the user said, the assistant's last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """The opening of a conversation, as far as it does not change with the turns."""

    agents: str | None
    """AGENTS.md files, joined."""
    sources: tuple[str, ...] = ()
    """The files that these are."""
    shell: str | None
    """The user's shell by its short name."""
    shell_path: str
    refusals: tuple[str, ...] = ()
    """What was found and not read, in words for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    conversation_id: str
    config: Config
    instructions: Instructions
    model: ModelClient
    outbox: Outbox
    broker: ApprovalBroker
    approved: ApprovalMemory
    rules: RuleBook
    runner: CommandRunner
    roots: ConversationRoots
    mcp: McpManager
    clock: Callable[[], float]
    """Monotonic seconds."""
    new_id: Callable[[], str]
    new_turn_id: Callable[[], str]
    """A UUIDv7 as text."""
    rollout_path: Path | None
    """None: the conversation is not stored."""
    history_file: MessageHistory
    history_order: anyio.Lock = field(default_factory=anyio.Lock)
    """Messages are kept in the order in which they were handed over."""
    turn_completed: TurnCompleted
    telemetry: ConversationTelemetry
    git: Git
    now: Callable[[], datetime]
    elicitations: Elicitations
    client_tools: tuple[ClientTool, ...] = ()
    """What the client brought when it began the conversation."""
    questions: ClientQuestions = field(default_factory=PendingAnswers)
    """Of tools, to the client."""
    skills: Lazy[SkillCatalog]
    terminals: Terminals = field(default_factory=Terminals)
    """Commands that go on between calls and turns."""
