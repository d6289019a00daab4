"""Every setting that is documented is read, and does something or is said to do nothing."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from app_server.core.config import types
from app_server.core.config.features import FEATURES, WITHOUT_EFFECT
from app_server.settings_reference import descriptions
from app_server.settings_reference.command import main
from app_server.settings_reference.page import page

ROOT = Path(__file__).resolve().parents[3]
WITHOUT = re.compile(r"^### Without effect$(.*?)^##", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"`(?:\[\[?)?([a-z][a-z0-9_]+)(?:\.[^`]*)?\]?`")

DOCUMENT = (ROOT / "docs/configuration.md").read_text()
CLASSES = (
    types.Config,
    types.ModelSettings,
    types.PermissionSettings,
    types.InstructionSettings,
    types.LoginSettings,
    types.SettingsNotices,
    types.ProviderConfig,
    types.McpStdioTransport,
    types.McpHttpTransport,
    types.McpServerConfig,
    types.ShellEnvironmentPolicy,
    types.HistoryConfig,
    types.OtelConfig,
)


def section(pattern: re.Pattern[str]) -> str:
    found = pattern.search(DOCUMENT)
    assert found is not None
    return found[1]


def modules() -> Iterator[Path]:
    return (path for path in (ROOT / "app_server").rglob("*.py") if path.parent.name != "config")


def test_the_reference_is_what_the_code_reads() -> None:
    """`python -m app_server.settings_reference` writes it."""
    assert main(["--check", "--root", str(ROOT)]) == 0


def test_the_reference_has_kinds_and_defaults_of_the_code() -> None:
    text = page()
    for row in (
        "| `model` | string | `gpt-5-codex` |",
        "| `approval_policy` | `untrusted` `on-failure` `on-request` `never` | `on-request` |",
        "| `mcp_servers.NAME.startup_timeout_sec` | seconds, above 0 | `10` |",
        "| `model_providers.NAME.stream_idle_timeout_ms` | integer, at least 1 | `300000` |",
        "| `features.view_image_tool` | `true` |",
    ):
        assert row in text


def test_a_setting_without_a_description_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "WITHOUT_EFFECT", descriptions.WITHOUT_EFFECT - {"chatgpt_base_url"})
    with pytest.raises(KeyError, match="chatgpt_base_url"):
        page()


def test_every_setting_is_used_by_somebody() -> None:
    used = {
        node.attr
        for path in [
            *modules(),
            *(ROOT / "app_server/core/config" / name for name in ("types.py", "fence.py")),
        ]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert {
        f"{each.__name__}.{one}" for each in CLASSES for one in get_type_hints(each) if one not in used
    } == set()


def test_every_feature_has_an_effect_or_is_documented_as_without() -> None:
    words = {
        node.value
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {name for name in FEATURES if name not in words} == WITHOUT_EFFECT


def test_settings_without_effect_are_documented_by_name() -> None:
    said = set(WORD.findall(section(WITHOUT)))
    assert said >= WITHOUT_EFFECT | {key.rpartition(".")[2] for key in descriptions.WITHOUT_EFFECT}
