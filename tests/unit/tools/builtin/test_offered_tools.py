"""Which tools a model is offered, in which order, and which it may call all the same."""

from pathlib import Path

import pytest

from app_server.core.config.load import load_config
from app_server.core.config.types import CliOverrides, Config, RequestOverrides
from app_server.core.model.families import find_family
from app_server.core.tools.registry import BUILTIN_NAMES, build_tools
from protocol.structs import replace

RESOURCES = ["list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"]
ALWAYS = [*RESOURCES, "update_plan"]
"""Offered to every model, in this order, between the shell and the rest."""
FILES = ["grep_files", "read_file", "list_dir"]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(tmp_path, cwd=tmp_path, cli=CliOverrides(), request=RequestOverrides(), env={})


def offered(config: Config, model: str = "some-model", *features: str) -> list[str]:
    switched = replace(config, features=config.features.switched(on=features))
    return [tool.name for tool in build_tools(switched, find_family(model), None).offered]


@pytest.mark.parametrize(
    ("model", "tools"),
    [
        ("some-model", ["shell", *ALWAYS, "view_image"]),
        ("gpt-5", ["shell", *ALWAYS, "view_image"]),
        ("gpt-5.1-codex", ["shell", *ALWAYS, "apply_patch", "view_image"]),
        ("gpt-oss:20b", ["shell", *ALWAYS, "apply_patch", "view_image"]),
        ("codex-mini-latest", ["local_shell", *ALWAYS, "view_image"]),
        ("codex-exp-1", ["shell", *ALWAYS, "apply_patch", *FILES, "view_image"]),
        ("test-gpt-5-codex", ["shell", *ALWAYS, *FILES, "view_image"]),
    ],
)
def test_a_family_has_its_tools_in_order(config: Config, model: str, tools: list[str]) -> None:
    assert offered(config, model) == tools


def test_features_add_tools_and_change_the_shell(config: Config) -> None:
    assert offered(config, "some-model", "unified_exec")[:2] == ["exec_command", "write_stdin"]
    assert offered(config, "codex-mini-latest", "shell_command_tool")[0] == "shell_command"
    assert "read_file" in offered(config, "some-model", "read_file")
    assert "grep_files" not in offered(config, "some-model", "read_file")
    assert "apply_patch" in offered(config, "some-model", "apply_patch_freeform")


def test_settings_take_tools_away_and_add_them(config: Config) -> None:
    switched = config.features.switched(on=["web_search_request"], off=["view_image_tool"])
    tools = offered(replace(config, features=switched))
    assert "view_image" not in tools
    assert tools[-1] == "web_search"


def test_every_habitual_name_of_the_shell_is_answered(config: Config) -> None:
    unified = replace(config, features=config.features.switched(on=["unified_exec"]))
    by_name = build_tools(unified, find_family("some-model"), None).by_name()
    assert {"shell", "container.exec", "local_shell", "shell_command", "exec_command"} <= by_name.keys()


def test_what_is_offered_is_known_to_be_ours(config: Config) -> None:
    everything = offered(config, "codex-exp-1", "unified_exec", "web_search_request")
    assert set(everything) <= BUILTIN_NAMES
