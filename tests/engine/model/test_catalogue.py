"""The catalogue of models: its rows, and the row for a name."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.model_rows import EFFORT_ORDER, ModelRow, PatchToolKind, ShellToolKind
from app_server.engine.model.catalogue import PLAIN, UNKNOWN, Catalogue, bundled, find_model
from app_server_protocol.policy import Verbosity

ROWS = bundled().models


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.slug)
def test_every_row_is_whole(row: ModelRow) -> None:
    assert row.source
    assert set(row.efforts) <= set(EFFORT_ORDER)
    assert row.default_reasoning_level in (None, *row.efforts)
    assert row.ultra in (None, *row.efforts)
    assert row.upgrade is None or row.upgrade.model in {each.slug for each in ROWS}
    assert row.thoughts in ("encrypted", "text", "signed", "none")
    assert row.max_context_window is None or row.max_context_window >= (row.context_window or 0)
    if not row.hidden:
        assert row.display_name
        assert row.description


def test_slugs_are_given_once_and_find_their_own_rows() -> None:
    assert len({row.slug for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert find_model(row.slug) is row
        assert find_model(row.slug.upper()) is row


def test_rules_compile_and_name_rows_that_exist() -> None:
    for rule in bundled().rules:
        re.compile(rule.match or "")
        assert all(rule.begins)
        assert all(each == each.lower() for each in rule.begins)
        assert rule.of is None or find_model(rule.of).slug == rule.of
        msgspec.convert({"slug": "x", **rule.keys}, ModelRow)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("gpt-6.2-sol-2026-11-20", "gpt-6.2-sol"),
        ("openai/gpt-6-luna", "gpt-6-luna"),
        ("gpt-5.1-codex-max", "gpt-5.1-codex-max"),
        ("gpt-5-mini", "gpt-5"),
        ("gpt-5-codex-mini", "gpt-5-codex"),
        ("gpt-5.5-pro", "gpt-5.5"),
        ("gpt-6.9-foo", "gpt-6.2-sol"),
        ("gpt-7-terra", "gpt-6.1-terra"),
        ("gpt-7.1-luna-2027-02-01", "gpt-6-luna"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-oss:20b", "gpt-oss"),
        ("openai/gpt-oss-120b:free", "gpt-oss"),
        ("anthropic/claude-opus-5.5", "claude-opus-5-5"),
        ("us.anthropic.claude-opus-5-5-20261101-v1:0", "claude-opus-5-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("claude-haiku-7", "claude-haiku-5-5"),
        ("claude-next", "claude-opus-5-5"),
        ("codex-exp-1", "codex-exp"),
    ],
)
def test_a_name_finds_the_row_of_its_kind(name: str, slug: str) -> None:
    assert find_model(name).slug == slug


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("gpt-5", 272_000),
        ("gpt-5.1-codex-mini", 272_000),
        ("gpt-6.9-foo", 272_000),
        ("codex-mini-latest", 200_000),
        ("o3", 200_000),
        ("gpt-4.1", 1_047_576),
        ("gpt-3.5-turbo", 16_385),
        ("deepseek-v4-pro", 1_000_000),
        ("qwen/qwen3-coder-30b-a3b-instruct", 262_144),
        ("qwen3-coder:30b", 262_144),
        ("devstral-small-2:24b", 262_144),
        ("google/gemini-3-pro", 1_048_576),
        ("mock-model", None),
        ("", None),
    ],
)
def test_a_name_finds_its_context_window(name: str, window: int | None) -> None:
    assert find_model(name).context_window == window


def test_rows_have_their_own_defaults_and_tools() -> None:
    assert find_model("gpt-5.1").default_reasoning_level == "medium"
    assert find_model("gpt-5.1").verbosity is Verbosity.LOW
    assert find_model("gpt-5").verbosity is None
    assert find_model("gpt-5-codex").patch_tool is PatchToolKind.FREEFORM
    assert find_model("gpt-oss-120b").patch_tool is PatchToolKind.FUNCTION
    assert find_model("codex-mini-latest").shell_tool is ShellToolKind.LOCAL_SHELL
    assert not find_model("gpt-4.1").knows_apply_patch
    assert find_model("gpt-6-sol").sent_effort("ultra") == "max"
    assert find_model("gpt-6.2-sol").sent_effort("ultra") == "xhigh"
    assert find_model("gpt-5.1").sent_effort("ultra") == "high"


def test_an_unknown_model_is_a_whole_agent_but_over_the_conversation_api() -> None:
    assert find_model("anything") is UNKNOWN
    assert UNKNOWN.patch_tool is PatchToolKind.FUNCTION
    assert UNKNOWN.parallel_tool_calls
    assert find_model("anything", plain=True) is PLAIN
    assert PLAIN.patch_tool is None
    assert not PLAIN.parallel_tool_calls


def test_lists_show_the_newest_first_and_nothing_hidden() -> None:
    listed = Catalogue().listed()
    assert listed[0].slug == "gpt-6.2-sol"
    assert not any(row.hidden for row in listed)


@given(st.text(max_size=60))
def test_any_name_finds_something(name: str) -> None:
    assert isinstance(find_model(name), ModelRow)


def test_nulls_of_a_row_are_as_absent_keys() -> None:
    raw = b'{"slug": "x", "upgrade": null, "supported_reasoning_levels": null, "tool_mode": "code_mode_only"}'
    assert msgspec.json.decode(raw, type=ModelRow) == ModelRow(slug="x")


NAMES = [
    line.split()
    for line in (Path(__file__).parent / "model_names.txt").read_text().splitlines()
    if not line.startswith("#")
]


def test_names_as_makers_and_gateways_write_them_find_the_rows_beside_them() -> None:
    """`rule` means that no row has the name, but a rule knows the window."""
    assert len(NAMES) >= 300
    slugs = {row.slug for row in ROWS}
    for name, slug, window in NAMES:
        row = find_model(name)
        kind = "unknown" if row is UNKNOWN else row.slug if row.slug in slugs else "rule"
        found = "-" if row.context_window is None else f"{row.context_window:_}"
        assert (name, kind, found) == (name, slug, window)
