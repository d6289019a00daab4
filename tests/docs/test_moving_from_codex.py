"""The settings, commands and defaults in docs/moving-from-codex.md match this program."""

import re
from pathlib import Path

import pytest

from app_server.cli.command_table import COMMANDS
from app_server.cli.parse_command import all_parsers
from app_server.engine.config.config_values import Config, SettingsSource
from app_server.engine.config.settings_service import load_config
from tests.docs.markdown_blocks import ROOT

PAGE = (ROOT / "docs" / "moving-from-codex.md").read_text(encoding="utf-8")


def loaded(folder: Path, text: str) -> Config:
    (folder / "config.toml").write_text(text, encoding="utf-8")
    return load_config(SettingsSource(home=folder, cwd=folder))


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ('approval_policy = "untrusted"', 'approval_policy = "untrusted"'),
        ('approval_policy = "on-failure"', 'approval_policy = "on-failure"'),
        ("`profile = …`", 'profile = "a"\n[profiles.a]\nmodel = "b"'),
        ("file_opener", 'file_opener = "none"\n[tui]\ntheme = "dark"'),
        (
            'wire_api = "chat"',
            'model_provider = "m"\n[model_providers.m]\nname = "m"\nbase_url = "http://[::1]/v1"\nwire_api = "chat"',
        ),
        (
            "`default_permissions`, `[permissions.NAME]`",
            'default_permissions = "a"\n[permissions.a]\nextends = ":workspace"',
        ),
    ],
)
def test_what_is_said_to_work_does(shown: str, text: str, tmp_path: Path) -> None:
    assert shown in PAGE
    assert [str(each) for each in loaded(tmp_path, text).notices.warnings] == []


@pytest.mark.parametrize("text", ["[agents]", "[anything]"])
def test_what_is_said_to_be_unknown_is_a_warning_and_gives_nothing(text: str, tmp_path: Path) -> None:
    config = loaded(tmp_path, text)
    [warning] = config.notices.warnings
    assert "unknown setting" in str(warning)
    assert config.permissions == loaded(tmp_path, "").permissions


def test_each_command_of_codex_that_has_the_same_words_here_has_them() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.endswith("| the same words | |")]
    assert len(rows) > 2
    known = {*COMMANDS, *(command.name for command in all_parsers())}
    for _, theirs, *_ in rows:
        family = ""
        for words in re.findall(r"`([^`]+)`", theirs):
            name = words.removeprefix("codex ").removeprefix("app-server ")
            family = name.split()[0] if words.startswith("codex ") else family
            assert {name, f"{family} {name}"} & known, words
