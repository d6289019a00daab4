"""What a session works with, put together once by the engine, in a group for each kind of reader; what it knows between
turns: history, settings, token counts, which the session's own tasks alone change; and what the parts of a turn get of
both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from app_server.core.caller import Caller, CurrentCaller
from app_server.core.config.types import Config
from app_server.core.context.environment_context import EnvironmentContext
from app_server.core.context.history import ConversationHistory
from app_server.core.git.ghost import Snapshots
from app_server.core.goals import GoalKeeper
from app_server.core.lazy import Lazy
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.model_client import ModelClient
from app_server.core.rollout.history_file import SharedMessages
from app_server.core.session.head import ConversationHead
from app_server.core.session.session_servers import Elicitations
from app_server.core.telemetry.telemetry_events import ConversationTelemetry
from app_server.core.tools.contract import ApprovalServices, ClockAndIds, CommandServices
from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.outbox import Outbox, Transcript
from app_server.core.turn.token_counts import TokenCounts
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.engine.settings import Settings
from app_server_protocol.responses import ResponseItem
from app_server_protocol.structs import Json

if TYPE_CHECKING:
    from app_server.core.model.known_models import KnownModels
    from app_server.core.model.model_facts import ModelFacts
    from app_server.core.skills.skill_catalog import SkillCatalog

TurnCompleted = Callable[[str, Sequence[str], str | None], None]
"""Called for each completed turn: its id, what the user said, the assistant's last words."""


class Instructions(Struct, frozen=True, kw_only=True):
    """The opening of a conversation, as far as it does not change with the turns."""

    agents: str | None
    """AGENTS.md files, joined."""
    sources: tuple[str, ...] = ()
    """The files that these are."""
    shell: str | None
    """The user's shell by its short name."""
    refusals: tuple[str, ...] = ()
    """What was found and not read, in words for the user."""


class ConversationSetup(Struct, frozen=True, kw_only=True):
    """Facts with which a conversation was opened; none of them changes."""

    id: str
    config: Config
    caller: Caller
    """The client that opened it."""
    instructions: Instructions
    rollout_path: Path | None
    """None: the conversation is not stored."""
    client_tools: tuple[ClientTool, ...] = ()
    """What the client brought when it began the conversation."""
    skill_folders: tuple[str, ...] = ()
    """Folders with skills that it named then."""


class Reports(Struct, frozen=True):
    """To whom turns are reported besides the client."""

    telemetry: ConversationTelemetry
    turn_completed: TurnCompleted | None
    """None: nobody is told."""


class CallersModel:
    """The model client of a session, made anew once another client has begun a turn."""

    def __init__(
        self,
        current: CurrentCaller,
        make: Callable[[CurrentCaller], ModelClient],
        known: KnownModels,
        config: Config,
    ) -> None:
        self._current, self._make, self._known, self._config = current, make, known, config
        self._made: tuple[Caller, ModelClient] = current.caller, make(current)

    def client(self) -> ModelClient:
        caller, client = self._made
        if caller is not self._current.caller:
            client = self._make(self._current)
            self._made = self._current.caller, client
        return client

    def facts(self) -> ModelFacts:
        """Return what is known of the models now."""
        return self._known.facts(self._config, self._current)

    def learn_window(self, model: str, tokens: int) -> None:
        """Note the window of a model that has turned out to be smaller; it counts from the next turn on."""
        self._known.learn_window(self._config, model, tokens)

    def guess_window(self, model: str, tokens: int) -> None:
        """Note the window that a model may have, as a larger request got no answer; it counts from the next turn on."""
        self._known.learn_window(self._config, model, tokens, is_guess=True)

    def window_is_guess(self, model: str) -> bool:
        return self._known.window_is_guess(self._config, model)

    def forget_guess(self, model: str) -> None:
        """Forget a guessed window, as a larger request was answered."""
        self._known.forget_guess(self._config, model)

    def turn_ended(self) -> None:
        """Learn that a turn has ended, which is when the provider may be asked for its models."""
        self._known.turn_ended(self._config, self._current)


class HomeFiles(Struct, frozen=True):
    """Files of the user in the home for all conversations."""

    messages: SharedMessages
    skills: Lazy[SkillCatalog]


class SessionState(Struct):
    """The session's memory."""

    settings: Settings
    transcript: Transcript
    tokens: TokenCounts = msgspec.field(default_factory=TokenCounts)
    last_sent_context: EnvironmentContext | None = None
    """The surroundings of the last turn, which later turns are compared with. None until one has run."""
    goals: GoalKeeper = msgspec.field(default_factory=GoalKeeper)
    heads: dict[str, ConversationHead] = msgspec.field(default_factory=dict)
    """By model, the instructions and tools that it has been sent since the last compaction."""
    told_mode: str | None = None
    """What the model was told last of a mode; None if the history says nothing of one."""
    is_restored: bool = False
    """Whether the history was stored before this session and the model was not asked with it yet."""

    @property
    def history(self) -> ConversationHistory:
        return self.transcript.history


class Services(Struct, frozen=True, kw_only=True):
    conversation: ConversationSetup
    state: SessionState
    outbox: Outbox
    model: CallersModel
    commands: CommandServices
    approvals: ApprovalServices
    mcp: McpManager
    elicitations: Elicitations
    reports: Reports
    sources: ClockAndIds
    snapshots: Snapshots
    home: HomeFiles


class Turn(Struct, frozen=True):
    """One turn: what it is called, and what holds while it runs."""

    services: Services
    emitter: TurnEmitter
    settings: Settings
    output_schema: Json = None

    @property
    def operation_id(self) -> str:
        """Return the id of the operation that began it."""
        return self.emitter.operation_id

    def record(self, *items: ResponseItem) -> None:
        """Make the items part of the conversation."""
        self.services.state.transcript.record(self.emitter, items)
