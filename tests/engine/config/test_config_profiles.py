"""`[permissions]` and `default_permissions`: their priority, their meaning, and every error."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from app_server.engine.config.config_values import (
    CliOverrides,
    Config,
    RequestOverrides,
    SettingsSource,
)
from app_server.engine.config.permission_profiles import (
    NO_NETWORK,
    ProfileError,
    listed_profiles,
    policy_named,
)
from app_server.engine.config.profile_settings import ProfileSettings
from app_server.engine.config.settings_service import load_config
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import SettingsPatch
from app_server_protocol.policy import (
    DangerFullAccess,
    PermissionProfile,
    ReadOnly,
    WorkspaceWrite,
    without_profile,
    writable_names,
)
from tests.support.profiles import VS_CODE, named, profile


def load(
    tmp_path: Path,
    text: str = "",
    request: RequestOverrides | None = None,
    *,
    cli: tuple[tuple[str, str], ...] = (),
    trusted: bool = False,
) -> Config:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    trust = f'\n[projects."{work}"]\ntrust_level = "trusted"\n' if trusted else ""
    (home / "config.toml").write_text(text + trust)
    place = SettingsSource(
        home=home, cwd=work, cli=CliOverrides(settings=cli), environment={"HOME": "/home/u"}
    )
    return load_config(place, request or RequestOverrides())


A = 'default_permissions = "a"\n[permissions.a]\n'
FILES = 'default_permissions = "a"\n[permissions.a.filesystem]\n'

ERRORS: Mapping[str, str] = {
    'default_permissions = "x"\n[permissions.y]\n': "default_permissions refers to undefined profile `x`",
    'default_permissions = ":x"\n': "default_permissions refers to unknown built-in profile `:x`",
    'default_permissions = "x"\n': "default_permissions requires a `[permissions]` table",
    '[permissions.x]\nextends = ":workspace"\n': (
        "config defines `[permissions]` profiles but does not set `default_permissions`"
    ),
    A + 'extends = "b"\n': "permissions profile `a` extends undefined profile `b`",
    A + 'extends = "b"\n[permissions.b]\nextends = "a"\n': (
        "permissions profile inheritance cycle detected: a -> b -> a"
    ),
    A + 'extends = ":danger-full-access"\n': (
        "permissions profile `a` cannot extend unsupported built-in profile `:danger-full-access`"
    ),
    'default_permissions = ":a"\n[permissions.":a"]\n': (
        "permissions profile `:a` uses a reserved built-in profile prefix"
    ),
    FILES + 'sub = "read"\n': "filesystem path `sub` must be absolute, use `~/...`, or start with `:`",
    FILES + '":workspace_roots" = { "../x" = "read" }\n': (
        "filesystem subpath `../x` must be a descendant path without `.` or `..` components"
    ),
    FILES + '":workspace_roots" = { "/x" = "read" }\n': (
        "filesystem subpath `/x` must be a descendant path without `.` or `..` components"
    ),
    FILES + '":root" = { x = "read" }\n': "filesystem path `:root` does not support nested entries",
    FILES + '":workspace_roots" = { "*.env" = "write" }\n': (
        "filesystem glob path `*.env` only supports `deny` access; use an exact path or trailing `/**` for `write`"
        " subtree access"
    ),
    FILES + '":root" = "rw"\n': "must be one of `read`, `write`, `deny`, not 'rw'",
    FILES + "glob_scan_max_depth = 0\n": "glob_scan_max_depth must be at least 1",
    A + "filesystem = 3\n": "`permissions.a.filesystem` must be a table, not an integer",
    A + 'network = { enabled = "yes" }\n': "`permissions.a.network.enabled` must be true or false",
    A + "workspace_roots = { rel = true }\n": "filesystem path `rel` must be absolute",
    'default_permissions = "a"\n[permissions]\na = 3\n': "permissions profile `a` must be a table",
}


@pytest.mark.parametrize("text", ERRORS)
def test_a_mistake_in_the_chosen_profile_is_said_in_the_words_that_clients_know(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert ERRORS[text] in str(error.value)
    assert "error deriving" not in str(error.value)


def test_a_mistake_in_a_profile_that_nobody_chose_is_a_warning(tmp_path: Path) -> None:
    text = A + 'extends = ":workspace"\nnetwrok = 1\n[permissions.b]\nextends = "c"\n'
    config = load(tmp_path, text)
    warnings = "\n".join(map(str, config.notices.warnings))
    assert (
        "the permission profile `b` cannot be chosen: permissions profile `b` extends undefined profile `c`"
        in warnings
    )
    assert "unknown setting `permissions.a.netwrok` is ignored; did you mean `network`?" in warnings
    problems = {each.id: each.problem is None for each in listed_profiles(config.permissions.profiles)}
    assert problems == {
        ":read-only": True,
        ":workspace": True,
        ":danger-full-access": True,
        "a": True,
        "b": False,
    }


@pytest.mark.parametrize(
    ("file", "cli", "request_", "name"),
    [
        ("", (), {}, ":read-only"),
        ('sandbox_mode = "read-only"\ndefault_permissions = ":workspace"\n', (), {}, ":workspace"),
        ('default_permissions = ":workspace"\n', (("sandbox_mode", "read-only"),), {}, None),
        ('sandbox_mode = "read-only"\n', (("default_permissions", ":workspace"),), {}, ":workspace"),
        ('default_permissions = ":workspace"\n', (), {"sandbox": "read-only"}, None),
        (
            "",
            (("default_permissions", ":workspace"),),
            {"patch": SettingsPatch(permission_profile=":read-only")},
            ":read-only",
        ),
        ("", (), {"settings": {"default_permissions": ":workspace"}}, ":workspace"),
        ("", (), {"settings": {"default_permissions": ":workspace"}, "sandbox": "read-only"}, None),
        (
            "",
            (),
            {
                "settings": {"sandbox_mode": "read-only"},
                "patch": SettingsPatch(permission_profile=":workspace"),
            },
            ":workspace",
        ),
        (
            'profile = "p"\ndefault_permissions = ":workspace"\n[profiles.p]\nsandbox_mode = "read-only"\n',
            (),
            {},
            None,
        ),
    ],
)
def test_of_two_ways_the_one_of_the_higher_layer_counts(
    tmp_path: Path,
    file: str,
    cli: tuple[tuple[str, str], ...],
    request_: Mapping[str, Json],
    name: str | None,
) -> None:
    thread = load(tmp_path, file, RequestOverrides(**request_), cli=cli).thread
    assert thread.permission_profile == name
    kinds = {":workspace": WorkspaceWrite, ":read-only": ReadOnly, None: ReadOnly}
    assert isinstance(thread.sandbox_policy, kinds[name])


def test_a_trusted_folder_begins_with_the_workspace(tmp_path: Path) -> None:
    assert load(tmp_path, trusted=True).thread.permission_profile == ":workspace"


def test_a_request_may_choose_where_the_settings_do_not(tmp_path: Path) -> None:
    text = '[permissions.x]\nextends = ":workspace"\n'
    chosen = load(tmp_path, text, RequestOverrides(patch=SettingsPatch(permission_profile="x"))).thread
    assert (chosen.permission_profile, without_profile(chosen.sandbox_policy, "/w")) == (
        "x",
        WorkspaceWrite(),
    )
    tables = RequestOverrides(settings={"permissions.q.extends": ":read-only", "default_permissions": "q"})
    assert load(tmp_path, "", tables).thread.permission_profile == "q"


def test_the_command_line_of_vs_code(tmp_path: Path) -> None:
    cli = (
        ("default_permissions", '"vscode-workspace"'),
        (
            "permissions.vscode-workspace",
            '{ extends = ":workspace", filesystem = { ":root" = "deny", ":minimal" = "read", ":tmpdir" = "write",'
            ' ":slash_tmp" = "read" }, network = { enabled = false } }',
        ),
        (
            "permissions.vscode-workspace-network",
            '{ extends = "vscode-workspace", network = { enabled = true } }',
        ),
        (
            "permissions.vscode-workspace-read-only",
            '{ extends = "vscode-workspace", filesystem = { ":workspace_roots" = { "." = "read" } } }',
        ),
    )
    config = load(tmp_path, cli=cli)
    assert config.thread.sandbox_policy == named(VS_CODE, "vscode-workspace")
    for name in VS_CODE:
        chosen = load(tmp_path, "", RequestOverrides(patch=SettingsPatch(permission_profile=name)), cli=cli)
        assert chosen.thread.sandbox_policy == named(VS_CODE, name)
    assert not config.notices.warnings


def rules(policy: PermissionProfile) -> Mapping[str, str]:
    return {f"{rule.place}/{rule.below}".rstrip("/"): str(rule.access) for rule in policy.rules}


def test_a_child_wins_key_by_key() -> None:
    assert rules(named(VS_CODE, "vscode-workspace-read-only")) == {
        ":root": "deny",
        ":workspace_roots": "read",
        ":slash_tmp": "read",
        ":tmpdir": "write",
        ":minimal": "read",
    }
    assert named(VS_CODE, "vscode-workspace-network").network


def test_forms_of_paths() -> None:
    given = profile(
        {
            "~/.ssh": "none",
            "/data/": {"in": "read", ".": "write", "x/**": "write"},
            ":project_roots": {"a": "deny"},
            "/keys/*.pem": "deny",
            ":unknown": "read",
        },
        extends=None,
        home="/home/u",
    )
    assert rules(given) == {
        "/home/u/.ssh": "deny",
        "/data/in": "read",
        "/data": "write",
        "/data/x": "write",
        ":workspace_roots/a": "deny",
        "/keys/*.pem": "deny",
    }
    assert any(":unknown" in notice for notice in given.notices)
    assert writable_names(given, "/w") == ("/data", "/data/x")


def test_roots_of_parents_may_be_taken_away() -> None:
    tables = {
        "a": {"workspace_roots": {"/x": True, "/y": True}},
        "b": {"extends": "a", "workspace_roots": {"/x": False}},
    }
    assert named(tables, "b").roots == ("/y",)


def test_a_network_of_some_addresses_is_none_and_said() -> None:
    limited = profile({}, network={"enabled": True, "domains": {"example.com": "allow"}})
    assert not limited.network
    assert NO_NETWORK.format("p") in limited.notices
    assert profile({}, network={"enabled": True}).network


def test_a_profile_without_rules_and_a_pattern_without_a_depth_are_said() -> None:
    assert "nothing may be read" in profile({}, extends=None).notices[0]
    assert "glob_scan_max_depth" in profile({":workspace_roots": {"**/x": "deny"}}).notices[0]
    assert not profile({":workspace_roots": {"**/x": "deny"}, "glob_scan_max_depth": 2}).notices


def test_the_nearest_old_shape() -> None:
    assert without_profile(profile({}, extends=":read-only"), "/w") == ReadOnly()
    wide = profile({"/opt": "write", ":slash_tmp": "read"}, roots={"/r": True}, network={"enabled": True})
    assert without_profile(wide, "/w") == WorkspaceWrite(
        writable_roots=("/r", "/opt"), network_access=True, exclude_slash_tmp=True
    )
    inner = profile({":root": "read", ":workspace_roots": {"out": "write"}}, extends=None)
    assert without_profile(inner, "/w") == WorkspaceWrite(
        writable_roots=("/w/out",), exclude_slash_tmp=True, exclude_tmpdir_env_var=True
    )


def test_built_in_names() -> None:
    assert policy_named(ProfileSettings(), ":danger-full-access") == DangerFullAccess()
    with pytest.raises(ProfileError):
        policy_named(ProfileSettings(), "")
