"""The settings of a turn. A later turn starts from them unless it names others."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from posixpath import join, normpath
from typing import Final, Literal, TypeVar

from msgspec import Struct

from app_server_protocol.policy import (
    AskForApproval,
    QuestionKinds,
    ReasoningSummary,
    SandboxPolicy,
    TurnMode,
    roots_beside,
    with_roots,
)
from app_server_protocol.values import replace

T = TypeVar("T")


class Unset(Enum):
    """Marker of a setting that is not given, for fields in which None has a meaning."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


class ModeSettings(Struct, frozen=True):
    kind: TurnMode = TurnMode.DEFAULT
    instructions: str | None = None
    """The client's own instructions for this mode; None stands for the server's."""


DEFAULT_MODE: Final = ModeSettings()


class SettingsChange(Struct, frozen=True, kw_only=True):
    """Changes of settings; a field that is UNSET is not changed. An effort of None is the model's default, and a
    relative working directory is relative to the one before.
    """

    cwd: str | Literal[Unset.UNSET] = UNSET
    approval_policy: AskForApproval | Literal[Unset.UNSET] = UNSET
    granular: QuestionKinds | None = None
    """Kinds of questions, given together with an approval policy; a policy without them asks all its questions."""
    sandbox_policy: SandboxPolicy | Literal[Unset.UNSET] = UNSET
    workspace_roots: tuple[str, ...] | Literal[Unset.UNSET] = UNSET
    """All folders of the client's workspace."""
    permission_profile: str | None = None
    """Name of the permission profile, given together with its sandbox policy."""
    mode: ModeSettings | Literal[Unset.UNSET] = UNSET
    model: str | Literal[Unset.UNSET] = UNSET
    effort: str | Literal[Unset.UNSET] | None = UNSET
    summary: ReasoningSummary | Literal[Unset.UNSET] = UNSET
    service_tier: str | Literal[Unset.UNSET] | None = UNSET


UNCHANGED: Final = SettingsChange()


def or_unset(value: T | None) -> T | Literal[Unset.UNSET]:
    """Replace None by UNSET, for parameters in which None means that no value was given."""
    return UNSET if value is None else value


def _chosen(given: T | Literal[Unset.UNSET], before: T) -> T:
    return before if given is UNSET else given


class Settings(Struct, frozen=True):
    """Settings of the next turn; a `user_turn` changes them for later turns, too."""

    cwd: str
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    model: str
    effort: str | None
    """A value of `ReasoningEffort`, or another word that the provider has to understand."""
    summary: ReasoningSummary | None
    """Summary of the reasoning; that of the model's row if it is None."""
    granular: QuestionKinds | None = None
    permission_profile: str | None = None
    mode: ModeSettings = DEFAULT_MODE
    workspace_roots: tuple[str, ...] = ()
    """Folders besides the working directory that the client named; a policy with writable roots has them, too."""
    service_tier: str | None = None
    """Speed or price class of requests, which the model has, or `default`; None if none was chosen."""

    def changed(self, change: SettingsChange) -> Settings:
        cwd = self.cwd if change.cwd is UNSET else normpath(join(self.cwd, change.cwd))
        roots, before = self.workspace_roots, self.workspace_roots if change.sandbox_policy is UNSET else ()
        if change.workspace_roots is not UNSET:
            roots = roots_beside(cwd, change.workspace_roots)
        return replace(
            self,
            cwd=cwd,
            workspace_roots=roots,
            approval_policy=_chosen(change.approval_policy, self.approval_policy),
            sandbox_policy=with_roots(_chosen(change.sandbox_policy, self.sandbox_policy), roots, before),
            model=_chosen(change.model, self.model),
            effort=_chosen(change.effort, self.effort),
            summary=_chosen(change.summary, self.summary),
            granular=self.granular if change.approval_policy is UNSET else change.granular,
            permission_profile=self.permission_profile
            if change.sandbox_policy is UNSET
            else change.permission_profile,
            mode=_chosen(change.mode, self.mode),
            service_tier=_chosen(change.service_tier, self.service_tier),
        )

    def asks(self, about: Callable[[QuestionKinds], bool]) -> bool:
        """Return whether questions of this kind may be asked."""
        return self.granular is None or about(self.granular)
