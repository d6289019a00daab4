"""The settings in force, and where each comes from."""

import pytest

from app_server.core.config.effective import LayerKind, effective_settings, settings_version
from app_server.core.config.types import CliOverrides
from app_server.core.errors import ConfigError

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
