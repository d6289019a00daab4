"""What a session knows between turns: history, settings, token counts. Changed by the session's own tasks only."""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum
from typing import Final, Literal, TypeVar

from app_server.core.config.types import Config
from app_server.core.context.environment import EnvironmentContext
from app_server.core.context.history import ConversationHistory
from protocol.base import Json
from protocol.events.tokens import RateLimitSnapshot, TokenUsage, TokenUsageInfo
from protocol.policy import AskForApproval, ReasoningEffort, ReasoningSummary, SandboxPolicy
from protocol.records import dataclass

T = TypeVar("T")


class Unset(Enum):
    """Stands where None would mean something."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChange:
    """Settings that are given; what is UNSET stays. An effort of None is the model's default."""

    cwd: str | Literal[Unset.UNSET] = UNSET
    approval_policy: AskForApproval | Literal[Unset.UNSET] = UNSET
    sandbox_policy: SandboxPolicy | Literal[Unset.UNSET] = UNSET
    model: str | Literal[Unset.UNSET] = UNSET
    effort: ReasoningEffort | Literal[Unset.UNSET] | None = UNSET
    summary: ReasoningSummary | Literal[Unset.UNSET] = UNSET


def or_unset(value: T | None) -> T | Literal[Unset.UNSET]:
    """For fields in which None means that nothing was given."""
    return UNSET if value is None else value


def _chosen(given: T | Literal[Unset.UNSET], before: T) -> T:
    return before if given is UNSET else given


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

    def changed(self, change: SettingsChange) -> Settings:
        return replace(
            self,
            cwd=_chosen(change.cwd, self.cwd),
            approval_policy=_chosen(change.approval_policy, self.approval_policy),
            sandbox_policy=_chosen(change.sandbox_policy, self.sandbox_policy),
            model=_chosen(change.model, self.model),
            effort=_chosen(change.effort, self.effort),
            summary=_chosen(change.summary, self.summary),
        )

    def environment(self, shell: str | None) -> EnvironmentContext:
        return EnvironmentContext(self.cwd, self.approval_policy, self.sandbox_policy, shell)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: its id and what holds while it runs."""

    id: str
    settings: Settings
    output_schema: Json = None


@dataclass(slots=True)
class TokenCounts:
    """Usage so far and the provider's limits, as the client is shown them."""

    info: TokenUsageInfo | None = None
    rate_limits: RateLimitSnapshot | None = None

    def add(self, usage: TokenUsage, context_window: int | None) -> None:
        total = plus(self.info.total_token_usage, usage) if self.info else usage
        self.info = TokenUsageInfo(
            total_token_usage=total, last_token_usage=usage, model_context_window=context_window
        )

    def fill(self, context_window: int) -> None:
        """The provider said that the window is full: count it so."""
        before = self.info.total_token_usage if self.info else TokenUsage()
        last = TokenUsage(total_tokens=max(context_window - before.total_tokens, 0))
        self.info = TokenUsageInfo(
            total_token_usage=TokenUsage(total_tokens=context_window),
            last_token_usage=last,
            model_context_window=context_window,
        )

    def estimate(self, tokens: int, context_window: int | None) -> None:
        """After a compaction: what the rebuilt history is likely to cost."""
        total = self.info.total_token_usage if self.info else TokenUsage()
        self.info = TokenUsageInfo(
            total_token_usage=total,
            last_token_usage=TokenUsage(total_tokens=tokens),
            model_context_window=context_window or (self.info.model_context_window if self.info else None),
        )

    @property
    def in_context(self) -> int | None:
        """Tokens that the last request and its answer took."""
        return self.info.last_token_usage.total_tokens if self.info else None


def plus(a: TokenUsage, b: TokenUsage) -> TokenUsage:
    return TokenUsage(
        input_tokens=a.input_tokens + b.input_tokens,
        cached_input_tokens=a.cached_input_tokens + b.cached_input_tokens,
        output_tokens=a.output_tokens + b.output_tokens,
        reasoning_output_tokens=a.reasoning_output_tokens + b.reasoning_output_tokens,
        total_tokens=a.total_tokens + b.total_tokens,
    )


@dataclass(slots=True)
class SessionState:
    """The session's memory."""

    settings: Settings
    history: ConversationHistory = field(default_factory=ConversationHistory)
    tokens: TokenCounts = field(default_factory=TokenCounts)
    told: EnvironmentContext | None = None
    """The surroundings of the last turn, which later turns are compared with. None until one has run."""
    granted_roots: set[str] = field(default_factory=set)
    """Directories that the user let patches write to for the rest of the session."""
    notices: set[str] = field(default_factory=set)
    """What the client was told once and need not hear again."""

    def change(self, change: SettingsChange) -> None:
        """From the next turn on."""
        self.settings = self.settings.changed(change)
