"""What hooks print, and what it means: each event with each output."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.hooks.hook_output import (
    NO_REASON,
    NOTHING,
    HookFailure,
    HookOutput,
    Verdict,
    read_answer,
    read_output,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookEvent, HookRole

EVENTS = tuple(HookEvent)
TOOL, ASKED = HookEvent.PRE_TOOL_USE, HookEvent.PERMISSION_REQUEST


def answered(event: HookEvent, value: Json) -> HookOutput:
    found = read_output(event, 0, json.dumps(value), "")
    assert isinstance(found, HookOutput), found
    return found


def failed(event: HookEvent, value: Json) -> str:
    found = read_output(event, 0, json.dumps(value), "")
    assert isinstance(found, HookFailure), found
    return found.what


@pytest.mark.parametrize("event", EVENTS)
def test_nothing_printed_decides_nothing(event: HookEvent) -> None:
    assert read_output(event, 0, " \n", "a note") == NOTHING


@pytest.mark.parametrize("event", EVENTS)
def test_exit_code_2_blocks_where_an_event_can_be_blocked(event: HookEvent) -> None:
    found = read_output(event, 2, "", "no pushes\n")
    if event.has(HookRole.BLOCKS):
        assert found == HookOutput(verdict=Verdict.DENY, reason="no pushes")
        assert read_output(event, 2, "", "") == HookOutput(verdict=Verdict.DENY, reason=NO_REASON)
    else:
        assert isinstance(found, HookFailure)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("code", [1, 3, 126, 127, 137, 255])
def test_other_exit_codes_are_failures(event: HookEvent, code: int) -> None:
    found = read_output(event, code, '{"decision": "approve"}', "broken")
    assert found == HookFailure(f"ended with exit code {code}: broken")


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("before", ["> project@1 guard\n> node guard.js\n\n", "loading\n"])
def test_an_answer_behind_other_text_is_not_passed_over(event: HookEvent, before: str) -> None:
    text = before + json.dumps({"decision": "block", "reason": "no"}, indent=2) + "\n"
    found = read_output(event, 0, text, "")
    expected = HookFailure("printed other text before its JSON")
    assert (found == expected) is event.has(HookRole.BLOCKS)


@pytest.mark.parametrize("text", ['package:\n{"name": "x"}', "{a}\n", "a\n{}", "a\n{b", "a\n[1]"])
def test_other_text_with_braces_is_context(text: str) -> None:
    found = read_output(HookEvent.USER_PROMPT_SUBMIT, 0, f"note: {text}", "")
    assert found == HookOutput(context=f"note: {text}".strip())


def test_a_byte_order_mark_does_not_hide_an_answer() -> None:
    assert read_output(TOOL, 0, '\ufeff{"decision": "block", "reason": "no"}', "") == HookOutput(
        verdict=Verdict.DENY, reason="no"
    )


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("text", ["{", "{'a': 1}", '{"a": 1} {}', "{" * 100_000])
def test_what_begins_like_an_object_and_is_none_is_a_failure(event: HookEvent, text: str) -> None:
    assert read_output(event, 0, text, "") == HookFailure("printed no valid JSON")


@pytest.mark.parametrize("event", EVENTS)
def test_plain_text_is_context_for_a_start_and_a_prompt_alone(event: HookEvent) -> None:
    found = read_output(event, 0, "use tabs\n", "")
    is_context = event in (HookEvent.SESSION_START, HookEvent.USER_PROMPT_SUBMIT, HookEvent.SUBAGENT_START)
    assert found == (HookOutput(context="use tabs") if is_context else NOTHING)


@pytest.mark.parametrize("event", EVENTS)
def test_decision_block(event: HookEvent) -> None:
    found = answered(event, {"decision": "block", "reason": "why"})
    assert found.verdict is (Verdict.DENY if event.has(HookRole.BLOCKS) else Verdict.NONE)
    assert bool(found.warnings) is not event.has(HookRole.BLOCKS)


@pytest.mark.parametrize("event", EVENTS)
def test_unknown_decision_is_a_failure(event: HookEvent) -> None:
    assert "`maybe`" in failed(event, {"decision": "maybe"})


@pytest.mark.parametrize("event", EVENTS)
def test_continue_false_ends_the_turn_where_there_is_one(event: HookEvent) -> None:
    found = answered(event, {"continue": False, "stopReason": "enough"})
    assert found.stops is (event.has(HookRole.ENDS_TURN))
    assert found.stop_reason == "enough"
    assert bool(found.warnings) is not event.has(HookRole.ENDS_TURN)


@pytest.mark.parametrize("event", EVENTS)
def test_context(event: HookEvent) -> None:
    found = answered(event, {"hookSpecificOutput": {"hookEventName": event.value, "additionalContext": "x"}})
    assert found.context == ("x" if event.has(HookRole.ADDS_CONTEXT) else "")
    assert bool(found.warnings) is not event.has(HookRole.ADDS_CONTEXT)


@pytest.mark.parametrize("event", EVENTS)
def test_output_for_another_event_is_a_failure(event: HookEvent) -> None:
    other = "Stop" if event is not HookEvent.STOP else "PreToolUse"
    assert "`" + other + "`" in failed(event, {"hookSpecificOutput": {"hookEventName": other}})


@pytest.mark.parametrize("event", EVENTS)
def test_unknown_fields_are_passed_over_with_a_warning(event: HookEvent) -> None:
    found = answered(event, {"shout": 1, "hookSpecificOutput": {"loud": True}, "systemMessage": "hi"})
    assert len(found.warnings) == 2
    assert found.message == "hi"
    assert found.verdict is Verdict.NONE


@pytest.mark.parametrize(
    ("value", "verdict"), [("allow", Verdict.ALLOW), ("ask", Verdict.ASK), ("deny", Verdict.DENY)]
)
def test_permission_decision_of_a_tool_use(value: str, verdict: Verdict) -> None:
    own = {"permissionDecision": value, "permissionDecisionReason": "since"}
    found = answered(TOOL, {"hookSpecificOutput": own})
    assert (found.verdict, found.reason) == (verdict, "since")
    assert "`permissionDecision`" in "".join(answered(HookEvent.STOP, {"hookSpecificOutput": own}).warnings)


def test_the_stricter_of_two_words_counts() -> None:
    found = answered(TOOL, {"decision": "block", "hookSpecificOutput": {"permissionDecision": "allow"}})
    assert found.verdict is Verdict.DENY
    found = answered(TOOL, {"decision": "approve", "hookSpecificOutput": {"permissionDecision": "ask"}})
    assert found.verdict is Verdict.ASK


@pytest.mark.parametrize(
    "own", [{"permissionDecision": "yes"}, {"updatedInput": "ls"}, {"updatedInput": ["ls"]}]
)
def test_tool_use_answers_that_are_none(own: Json) -> None:
    assert failed(TOOL, {"hookSpecificOutput": own})


def test_updated_input() -> None:
    found = answered(TOOL, {"hookSpecificOutput": {"updatedInput": {"command": "ls"}}})
    assert found.updated_input == {"command": "ls"}
    assert answered(TOOL, {"hookSpecificOutput": {"updatedInput": None}}).updated_input is None


@pytest.mark.parametrize(("value", "verdict"), [("allow", Verdict.ALLOW), ("deny", Verdict.DENY)])
def test_decision_about_a_question(value: str, verdict: Verdict) -> None:
    found = answered(ASKED, {"hookSpecificOutput": {"decision": {"behavior": value, "message": "m"}}})
    assert (found.verdict, found.reason) == (verdict, "m")


@pytest.mark.parametrize(
    "decision",
    [
        {"behavior": "ask"},
        {"message": "x"},
        {"behavior": "allow", "updatedInput": {}},
        "allow",
        {"behavior": 1},
    ],
)
def test_decisions_about_a_question_that_are_none(decision: Json) -> None:
    assert failed(ASKED, {"hookSpecificOutput": {"decision": decision}})


def test_a_denial_may_interrupt() -> None:
    decided = {"behavior": "deny", "interrupt": True}
    assert answered(ASKED, {"hookSpecificOutput": {"decision": decided}}).stops


@pytest.mark.parametrize("value", [[], "x", 1, None, True])
def test_a_callback_that_answers_no_object_has_failed(value: Json) -> None:
    assert read_answer(TOOL, value) == HookFailure("answered no JSON object")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(
        [
            "continue",
            "stopReason",
            "systemMessage",
            "decision",
            "reason",
            "hookSpecificOutput",
            "behavior",
            "permissionDecision",
            "updatedInput",
            "additionalContext",
            "hookEventName",
            "x",
        ]
    ),
    JSON | st.sampled_from(["block", "allow", "deny", "ask", "PreToolUse"]),
    max_size=4,
)


@given(
    st.sampled_from(EVENTS),
    st.integers(0, 255),
    st.text() | FIELDS.flatmap(lambda a: FIELDS.map(lambda b: json.dumps({**a, "hookSpecificOutput": b}))),
    st.text(),
)
def test_every_output_is_an_answer_or_a_failure(
    event: HookEvent, code: int, stdout: str, stderr: str
) -> None:
    found = read_output(event, code, stdout, stderr)
    if code not in (0, 2):
        assert isinstance(found, HookFailure)
    if isinstance(found, HookOutput):
        assert found.verdict is not Verdict.DENY or (event.has(HookRole.BLOCKS) and found.reason)
        assert not found.stops or event.has(HookRole.ENDS_TURN)
