"""Every setting that is documented is read, and does something or is said to do nothing."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import jsonschema
import pytest
import tomli

from app_server.core.config import types
from app_server.core.config.features import FEATURES
from app_server.core.config.table import NO_EFFECT, OF_OTHERS, SETTINGS, SWITCHES
from app_server.settings_reference import main, page, schema

ROOT = Path(__file__).resolve().parents[3]
WITHOUT = re.compile(r"^### Without effect$(.*?)^##", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"`(?:\[\[?)?([a-z][a-z0-9_]+)(?:\.[^`]*)?\]?`")

SWITCH_NOTHING = {name for name, feature in FEATURES.items() if not feature.doc}
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


def test_a_setting_that_does_something_has_a_description() -> None:
    undescribed = {
        name
        for part, settings in SETTINGS.items()
        for name, setting in settings.items()
        if not setting.doc and part.title not in (NO_EFFECT, OF_OTHERS, SWITCHES)
    }
    assert undescribed == set()


EXAMPLE = """
model = "m"
approval_policy = { granular = { sandbox_approval = true, rules = true, mcp_elicitations = false } }
[model_providers.mine]
name = "Mine"
request_max_retries = 3
[mcp_servers.one]
command = "program"
[profiles.work]
sandbox_mode = "read-only"
[otel.exporter.otlp-http]
endpoint = "http://localhost"
"""


@pytest.mark.parametrize(
    ("more", "valid"),
    [
        ("", True),
        ("[tui]\nanything = 1", True),
        ("[model_providers.other]\nbase_url = 'a'", False),
        ("[profiles.other]\nsandbox_mode = 'x'", False),
        ("[history]\nmax_bytes = -1", False),
    ],
)
def test_the_schema_accepts_what_the_server_accepts(more: str, valid: bool) -> None:
    validator = jsonschema.Draft7Validator(schema())
    assert validator.is_valid(tomli.loads(EXAMPLE + more)) is valid


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
    assert {name for name in FEATURES if name not in words} == SWITCH_NOTHING


def test_settings_without_effect_are_documented_by_name() -> None:
    said = set(WORD.findall(section(WITHOUT)))
    without = {name for part, settings in SETTINGS.items() if part.title == NO_EFFECT for name in settings}
    assert said >= SWITCH_NOTHING | without
