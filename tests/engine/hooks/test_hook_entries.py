"""Entries of hook files: one bad entry costs itself, and digests are those of codex."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.hook_settings import HOOK_SETTINGS
from app_server.engine.hooks.hook_definitions import LONGEST_TIMEOUT, OnFailure
from app_server.engine.hooks.hook_entries import MOST_HANDLERS, EntryProblem, HookEntry, read_entries
from app_server_protocol.engine.hook_events import HookEvent, HookHandlerType

SAMPLE = "sha256:327d4d5c8268c5ed60e372c070095b2a02d849e830d70fa1f34916ff1c7cf3bd"
"""Digest that codex 0.171 gives for `/bin/true` with a limit of 5 s, for `Bash`."""


def entries(table: Any) -> list[HookEntry]:
    return [found for found in read_entries(table) if isinstance(found, HookEntry)]


def problems(table: Any) -> list[EntryProblem]:
    return [found for found in read_entries(table) if isinstance(found, EntryProblem)]


def one(handler: dict[str, Any], matcher: str | None = None, event: str = "PreToolUse") -> HookEntry:
    group = {"hooks": [{"type": "command", "command": "guard", **handler}]}
    [found] = entries({event: [group if matcher is None else group | {"matcher": matcher}]})
    return found


def test_arguments_of_their_own_are_refused() -> None:
    """Without them the program would read the input of the hook as its script."""
    table = {"PreToolUse": [{"hooks": [{"type": "command", "command": "bash", "args": ["guard.sh"]}]}]}
    assert entries(table) == []
    [problem] = problems(table)
    assert (problem.is_warning, "`args` is not supported" in problem.message) == (False, True)
    assert one({"args": []}).definition.command == "guard"


@pytest.mark.parametrize("of_group", [False, True])
def test_a_condition_is_told_and_approves_nothing(of_group: bool) -> None:
    condition = {"if": "Bash(git push *)"}
    handler = {"type": "command", "command": "guard"} | ({} if of_group else condition)
    table = {"PreToolUse": [{"hooks": [handler]} | (condition if of_group else {})]}
    [entry] = entries(table)
    assert entry.definition.is_conditional
    assert entry.digest == one({}).digest
    [problem] = problems(table)
    assert problem.is_warning
    assert problem.message.startswith("PreToolUse[0].hooks[0]: `if` is not supported")


@pytest.mark.parametrize(
    ("matcher", "told"),
    [("Bash(git push*)", True), ("Bash(npm:*)", True), ("^(?:Bash|Edit)$", False), ("mcp__(a|b).*", False)],
)
def test_a_matcher_for_calls_instead_of_names_is_told(matcher: str, told: bool) -> None:
    table = {"PreToolUse": [{"matcher": matcher, "hooks": [{"type": "command", "command": "guard"}]}]}
    assert len(entries(table)) == 1
    assert [each.is_warning for each in problems(table)] == [True] * told


@pytest.mark.parametrize(("given", "seconds"), [(0.2, 1), (2.5, 3), (30.0, 30), (1e300, LONGEST_TIMEOUT)])
def test_parts_of_a_second_are_rounded_up(given: float, seconds: int) -> None:
    assert one({"timeout": given}).definition.timeout == seconds


@pytest.mark.parametrize("given", [float("inf"), float("nan"), -1.5, "5", True])
def test_a_limit_that_is_none_costs_the_entry(given: object) -> None:
    table = {"Stop": [{"hooks": [{"type": "command", "command": "x", "timeout": given}]}]}
    assert entries(table) == []
    assert len(problems(table)) == 1


def test_the_word_of_claude_code_for_a_failure_that_does_not_count() -> None:
    assert one({"onFailure": "continue"}).definition.on_failure is OnFailure.ALLOW


def test_the_settings_name_all_events() -> None:
    assert {event.value for event in HookEvent} <= HOOK_SETTINGS.keys()


def test_the_digest_is_that_of_codex() -> None:
    assert one({"command": "/bin/true", "timeout": 5}, "Bash").digest == SAMPLE


@pytest.mark.parametrize(
    ("handler", "matcher", "event", "digest"),
    [
        (
            {"command": "/bin/true", "timeout": 5, "statusMessage": "S"},
            "Bash|apply_patch",
            "PreToolUse",
            "13e1c726",
        ),
        (
            {"command": "/bin/true", "async": True, "additionalContextLimit": 10},
            "*",
            "PreToolUse",
            "bc003fc3",
        ),
        ({"command": "/bin/true"}, "", "PreToolUse", "b54f91db"),
        ({"command": "/bin/false", "timeout": 0}, "foo", "Stop", "7322cbc3"),
        ({"command": "x", "timeout": 100}, None, "SessionEnd", "b1aa6329"),
        ({"command": "a b"}, "auto", "Interrupt", "82e6cb5e"),
        ({"command": "a b"}, "auto", "SessionEnd", "0b9b1161"),
        (
            {"command": "/bin/true", "timeout": 5000, "onFailure": "block", "sandbox": True},
            "Bash|apply_patch",
            "PreToolUse",
            "edf8d9d6",
        ),
    ],
)
def test_more_digests_of_codex(handler: dict[str, Any], matcher: str, event: str, digest: str) -> None:
    assert one(handler, matcher, event).digest.startswith(f"sha256:{digest}")


def test_a_definition_has_the_values_of_its_entry() -> None:
    definition = one({"timeout": 7, "async": True, "onFailure": "block", "sandbox": False}, "Bash").definition
    assert definition.event is HookEvent.PRE_TOOL_USE
    assert (definition.command, definition.timeout, definition.is_async) == ("guard", 7, True)
    assert (definition.on_failure, definition.sandbox) == (OnFailure.BLOCK, False)
    assert definition.pattern.matches("Bash")
    assert not definition.pattern.matches("Edit")


def test_a_limit_beyond_the_longest_is_cut_and_stays_in_the_digest() -> None:
    table = {"PreToolUse": [{"hooks": [{"type": "command", "command": "x", "timeout": 9999}]}]}
    assert entries(table)[0].definition.timeout == LONGEST_TIMEOUT
    assert problems(table) == [EntryProblem("PreToolUse[0].hooks[0]: `timeout` is at most 3600 s", True)]
    assert entries(table)[0].digest != one({"command": "x", "timeout": LONGEST_TIMEOUT}).digest


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (5, "must be an object, not a number"),
        ({"type": "http", "url": "x"}, "`type` must be"),
        ({"type": "command"}, "`command` is missing"),
        ({"type": "command", "command": "  "}, "`command` is missing"),
        ({"type": "command", "command": "x", "timeout": "5"}, "`timeout` must be a whole number, not a text"),
        (
            {"type": "command", "command": "x", "timeout": True},
            "`timeout` must be a whole number, not a boolean",
        ),
        ({"type": "command", "command": "x", "timeout": -1}, "`timeout` must be at least 0"),
        ({"type": "command", "command": "x", "async": 1}, "`async` must be true or false"),
        ({"type": "command", "command": "x", "onFailure": "shout"}, "`onFailure` must be"),
    ],
)
def test_one_bad_entry_costs_itself(bad: Any, part: str) -> None:
    good = {"type": "command", "command": "good"}
    table = {"PreToolUse": [{"hooks": [good, bad, good]}], "Stop": [{"hooks": [good]}]}
    assert [(each.group, each.index) for each in entries(table)] == [(0, 0), (0, 2), (0, 0)]
    [problem] = problems(table)
    assert problem.message.startswith("PreToolUse[0].hooks[1]: ")
    assert part in problem.message


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ([], "`hooks` must be a table"),
        ({"Stop": {}}, "`Stop` must be a list"),
        ({"Stop": [[]]}, "Stop[0] must be an object"),
        ({"Stop": [{"hooks": {}}]}, "Stop[0] must be an object with a list `hooks`"),
        ({"PreToolUse": [{"matcher": "(", "hooks": [{"type": "command", "command": "x"}]}]}, '`matcher` "("'),
        (
            {"PreToolUse": [{"matcher": 5, "hooks": [{"type": "command", "command": "x"}]}]},
            "`matcher` must be a text",
        ),
        ({"Compact": []}, "does not know"),
    ],
)
def test_wrong_groups_are_reported(table: Any, part: str) -> None:
    assert entries(table) == []
    [problem] = problems(table)
    assert part in problem.message


@pytest.mark.parametrize("name", ["mcp_tool", "prompt", "agent"])
def test_types_that_do_not_run_are_listed_with_a_warning(name: str) -> None:
    table = {"Stop": [{"hooks": [{"type": name, "server": "s", "tool": "t"}]}]}
    [entry] = entries(table)
    assert entry.definition.type is not HookHandlerType.COMMAND
    [problem] = problems(table)
    assert problem.is_warning
    assert name in problem.message


def test_the_number_of_hooks_is_bounded_and_the_bound_named() -> None:
    table = {"Stop": [{"hooks": [{"type": "command", "command": "x"}] * (MOST_HANDLERS + 1)}]}
    assert len(entries(table)) == MOST_HANDLERS
    assert str(MOST_HANDLERS) in problems(table)[0].message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*(event.value for event in HookEvent), "hooks", "matcher", "type", "command", "timeout"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_read_without_an_exception(table: Any) -> None:
    for found in read_entries(table):
        assert isinstance(found, HookEntry | EntryProblem)
