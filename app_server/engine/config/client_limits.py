"""Checks the rights of clients if `app_server.client_rights` is false: a client gets at most what the user has
configured.

The user's file and command line set the limit. A request, or a change of a turn, is compared with them. Of the disk,
only real paths are read. `settings_file` compares what clients write with `OPEN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from os.path import normpath
from pathlib import Path
from typing import Final

from app_server.engine.config.config_values import ClientFence, CliOverrides, Config, RequestOverrides
from app_server.engine.config.features import ALIASES, LEGACY_TOGGLES
from app_server.engine.config.file_rules import FileRules, Right, rules_of
from app_server.engine.config.layers import cli_layer, combine, merge, split_key
from app_server.engine.config.settings_reader import derive_error
from app_server.engine.config.settings_table import ABOUT_CLIENTS, every_setting
from app_server.engine.support.engine_errors import BeyondClientRights, ConfigError
from app_server.engine.support.real_path import real_path, within
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import UNSET, SettingsPatch, ThreadSettings
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    PermissionProfile,
    QuestionKinds,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
    as_profile,
    writable_names,
)
from app_server_protocol.values import replace

OPEN: Final = frozenset(key for key, _, part in every_setting() if part.open)
"""Keys of settings that start, read and grant nothing. A setting that is not in this set may do so, also in a later
version.
"""

OPEN_IN_REQUESTS: Final = OPEN | {
    *(
        "approval_policy",
        "default_permissions",
        "sandbox_mode",
        "sandbox_workspace_write",
        "profile",
        ABOUT_CLIENTS,
    ),
    *("features", "tools", "web_search", *ALIASES, *LEGACY_TOGGLES),
}
"""Keys of settings that a request may have. Those that grant rights are compared with the user's by their effect.
Settings about clients have no effect in a request.
"""

TEMPORARY: Final = "/:tmpdir"
"""Placeholder for $TMPDIR, which is the same for the client and the user."""

_NO_WIDER: Final[Mapping[AskForApproval, Sequence[AskForApproval]]] = {
    AskForApproval.NEVER: (AskForApproval.NEVER,),
    AskForApproval.UNTRUSTED: (AskForApproval.UNTRUSTED,),
    AskForApproval.ON_REQUEST: (AskForApproval.ON_REQUEST, AskForApproval.UNTRUSTED),
    AskForApproval.ON_FAILURE: (
        AskForApproval.ON_FAILURE,
        AskForApproval.ON_REQUEST,
        AskForApproval.UNTRUSTED,
    ),
}
"""Policies that grant no more than the user's policy, by the user's policy. If no client is asked, no client can
approve a run without the sandbox.
"""


def client_fence(own: Config, server: Path | None) -> ClientFence:
    """Return the limits that the user's `own` configuration sets. `server` is the folder in which the user started the
    server; None if the user chose none.
    """
    roots = writable_names(own.thread.sandbox_policy, own.thread.cwd)
    trusted = (own.cwd,) if own.permissions.trusted else ()
    folders = () if server is None else (server,)
    return ClientFence(own.thread, tuple(map(real_path, (*folders, *roots, *trusted))))


def is_fenced(file: Mapping[str, Json], cli: CliOverrides) -> bool:
    """Return whether the user's own settings remove the rights of the client. On a shared server, the client's own
    settings can also remove them, but they can never grant any.
    """
    return any(_takes_rights(file, each) for each in (cli.of_server, cli))


def _takes_rights(file: Mapping[str, Json], cli: CliOverrides) -> bool:
    try:
        settings = combine(file, cli, RequestOverrides()).settings
    except ConfigError:  # the profile does not exist
        settings = merge(file, cli_layer(cli))
    table = settings.get(ABOUT_CLIENTS)
    return isinstance(table, Mapping) and table.get("client_rights") is False


def check_settings(settings: Mapping[str, Json]) -> None:
    """Raise BeyondClientRights if the `config` map of a request has settings that may start something."""
    for key, value in settings.items():
        if value is not None and not OPEN_IN_REQUESTS.intersection(split_key(key)[:1]):
            raise _beyond(f"the setting `{key[:100]}`")


def check_command_line(cli: CliOverrides) -> None:
    """Raise BeyondClientRights if the options that a client brings to a shared server may start something."""
    if cli.above is not None:
        check_settings(cli_layer(replace(cli, above=None)))


def check_permissions(fence: ClientFence | None, asked: ThreadSettings) -> None:
    """Raise BeyondClientRights if a client asks for more rights than the `fence` allows. `fence` is None if nothing is
    limited.
    """
    check_sandbox(fence, asked.sandbox_policy, asked.cwd)
    if fence is not None and not _asks_enough(fence.thread, asked):
        raise _beyond(f"the approval policy `{asked.approval_policy}`")


def temporary_folder(fence: ClientFence | None, environment: Mapping[str, str]) -> str | None:
    """Return the $TMPDIR of a client, in which its commands may write; None if it has none, or if the fence does not
    allow it.
    """
    named = environment.get("TMPDIR")
    return named if named and (fence is None or _holds(fence, named)) else None


def require_working_directory(cwd: str, patch: SettingsPatch) -> None:
    """Raise ConfigError if a patch names roots of a workspace that do not include the working directory: commands may
    write to that directory in every workspace.
    """
    roots = patch.workspace_roots
    if roots is not UNSET and normpath(cwd) not in map(normpath, roots):
        raise derive_error("the workspace roots must have the working directory among them")


def check_sandbox(fence: ClientFence | None, policy: SandboxPolicy, cwd: str) -> None:
    """Check the sandbox of a command that runs without approval, like `check_permissions`."""
    excess = None if fence is None else _excess(fence, policy, cwd)
    if excess is not None:
        raise _beyond(excess)


def _excess(fence: ClientFence, policy: SandboxPolicy, cwd: str) -> str | None:
    match policy, fence.thread.sandbox_policy:
        case (_, DangerFullAccess()):
            return None
        case (PermissionProfile(), ReadOnly() | WorkspaceWrite() | PermissionProfile() as own) | (
            ReadOnly() | WorkspaceWrite(),
            PermissionProfile() as own,
        ):
            return _excess_of_profile(fence, policy, own, cwd)
        case (ReadOnly(), _):
            return None
        case WorkspaceWrite() as asked, WorkspaceWrite() as own:
            if asked.network_access and not own.network_access:
                return "the network"
            if own.exclude_slash_tmp and not asked.exclude_slash_tmp:
                return "writing in /tmp"
            if own.exclude_tmpdir_env_var and not asked.exclude_tmpdir_env_var:
                return "writing in $TMPDIR"
            outside = (root for root in (cwd, *asked.writable_roots) if not _holds(fence, root))
            return next((f"writing in {root[:1000]}" for root in outside), None)
        case _:
            return f"the sandbox `{policy.mode}`"


def _excess_of_profile(
    fence: ClientFence, policy: SandboxPolicy, own: ReadOnly | WorkspaceWrite | PermissionProfile, cwd: str
) -> str | None:
    """Return what a policy grants beyond the user's own, if at least one of them is a profile; None if nothing. Between
    two neighbouring places of the rules nothing changes, so checking these places is enough. A pattern of the user's
    profile must be in the policy unchanged.
    """
    assert not isinstance(policy, DangerFullAccess)
    asked, mine = as_profile(policy), as_profile(own)
    if asked.network and not mine.network:
        return "the network"
    # The workspace is the requested one, if the user lets clients choose it.
    roots = (*mine.roots, *filter(partial(_holds, fence), asked.roots))
    most = _rules(replace(mine, roots=roots), cwd if _holds(fence, cwd) else fence.folders[0])
    wanted = _rules(asked, cwd)
    lacking = [pattern for pattern in most.patterns if pattern not in wanted.patterns]
    if most.patterns and asked.pattern_depth < mine.pattern_depth:
        lacking = list(most.patterns)
    if any(_reads_below(wanted, pattern.folder) for pattern in lacking):
        return "reading files that a pattern of the configured permission profile hides"
    for place in dict.fromkeys(("/", *(path for path, _ in (*most.places, *wanted.places)))):
        right, limit = wanted.without_patterns(place), most.without_patterns(place)
        if right >= Right.READ and limit < Right.READ:
            return f"reading {place[:1000]}"
        if right is Right.WRITE and limit is not Right.WRITE:
            return f"writing in {place[:1000]}"
    return None


def _reads_below(rules: FileRules, folder: str) -> bool:
    """Return whether anything in a folder may be read."""
    inner = (path for path, _ in rules.places if within(path, folder))
    return any(rules.without_patterns(path) >= Right.READ for path in (folder, *inner))


def _rules(profile: PermissionProfile, cwd: str) -> FileRules:
    return rules_of(profile, cwd, tmpdir=TEMPORARY, real=lambda name, access: (real_path(name),))


def _holds(fence: ClientFence, folder: str) -> bool:
    real = Path(real_path(folder))
    return any(real.is_relative_to(each) for each in fence.folders)


def _asks_enough(own: ThreadSettings, asked: ThreadSettings) -> bool:
    """Return whether the user is asked as configured, so that the client cannot approve anything else."""
    if own.granular is None:
        return asked.approval_policy in _NO_WIDER[own.approval_policy]
    if asked.approval_policy is not AskForApproval.ON_REQUEST or asked.granular is None:
        return False
    kinds = QuestionKinds.__struct_fields__
    return all(getattr(own.granular, kind) or not getattr(asked.granular, kind) for kind in kinds)


def _beyond(what: str) -> BeyondClientRights:
    return BeyondClientRights(
        f"{what} is more than the user's configuration gives, and that sets app_server.client_rights to false"
    )
