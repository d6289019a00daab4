"""The settings of a turn, and the turn that they hold for. A later turn starts from them unless it names others."""

from __future__ import annotations

from app_server.core.config.types import Config
from app_server.core.context.environment import EnvironmentContext
from app_server.core.turn.emitter import TurnEmitter
from protocol.base import Json
from protocol.policy import AskForApproval, ReasoningEffort, ReasoningSummary, SandboxPolicy
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What the next turn starts from; a `user_turn` changes it for the turns after it too."""

    cwd: str
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    model: str
    effort: ReasoningEffort | None
    summary: ReasoningSummary

    @classmethod
    def of(cls, config: Config) -> Settings:
        return cls(
            cwd=str(config.cwd),
            approval_policy=config.approval_policy,
            sandbox_policy=config.sandbox_policy,
            model=config.model,
            effort=config.model_reasoning_effort,
            summary=config.model_reasoning_summary,
        )

    def environment(self, shell: str | None) -> EnvironmentContext:
        return EnvironmentContext(self.cwd, self.approval_policy, self.sandbox_policy, shell)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: what it is called, and what holds while it runs."""

    emitter: TurnEmitter
    settings: Settings
    output_schema: Json = None

    @property
    def id(self) -> str:
        """The turn's own id, a UUIDv7."""
        return self.emitter.turn_id

    @property
    def operation_id(self) -> str:
        """The id of the operation that began it."""
        return self.emitter.operation_id
