"""Arguments of tools: what is wrong is told with its place, and the quick look never lets anything wrong through."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app_server.core.tools.arguments import parse_arguments, surely_fits
from app_server.core.tools.builtin import plan, shell
from app_server.core.tools.contract import ToolFailure
from protocol.base import Json

SCHEMAS: list[dict[str, Json]] = [shell.CHECKED, shell.PARAMETERS, plan.PARAMETERS]

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(
    ["command", "workdir", "timeout_ms", "with_escalated_permissions", "plan", "step", "status", "other"]
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
ARGUMENTS = st.dictionaries(KEYS, VALUES, max_size=5) | st.fixed_dictionaries(
    {"command": st.lists(st.text(max_size=3), max_size=3)}, optional={"timeout_ms": LEAVES, "workdir": LEAVES}
)


@pytest.mark.parametrize("schema", SCHEMAS)
@given(value=ARGUMENTS)
def test_what_the_quick_look_accepts_is_valid(schema: dict[str, Json], value: dict[str, Json]) -> None:
    if surely_fits(value, schema):
        assert Draft202012Validator(schema).is_valid(value)


def test_usual_arguments_need_no_more_than_the_quick_look() -> None:
    usual = {
        "command": ["ls"],
        "workdir": None,
        "timeout_ms": 5,
        "with_escalated_permissions": False,
        "more": 1,
    }
    assert surely_fits(usual, shell.CHECKED)
    assert parse_arguments(json.dumps(usual), shell.CHECKED) == usual


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object, got an array"),
        ('{"command": "ls"}', "$.command"),
        ('{"command": ["ls", 5]}', "$.command[1]"),
        ('{"command": ["ls"], "timeout_ms": -1}', "$.timeout_ms"),
        ('{"command": ["ls"], "timeout_ms": true}', "$.timeout_ms"),
        ('{"command": ["ls"], "timeout_ms": NaN}', "not JSON"),
        ("{}", "'command' is a required property"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ToolFailure) as raised:
        parse_arguments(text, shell.CHECKED)
    assert told in str(raised.value)
    assert len(str(raised.value)) < 400
