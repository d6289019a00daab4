"""Layers of the configuration: their priority, the form of keys, and the settings in force."""

from pathlib import Path

import pytest

from app_server.engine.config.config_values import CliOverrides, RequestOverrides
from app_server.engine.config.effective import LayerKind, effective_settings, settings_version
from app_server.engine.config.layers import combine, merge, toml_value
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import SettingsPatch
from app_server_protocol.policy import AskForApproval, ReadOnly, WorkspaceWrite
from tests.engine.config.homes import load


def test_a_request_does_not_change_what_clients_may_do(tmp_path: Path) -> None:
    off, on = "[app_server]\nclient_rights = false\n", "[app_server]\nclient_rights = true\n"
    assert load(tmp_path, "").permissions.client_rights
    assert not load(tmp_path, off).permissions.client_rights
    asks: tuple[dict[str, Json], ...] = (
        {"app_server.client_rights": True},
        {"app_server": {"client_rights": True}},
        {'"app_server".client_rights': True},
    )
    for asked in asks:
        assert not load(tmp_path, off, request=RequestOverrides(settings=asked)).permissions.client_rights
    never = CliOverrides(settings=(("app_server.client_rights", "false"),))
    assert not load(tmp_path, on, cli=never).permissions.client_rights


WITH_PROFILE = 'model = "file"\n[profiles.p]\nmodel = "profile"\n'
CLI = CliOverrides(settings=(("model", "cli"),))


@pytest.mark.parametrize(
    ("text", "cli", "request_", "model"),
    [
        ("", CliOverrides(), RequestOverrides(), ""),
        (WITH_PROFILE, CliOverrides(), RequestOverrides(), "file"),
        (WITH_PROFILE, CliOverrides(profile="p"), RequestOverrides(), "profile"),
        ('profile = "p"\n' + WITH_PROFILE, CliOverrides(), RequestOverrides(), "profile"),
        (WITH_PROFILE, CliOverrides(settings=(("profile", "p"),)), RequestOverrides(), "profile"),
        (WITH_PROFILE, CliOverrides(), RequestOverrides(settings={"profile": "p"}), "profile"),
        (WITH_PROFILE, CliOverrides(profile="missing"), RequestOverrides(profile="p"), "profile"),
        (WITH_PROFILE, CLI, RequestOverrides(profile="p"), "cli"),
        (WITH_PROFILE, CliOverrides(settings=(*CLI.settings, ("model", "flag"))), RequestOverrides(), "flag"),
        (WITH_PROFILE, CLI, RequestOverrides(settings={"model": "map"}), "map"),
        (
            WITH_PROFILE,
            CLI,
            RequestOverrides(settings={"model": "map"}, patch=SettingsPatch(model="named")),
            "named",
        ),
        (WITH_PROFILE, CLI, RequestOverrides(settings={"model": None}), "cli"),
    ],
)
def test_the_highest_layer_that_names_a_model_wins(
    tmp_path: Path, text: str, cli: CliOverrides, request_: RequestOverrides, model: str
) -> None:
    assert load(tmp_path, text, cli, request_).thread.model == model


def test_the_active_profile_is_known_by_name(tmp_path: Path) -> None:
    assert load(tmp_path, 'profile = "p"\n' + WITH_PROFILE).profile == "p"
    assert load(tmp_path, WITH_PROFILE).profile is None


def test_a_missing_profile_is_an_error(tmp_path: Path) -> None:
    said = r"^error deriving config: config profile `missing` not found; there are `p`$"
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, WITH_PROFILE, request=RequestOverrides(profile="missing"))


def test_a_missing_provider_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^error deriving config: Model provider `missing` not found$"):
        load(tmp_path, WITH_PROFILE, request=RequestOverrides(model_provider="missing"))


def test_a_name_that_was_misspelt_is_told(tmp_path: Path) -> None:
    text = "[profiles.swift]\nmodel = 'm'\n"
    with pytest.raises(ConfigError, match=r"config profile `swfit` not found; did you mean `swift`\?"):
        load(tmp_path, text, CliOverrides(profile="swfit"))
    with pytest.raises(ConfigError, match=r"Model provider `olama` not found; did you mean `ollama`\?"):
        load(tmp_path, text, request=RequestOverrides(model_provider="olama"))


@pytest.mark.parametrize("key", ["profile", "model_provider", "approval_policy", "sandbox_mode"])
def test_a_value_of_any_length_makes_a_short_message(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, f'{key} = "{"[" * 5000}"\n')
    assert "[[[" in str(refused.value)
    assert len(str(refused.value)) < 500


def test_dotted_keys_reach_into_tables_and_leave_their_neighbours(tmp_path: Path) -> None:
    text = 'sandbox_mode = "workspace-write"\n[sandbox_workspace_write]\nexclude_slash_tmp = true\n'
    config = load(
        tmp_path, text, request=RequestOverrides(settings={"sandbox_workspace_write.network_access": True})
    )
    assert config.thread.sandbox_policy == WorkspaceWrite(
        writable_roots=(), network_access=True, exclude_tmpdir_env_var=False, exclude_slash_tmp=True
    )


def test_a_profile_may_hold_tables(tmp_path: Path) -> None:
    config = load(
        tmp_path, 'profile = "p"\n[features]\nunified_exec = true\n[profiles.p.features]\nundo = false\n'
    )
    assert config.features.enabled("unified_exec")
    assert not config.features.enabled("ghost_commit")


def test_named_parameters_of_a_request(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n',
        request=RequestOverrides(
            patch=SettingsPatch(approval_policy=AskForApproval.UNTRUSTED),
            sandbox="read-only",
            base_instructions="base",
            developer_instructions="developer",
            compact_prompt="compact",
            include_apply_patch_tool=True,
        ),
    )
    assert config.thread.approval_policy is AskForApproval.UNTRUSTED
    assert config.thread.sandbox_policy == ReadOnly()
    assert (config.instructions.base, config.instructions.developer) == ("base", "developer")
    assert config.instructions.compact_prompt == "compact"
    assert config.features.enabled("apply_patch_freeform")


@pytest.mark.parametrize(
    ("cli", "on"),
    [
        (CliOverrides(), False),
        (CliOverrides(enable=("web_search_request",)), True),
        (CliOverrides(enable=("web_search",)), True),
        (CliOverrides(settings=(("tools.web_search", "true"),)), True),
        (CliOverrides(settings=(("features.web_search_request", "true"),)), True),
        (CliOverrides(enable=("web_search",), disable=("web_search_request",)), False),
    ],
)
def test_every_spelling_of_a_feature_counts_in_its_layer(tmp_path: Path, cli: CliOverrides, on: bool) -> None:
    assert (
        load(tmp_path, "[features]\nweb_search_request = false\n", cli).features.enabled("web_search_request")
        is on
    )


def test_an_old_switch_in_a_profile_beats_the_new_one_in_the_file(tmp_path: Path) -> None:
    text = (
        "[features]\napply_patch_freeform = true\nview_image_tool = true\n"
        "[profiles.p]\nexperimental_use_freeform_apply_patch = false\ntools_view_image = false\n"
    )
    config = load(tmp_path, text, request=RequestOverrides(profile="p"))
    assert not config.features.enabled("apply_patch_freeform")
    assert not config.features.enabled("view_image_tool")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("true", True),
        ('"quoted"', "quoted"),
        ("'half", "half"),
        ("plain words", "plain words"),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
        ("a=b", "a=b"),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_a_value_of_the_command_line_is_toml_or_itself(text: str, value: Json) -> None:
    assert toml_value(text) == value


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "a..b", ".".join("a" * 50), '"open', '"a".b = 1\nc'])
def test_keys_that_cannot_be(key: str) -> None:
    with pytest.raises(ConfigError, match="is not a key"):
        combine({}, CliOverrides(settings=((key, "1"),)), RequestOverrides())


def test_a_quoted_part_may_hold_a_dot() -> None:
    cli = CliOverrides(settings=(('mcp_servers."a.b".command', "x"),))
    assert combine({}, cli, RequestOverrides()).settings == {"mcp_servers": {"a.b": {"command": "x"}}}


def test_merging_changes_neither_side() -> None:
    low: dict[str, Json] = {"t": {"a": 1, "b": 2}, "x": 1}
    high: dict[str, Json] = {"t": {"b": 3}, "x": {"y": 1}}
    assert merge(low, high) == {"t": {"a": 1, "b": 3}, "x": {"y": 1}}
    assert low == {"t": {"a": 1, "b": 2}, "x": 1}
    assert high == {"t": {"b": 3}, "x": {"y": 1}}


def test_switches_that_are_written_in_an_old_way_are_named(tmp_path: Path) -> None:
    text = (
        "experimental_use_unified_exec_tool = false\n[tools]\nweb_search = true\n"
        "[features]\nundo = true\nweb_search = true\nghost_commit = true\n"
        "[profiles.p]\ntools_view_image = false\n[profiles.q]\nexperimental_use_rmcp_client = true\n"
    )
    config = load(tmp_path, text, request=RequestOverrides(profile="p", include_apply_patch_tool=False))
    assert config.notices.old_names == (
        ("experimental_use_unified_exec_tool", "unified_exec"),
        ("include_apply_patch_tool", "apply_patch_freeform"),
        ("tools.view_image", "view_image_tool"),
        ("tools.web_search", "web_search_request"),
        ("web_search", "web_search_request"),
    )
    assert load(tmp_path, "[features]\nghost_commit = false\n").notices.old_names == ()


FILE = {
    "model": "of-file",
    "model_verbosity": "low",
    "sandbox_workspace_write": {"network_access": True, "writable_roots": ["/a"]},
    "projects": {"/a.b": {"trust_level": "trusted"}},
    "profiles": {"fast": {"model": "of-profile", "model_reasoning_effort": "low", "projects": {"/x": {}}}},
}


def test_the_highest_layer_counts_and_is_named() -> None:
    cli = CliOverrides(
        settings=(("model_reasoning_effort", "high"), ("sandbox_workspace_write.network_access", "false")),
        profile="fast",
    )
    found = effective_settings(FILE, cli)
    assert found.settings["model"] == "of-profile"
    assert found.settings["model_reasoning_effort"] == "high"
    assert found.settings["sandbox_workspace_write"] == {"network_access": False, "writable_roots": ["/a"]}
    kinds = {key: layer.kind for key, layer in found.origins.items()}
    assert kinds["model"] is LayerKind.PROFILE
    assert kinds["model_verbosity"] is LayerKind.USER
    assert kinds["model_reasoning_effort"] is LayerKind.COMMAND_LINE
    assert kinds["sandbox_workspace_write.network_access"] is LayerKind.COMMAND_LINE
    assert kinds["sandbox_workspace_write.writable_roots"] is LayerKind.USER
    assert kinds['projects."/a.b".trust_level'] is LayerKind.USER
    assert "/x" not in found.settings["projects"]
    assert [layer.kind for layer in found.layers] == [
        LayerKind.COMMAND_LINE,
        LayerKind.PROFILE,
        LayerKind.USER,
    ]


def test_without_a_file_there_is_the_empty_layer_of_the_user() -> None:
    found = effective_settings({}, CliOverrides())
    assert (found.settings, found.origins) == ({}, {})
    assert [layer.kind for layer in found.layers] == [LayerKind.USER]


def test_a_table_that_a_higher_layer_makes_a_value_has_no_origins_below() -> None:
    found = effective_settings({"history": {"max_bytes": 1}}, CliOverrides(settings=(("history", "1"),)))
    assert list(found.origins) == ["history"]


def test_a_profile_may_come_from_the_command_line_as_a_whole() -> None:
    cli = CliOverrides(settings=(("profiles.mine.model", "m"),), profile="mine")
    assert effective_settings({}, cli).settings["model"] == "m"
    with pytest.raises(ConfigError, match="config profile `none` not found"):
        effective_settings({}, CliOverrides(profile="none"))


def test_a_version_is_of_the_content() -> None:
    one, other = ({"a": 1, "b": {"c": float("nan")}}, {"b": {"c": float("nan")}, "a": 1})
    versions = {settings_version(settings) for settings in (one, other)}
    assert len(versions) == 1
    assert versions.pop().startswith("sha256:")
    assert settings_version({"a": 2}) != settings_version({"a": 1})
