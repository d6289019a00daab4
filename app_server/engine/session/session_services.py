"""The services of a session, which the engine assembles once, in a group for each kind of reader; the session's state
between turns: history, settings, token counts, which only the session's own tasks change; and the parts of both that a
turn receives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from app_server.engine.client_context import ActiveClient, ClientContext
from app_server.engine.config.config_values import Config
from app_server.engine.context.history import ConversationHistory
from app_server.engine.hooks.turn_hooks import ThreadHooks
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.model.model_client import ModelClient
from app_server.engine.session.goals import GoalState
from app_server.engine.session.head import ConversationHead, HeadSize, RequestTemplate, ToolChoice
from app_server.engine.session.session_servers import Elicitations
from app_server.engine.storage.history_file import SharedMessages
from app_server.engine.support.lazy import Lazy
from app_server.engine.telemetry.telemetry_events import ConversationTelemetry
from app_server.engine.tools.tool_base import ApprovalServices, ClockAndIds, CommandServices
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.outbox import Outbox, Transcript
from app_server.engine.turn.token_counts import TokenCounts
from app_server_protocol.encoding import Json
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import SessionMetaLine

if TYPE_CHECKING:
    from app_server.engine.checkpoints.service import Checkpoints
    from app_server.engine.context.skills.skill_catalog import SkillCatalog
    from app_server.engine.model.known_models import KnownModels
    from app_server.engine.model.model_facts import ModelFacts

TurnCompleted = Callable[[str, Sequence[str], str | None], None]
"""Called for each completed turn with its id, the user's inputs, and the assistant's last message."""


class Instructions(Struct, frozen=True, kw_only=True):
    """The instructions at the start of a conversation, as far as they do not change with the turns."""

    agents: str | None
    """Text of the AGENTS.md files, joined; None if there are none."""
    sources: tuple[str, ...] = ()
    """Paths of the AGENTS.md files."""
    shell: str | None
    """Short name of the user's shell; None if it is unknown."""
    refusals: tuple[str, ...] = ()
    """Messages for the user about files that were found and not read."""


class ConversationSetup(Struct, frozen=True, kw_only=True):
    """Facts about an opened conversation that never change."""

    id: str
    config: Config
    caller: ClientContext
    """The client that opened it."""
    instructions: Instructions
    rollout_path: Path | None
    """Path of the rollout file; None if the conversation is not stored."""
    head: SessionMetaLine | None = None
    """First line of the rollout, if this process wrote it; None if it was stored before, or is not stored."""
    client_tools: tuple[ClientTool, ...] = ()
    """Tools that the client declared when it began the conversation."""
    skill_folders: tuple[str, ...] = ()
    """Folders with skills that the client named when it began the conversation."""


class Reports(Struct, frozen=True):
    """Receivers of reports about turns, besides the client."""

    telemetry: ConversationTelemetry
    turn_completed: TurnCompleted | None
    """Receiver of completed turns; None if there is none."""


class ModelClientProvider:
    """The model client of a session and the facts about its models. The client is created again when another client
    has begun a turn, and the facts are read again when they may have changed.
    """

    def __init__(
        self,
        current: ActiveClient,
        make: Callable[[ActiveClient], ModelClient],
        known: KnownModels,
        config: Config,
    ) -> None:
        self._current, self._make, self._known, self._config = current, make, known, config
        self._made: tuple[ClientContext, ModelClient] = current.caller, make(current)
        self._has_account = config.provider.requires_openai_auth
        """Whether the facts depend on the login, which may change at any time."""
        self._facts: ModelFacts | None = None
        self._facts_of: tuple[ClientContext, int, int] | None = None
        self._turn_ended_for: ClientContext | None = None

    def client(self) -> ModelClient:
        caller, client = self._made
        if caller is not self._current.caller:
            client = self._make(self._current)
            self._made = self._current.caller, client
        return client

    def facts(self) -> ModelFacts:
        """Return the facts about the models that are known now: the same object as long as they are the same."""
        facts_of = self._current.caller, self._known.revision, self._known.lessons.revision
        if self._facts is None or self._has_account or facts_of != self._facts_of:
            facts = self._known.facts(self._config, self._current)
            if self._facts is None or facts_of != self._facts_of or facts.served is not self._facts.served:
                self._facts, self._facts_of = facts, facts_of
        return self._facts

    def learn_window(self, model: str, tokens: int, *, is_guess: bool = False) -> None:
        """Store the context window of a model that has turned out to be smaller, from the next turn on."""
        self._known.learn_window(self._config, model, tokens, is_guess=is_guess)

    def window_is_guess(self, model: str) -> bool:
        return self._known.window_is_guess(self._config, model)

    def forget_guess(self, model: str) -> None:
        """Forget a guessed context window, after a larger request was answered."""
        self._known.forget_guess(self._config, model)

    def turn_ended(self) -> None:
        """Handle the end of a turn, after the first of which the provider may be asked for its models."""
        if self._has_account or self._turn_ended_for is not self._current.caller:
            self._turn_ended_for = self._current.caller
            self._known.turn_ended(self._config, self._current)


class HomeFiles(Struct, frozen=True):
    """Files of the user in the home, which all conversations share."""

    messages: SharedMessages
    skills: Lazy[SkillCatalog]


class SessionState(Struct):
    """The state of a session between turns."""

    settings: ThreadSettings
    transcript: Transcript
    tokens: TokenCounts = msgspec.field(default_factory=TokenCounts)
    goals: GoalState = msgspec.field(default_factory=GoalState)
    heads: dict[str, ConversationHead] = msgspec.field(default_factory=dict)
    """Instructions and tools that each model was sent since the last compaction, by model."""
    told_mode: str | None = None
    """Mode that the model was told last; None if the history has no message about one."""
    template: RequestTemplate | None = None
    """Parts that the requests of the last turn had in common; None before the first turn."""
    tools: ToolChoice | None = None
    """Tools of the last turn; None before the first turn."""
    head_size: HeadSize | None = None
    """Size of the instructions and tools of the last estimate; None before the first."""
    told: tuple[ThreadSettings, str | None] | None = None
    """Settings of the last turn and the mode, as the history tells them to the model; None until a turn has run."""
    hooks: ThreadHooks = msgspec.field(default_factory=ThreadHooks)
    is_restored: bool = False
    """Whether the history was stored before this session and no request has used it yet."""

    @property
    def history(self) -> ConversationHistory:
        return self.transcript.history


class SessionServices(Struct, frozen=True, kw_only=True):
    conversation: ConversationSetup
    state: SessionState
    outbox: Outbox
    model: ModelClientProvider
    commands: CommandServices
    approvals: ApprovalServices
    mcp: McpManager
    elicitations: Elicitations
    reports: Reports
    sources: ClockAndIds
    checkpoints: Lazy[Checkpoints]
    home: HomeFiles


class TurnContext(Struct, frozen=True):
    """One turn: its identity, and the values that hold while it runs."""

    services: SessionServices
    emitter: TurnEmitter
    settings: ThreadSettings
    output_schema: Json = None

    def record(self, *items: ResponseItem) -> None:
        """Add the items to the conversation."""
        self.services.state.transcript.record(self.emitter, items)
