"""The settings of `[hooks]`: rows for the table of settings, and the user's consent to hooks (`hooks.state`). Pure.

Hooks themselves are entries of the same table, by the names of events; `engine.hooks` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.config.setting_types import ANYTHING, FLAG, Setting, integer, one_of
from app_server_protocol.encoding import Json

HOOKS: Final = "hooks"
"""Name of the table, and of the feature that switches all hooks."""
STATE: Final = "state"
"""Name of the table in it with the user's consent, by the keys of hooks."""

HOOK_SETTINGS: Final[Mapping[str, Setting]] = {
    "on_failure": Setting(
        one_of(("ask", "block", "allow")),
        "what a guard (`PreToolUse`, `PermissionRequest`, `UserPromptSubmit`) that fails means for what it guards",
        None,
        default="ask",
    ),
    "max_stop_blocks": Setting(
        integer(), "so many times `Stop` hooks make one turn go on; then it ends", None, default=3
    ),
    "may_approve": Setting(
        one_of(("none", "user", "all")),
        "hooks whose `allow` answers the question about a call: none, those of the home, or all",
        None,
        default="user",
    ),
    "project_sandbox": Setting(
        FLAG,
        "`false`: hooks of a project may run outside of the sandbox, as those of the home",
        None,
        default=True,
    ),
    "claude_settings": Setting(
        FLAG,
        "`true`: hooks of a trusted project's `.claude/settings.json` count, too, and commands and patches cannot"
        " write `.claude`",
        None,
        default=False,
    ),
    STATE: Setting(
        ANYTHING,
        "which hooks may run, by their keys: `trusted_hash`, `trusted_files`, `enabled`; `/hooks` in chat writes it",
        None,
    ),
    # The names are those of `HookEvent`, which a start without hooks does not load.
    **{
        event: Setting(ANYTHING, "hooks, in the form of `hooks.json`", None)
        for event in (
            *("PreModelRequest", "PostModelRequest", "PreToolUse", "PermissionRequest", "PostToolUse"),
            *("PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit"),
            *("SubagentStart", "SubagentStop", "Stop", "Interrupt"),
        )
    },
}


class HookState(Struct, frozen=True, kw_only=True):
    """The user's consent to one hook."""

    enabled: bool = True
    trusted_hash: str | None = None
    """Digest of the definition that the user agreed to; None if the user has not agreed."""
    trusted_files: Mapping[str, str] | None = None
    """Digests of the files that the command named then, by path; None if the consent was written by another program,
    which does not look at files.
    """


def hook_states(table: Json) -> Mapping[str, HookState]:
    """Return the consent by the keys of hooks. An entry of another form gives none."""
    found: dict[str, HookState] = {}
    for key, entry in table.items() if isinstance(table, Mapping) else ():
        try:
            found[key] = msgspec.convert(entry, HookState)
        except msgspec.ValidationError:
            continue
    return found
