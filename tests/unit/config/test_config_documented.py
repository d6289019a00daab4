"""Every setting that is documented is read, and does something or is said to do nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from app_server.core.config import types
from app_server.core.config.features import FEATURES, WITHOUT_EFFECT
from app_server.core.config.layers import Layered
from app_server.core.config.resolve import ResolveInputs, resolve
from app_server.core.config.settings_reader import SettingsReader

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = re.compile(r"^## Settings$(.*?)^## ", re.DOTALL | re.MULTILINE)
WITHOUT = re.compile(r"^### Without effect$(.*?)^##", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"`(?:\[\[?)?([a-z][a-z0-9_]+)(?:\.[^`]*)?\]?`")
EXAMPLE = {
    "model_providers": {"p": {"name": "P"}},
    "mcp_servers": {"local": {"command": "c"}, "remote": {"url": "http://x"}},
    "projects": {"/p": {"trust_level": "trusted"}},
    "otel": {"exporter": {"otlp-http": {"endpoint": "http://x"}}},
}
"""Opens every table that settings may have."""

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


def documented() -> Iterator[str]:
    """Keys in the first column of tables, beside the name of a table of settings, and in examples."""
    text = section(SETTINGS)
    for line in text.splitlines():
        if line.startswith("| `"):
            first, *others = line.strip("| ").split("|")
            yield from WORD.findall(first)
            if first.strip().startswith("`[") and "projects" not in first:
                yield from (word for word in WORD.findall(others[-1]) if word not in ("all", "core", "none"))
        elif line.startswith("    "):
            yield from re.findall(r"^ +([a-z_]+) =", line)
            yield from re.findall(r"\b([a-z_]+) = \[", line)


@pytest.fixture
def read_keys(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The keys that reading a configuration looks at."""
    read: set[str] = set()
    value = SettingsReader._value

    def recorded(table: SettingsReader, key: str) -> object:
        read.add(key)
        return value(table, key)

    monkeypatch.setattr(SettingsReader, "_value", recorded)
    resolve(Layered(EXAMPLE, None), ResolveInputs(Path("/"), Path("/"), {}))
    return read


def modules() -> Iterator[Path]:
    return (path for path in (ROOT / "app_server").rglob("*.py") if path.parent.name != "config")


def test_every_documented_key_is_read(read_keys: set[str]) -> None:
    keys = set(documented())
    assert {"model", "approval_policy", "inherit", "env_key", "startup_timeout_sec"} <= keys
    assert keys <= read_keys


def test_every_setting_is_used_by_somebody() -> None:
    used = {
        node.attr
        for path in [*modules(), ROOT / "app_server/core/config/types.py"]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert {
        f"{each.__name__}.{one.name}" for each in CLASSES for one in fields(each) if one.name not in used
    } == set()


def test_every_feature_has_an_effect_or_is_documented_as_without() -> None:
    words = {
        node.value
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {name for name in FEATURES if name not in words} == WITHOUT_EFFECT
    text = section(SETTINGS)
    assert {name for name in FEATURES if f"`{name}`" not in text} == set()


def test_settings_without_effect_are_documented_by_name(read_keys: set[str]) -> None:
    said = set(WORD.findall(section(WITHOUT)))
    assert said >= WITHOUT_EFFECT
    assert said - WITHOUT_EFFECT - {"shell_environment_policy"} <= read_keys
    assert not (said - {"shell_environment_policy"}) & set(documented())
