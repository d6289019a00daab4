"""The feature table: every switch of `[features]`, its default and how finished it is.

Old spellings of a switch are here too, so that a settings file written for an earlier version keeps working.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from protocol.records import dataclass


class Stage(StrEnum):
    STABLE = "stable"
    BETA = "beta"
    EXPERIMENTAL = "experimental"


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    stage: Stage
    default: bool


FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("unified_exec", Stage.EXPERIMENTAL, False),
        Feature("shell_command_tool", Stage.EXPERIMENTAL, False),
        Feature("rmcp_client", Stage.EXPERIMENTAL, False),
        Feature("grep_files", Stage.EXPERIMENTAL, False),
        Feature("read_file", Stage.EXPERIMENTAL, False),
        Feature("list_dir", Stage.EXPERIMENTAL, False),
        Feature("apply_patch_freeform", Stage.BETA, False),
        Feature("view_image_tool", Stage.STABLE, True),
        Feature("web_search_request", Stage.STABLE, False),
        Feature("experimental_sandbox_command_assessment", Stage.EXPERIMENTAL, False),
        Feature("ghost_commit", Stage.EXPERIMENTAL, True),
        Feature("enable_experimental_windows_sandbox", Stage.EXPERIMENTAL, False),
        Feature("chat_deltas", Stage.EXPERIMENTAL, False),
    )
}

LEGACY_TOGGLES: Mapping[str, str] = {
    "include_apply_patch_tool": "apply_patch_freeform",
    "experimental_use_freeform_apply_patch": "apply_patch_freeform",
    "experimental_use_unified_exec_tool": "unified_exec",
    "experimental_use_rmcp_client": "rmcp_client",
    "experimental_sandbox_command_assessment": "experimental_sandbox_command_assessment",
}
"""Settings outside `[features]` that were switches before there was a table for them."""

ALIASES: Mapping[str, str] = {
    **LEGACY_TOGGLES,
    "web_search": "web_search_request",
    "view_image": "view_image_tool",
    "undo": "ghost_commit",
}
"""Other names of a feature, accepted inside `[features]`."""

ONLY_OTHER_NAMES = frozenset({"view_image", "undo"})
"""Aliases that no version of the settings ever had: nobody needs to be told to leave them."""

WITHOUT_EFFECT = frozenset(
    {"rmcp_client", "experimental_sandbox_command_assessment", "enable_experimental_windows_sandbox"}
)
"""Features that are known, so that nobody is warned, and that switch nothing here."""

_DEFAULTS = frozenset(feature.name for feature in FEATURES.values() if feature.default)


@dataclass(frozen=True, slots=True)
class Features:
    """The features that are on."""

    names: frozenset[str] = _DEFAULTS

    def enabled(self, name: str) -> bool:
        return name in self.names

    def switched(self, *, on: Iterable[str] = (), off: Iterable[str] = ()) -> Features:
        """A copy with some features switched; `off` wins where a name is in both."""
        return Features((self.names | frozenset(on)) - frozenset(off))


def canonical_feature(name: str) -> str | None:
    """The present name of a feature, or None for one that nobody knows."""
    if name in FEATURES:
        return name
    return ALIASES.get(name)
