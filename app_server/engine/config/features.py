"""The feature table: every switch of `[features]`, its default and its stage.

It includes old names of switches, so that a settings file for an earlier version keeps working.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct


class FeatureStage(StrEnum):
    STABLE = "stable"
    BETA = "beta"
    EXPERIMENTAL = "experimental"


class Feature(Struct, frozen=True):
    name: str
    stage: FeatureStage
    default: bool
    doc: str = ""
    """Description of what the feature switches; empty if it has no effect. Such a feature is known only so that the
    user gets no warning.
    """


def _experimental(name: str, doc: str = "", *, default: bool = False) -> Feature:
    return Feature(name, FeatureStage.EXPERIMENTAL, default, doc)


_ALL = (
    _experimental(
        "unified_exec", "the tools `exec_command` and `write_stdin`, whose terminals outlive a call"
    ),
    _experimental(
        "shell_command_tool", "the tool `shell_command`, which takes a script instead of a list of words"
    ),
    _experimental("rmcp_client"),
    _experimental("grep_files", "a tool that finds files by their content"),
    _experimental("read_file", "a tool that reads files"),
    _experimental("list_dir", "a tool that lists folders"),
    Feature(
        "apply_patch_freeform",
        FeatureStage.BETA,
        False,
        "the tool `apply_patch` without JSON around the patch",
    ),
    Feature("view_image_tool", FeatureStage.STABLE, True, "the tool `view_image`"),
    Feature("web_search_request", FeatureStage.STABLE, False, "the search of the provider, if it has one"),
    _experimental("experimental_sandbox_command_assessment"),
    _experimental(
        "ghost_commit",
        "checkpoints: what turns change in files is recorded, so that it can be taken back",
        default=True,
    ),
    _experimental("enable_experimental_windows_sandbox"),
    Feature(
        "tool_call_mcp_elicitation",
        FeatureStage.STABLE,
        True,
        "whether a tool of an MCP server may run is asked as by the server; off: as by the model",
    ),
    _experimental(
        "default_mode_request_user_input",
        "the tool `request_user_input` outside of plan mode, too",
    ),
    _experimental(
        "goals", "tools of goals in threads that have no goal yet, so that the model may begin one"
    ),
    Feature("hooks", FeatureStage.STABLE, True, "all hooks, at once"),
    _experimental("update_plan", "the tool `update_plan` in small windows, too"),
    _experimental("image_generation"),
    _experimental(
        "mcp_2026_07_28",
        "MCP servers over HTTP are first asked whether they speak the revision 2026-07-28",
    ),
    _experimental(
        "chat_deltas",
        "over the conversation API, too, answers over Chat Completions come as deltas, with counts of tokens",
    ),
)

FEATURES: Mapping[str, Feature] = {feature.name: feature for feature in _ALL}

LEGACY_TOGGLES: Mapping[str, str] = {
    "include_apply_patch_tool": "apply_patch_freeform",
    "experimental_use_freeform_apply_patch": "apply_patch_freeform",
    "experimental_use_unified_exec_tool": "unified_exec",
    "experimental_use_rmcp_client": "rmcp_client",
    "experimental_sandbox_command_assessment": "experimental_sandbox_command_assessment",
}
"""Settings outside `[features]` that were switches before that table existed."""

TOOL_SWITCHES: Mapping[str, str] = {
    "web_search": "web_search_request",
    "web_search_request": "web_search_request",
    "view_image": "view_image_tool",
}
"""Features by the keys of `[tools]` that switch them, too. In a profile these keys are written `tools_web_search`,
`tools_view_image`.
"""

WEB_SEARCH_MODES: Mapping[str, bool] = {"live": True, "disabled": False}
"""Whether the feature `web_search_request` is on, by value of the setting `web_search`. Other values switch nothing:
they mean a cached search, which other providers do not have.
"""

ALIASES: Mapping[str, str] = {
    **LEGACY_TOGGLES,
    "web_search": "web_search_request",
    "view_image": "view_image_tool",
    "undo": "ghost_commit",
}
"""Other names of a feature, accepted inside `[features]`."""

ONLY_OTHER_NAMES = frozenset({"view_image", "undo"})
"""Aliases that no version of the settings ever had. They cause no deprecation warning."""

_DEFAULTS = frozenset(feature.name for feature in FEATURES.values() if feature.default)


class Features(Struct, frozen=True):
    """The features that are on."""

    names: frozenset[str] = _DEFAULTS

    def enabled(self, name: str) -> bool:
        return name in self.names

    def switched(self, *, on: Iterable[str] = (), off: Iterable[str] = ()) -> Features:
        """Return a copy with some features switched. If a name is in both, `off` wins."""
        return Features((self.names | frozenset(on)) - frozenset(off))


def canonical_feature(name: str) -> str | None:
    """Return the current name of a feature; None if it is unknown."""
    if name in FEATURES:
        return name
    return ALIASES.get(name)
