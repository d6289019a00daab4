"""Modes, models and efforts that can be chosen, and what is chosen now. Pure.

The mode is what the agent may do: approval policy and sandbox together. Clients are sent it twice, as a mode and as
an option, which are always the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from app_server.core.model.families import EFFORT_WORDS, KNOWN_MODELS, find_family
from protocol.acp.session import (
    ConfigOptionValue,
    SessionConfigOption,
    SessionMode,
    SessionModeState,
)
from protocol.policy import AskForApproval, QuestionKinds, ReasoningEffort, SandboxPolicy
from protocol.structs import replace

MODE: Final = "mode"
MODEL: Final = "model"
EFFORT: Final = "reasoning_effort"
CONFIGURED: Final = "configured"

INITIAL_MODE: Final = "INITIAL_AGENT_MODE"
"""A variable by which hosts say in which mode sessions begin."""


class Permissions(Struct, frozen=True):
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    granular: QuestionKinds | None = None


class ModeKind(Struct, frozen=True):
    id: str
    name: str
    description: str
    approval_policy: AskForApproval
    sandbox_mode: str


MODES: Final = (
    ModeKind(
        "read-only",
        "Read only",
        "Reads files; asks before it changes any, or runs what changes some.",
        AskForApproval.ON_REQUEST,
        "read-only",
    ),
    ModeKind(
        "workspace-write",
        "Workspace",
        "Changes files of the workspace and runs commands there; asks for more.",
        AskForApproval.ON_REQUEST,
        "workspace-write",
    ),
    ModeKind(
        "agent-full-access",
        "Full access",
        "Does everything without asking and without a sandbox.",
        AskForApproval.NEVER,
        "danger-full-access",
    ),
)
_ABOUT_EFFORTS: Final[Mapping[str, str]] = {each.value: about for each, about in EFFORT_WORDS.items()}
_ALL_EFFORTS: Final = (ReasoningEffort.LOW, ReasoningEffort.MEDIUM, ReasoningEffort.HIGH)


class UnknownChoice(ValueError):
    """There is no such mode, option or value; the argument says which."""


def mode_of(permissions: Permissions) -> str:
    """The mode that these are, by kind: the roots of a workspace are the user's configuration."""
    for mode in MODES:
        if (permissions.approval_policy, permissions.sandbox_policy.mode) == (
            mode.approval_policy,
            mode.sandbox_mode,
        ):
            return mode.id
    return CONFIGURED


class SessionOptions(Struct, frozen=True, kw_only=True):
    """What can be chosen, and what is. Values are replaced, never changed."""

    permissions: Mapping[str, Permissions]
    """By mode, in the order in which they are offered."""
    models: tuple[str, ...]
    """In the order in which they are offered; the chosen one is among them."""
    mode: str
    model: str
    effort: str | None = None

    # --- choosing
    def with_mode(self, id: str) -> SessionOptions:
        """Raises UnknownChoice."""
        if id not in self.permissions:
            raise UnknownChoice(f"unknown mode: {id[:100]}")
        return replace(self, mode=id)

    def with_option(self, id: str, value: str | bool) -> SessionOptions:
        """Raises UnknownChoice."""
        option = next((each for each in self.config_options() if each.id == id), None)
        if option is None:
            raise UnknownChoice(f"unknown option: {id[:100]}")
        if value not in [each.value for each in option.options] or not isinstance(value, str):
            raise UnknownChoice(f"{id} has no value {str(value)[:100]}")
        if id == MODE:
            return self.with_mode(value)
        if id == MODEL:
            chosen = replace(self, model=value)
            fits = self.effort is None or self.effort in efforts_of(value)
            return chosen if fits else replace(chosen, effort=None)
        return replace(self, effort=value)

    def with_models(self, models: Sequence[str]) -> SessionOptions:
        """With these offered as well."""
        return replace(self, models=tuple(dict.fromkeys((*self.models, *models))))

    # --- shapes for clients
    def modes(self) -> SessionModeState:
        """Return the modes for clients that know nothing of options."""
        modes = tuple(SessionMode(id=id, name=name, description=about) for id, name, about in self._modes())
        return SessionModeState(current_mode_id=self.mode, available_modes=modes)

    def config_options(self) -> tuple[SessionConfigOption, ...]:
        """Return all options, the most important first."""
        modes = tuple(_value(*mode) for mode in self._modes())
        about = "What the agent may do"
        mode = SessionConfigOption(
            id=MODE, name="Mode", description=about, category=MODE, current_value=self.mode, options=modes
        )
        models = tuple(_model_value(name) for name in self.models)
        model = SessionConfigOption(
            id=MODEL, name="Model", category=MODEL, current_value=self.model, options=models
        )
        efforts = tuple(_value(each, each.capitalize(), _ABOUT_EFFORTS.get(each)) for each in self._efforts())
        if not efforts:
            return mode, model
        effort = SessionConfigOption(
            id=EFFORT,
            name="Reasoning effort",
            category="thought_level",
            current_value=self._current_effort(),
            options=efforts,
        )
        return mode, model, effort

    def _modes(self) -> list[tuple[str, str, str]]:
        named = {mode.id: (mode.name, mode.description) for mode in MODES}
        own = ("Configured", "As the configuration or the stored session says.")
        return [(id, *named.get(id, own)) for id in self.permissions]

    def _current_effort(self) -> str:
        return str(self.effort or default_effort_of(self.model))

    def _efforts(self) -> list[str]:
        """Empty where none can be chosen; else the current one is among them."""
        known, current = [str(each) for each in efforts_of(self.model)], self._current_effort()
        return known if not known or current in known else [current, *known]


def efforts_of(model: str) -> tuple[ReasoningEffort, ...]:
    """Empty for a model that does not reason, as far as is known."""
    known = next((each for each in KNOWN_MODELS if each.name == model), None)
    if known is not None:
        return known.efforts
    return _ALL_EFFORTS if find_family(model).supports_reasoning_summaries else ()


def default_effort_of(model: str) -> ReasoningEffort:
    known = next((each for each in KNOWN_MODELS if each.name == model), None)
    if known is not None:
        return known.default_effort
    return find_family(model).default_effort or ReasoningEffort.MEDIUM


def _model_value(name: str) -> ConfigOptionValue:
    known = next((each for each in KNOWN_MODELS if each.name == name), None)
    return _value(name, name, known.description if known else None)


def _value(value: str, name: str, description: str | None) -> ConfigOptionValue:
    return ConfigOptionValue(value=value, name=name, description=description)
