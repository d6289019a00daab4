"""The decision of several hooks: each failure with each setting, and that no hook makes run what was refused."""

from __future__ import annotations

from itertools import product
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.hooks.decision import NO_DECISION, HookResult, decide, run_status
from app_server.engine.hooks.hook_definitions import (
    HookDefinition,
    HookHandler,
    HookSettings,
    LoadedHooks,
    MayApprove,
    OnFailure,
)
from app_server.engine.hooks.hook_output import HookFailure, HookOutput, Verdict
from app_server_protocol.engine.hook_events import (
    HookEntryKind,
    HookEvent,
    HookRole,
    HookRunStatus,
    HookSource,
)
from app_server_protocol.values import replace

EVENTS = tuple(HookEvent)
TOOL = HookEvent.PRE_TOOL_USE
BROKEN = HookFailure("did not end within 5 s (`timeout`)")


def handler(
    event: HookEvent = TOOL,
    *,
    source: HookSource = HookSource.USER,
    on_failure: OnFailure | None = None,
    is_async: bool = False,
) -> HookHandler:
    definition = HookDefinition(event=event, command="/bin/guard", on_failure=on_failure, is_async=is_async)
    return HookHandler(definition=definition, source=source, source_path="/home/hooks.json")


def hooks(on_failure: OnFailure = OnFailure.ASK, may_approve: MayApprove = MayApprove.USER) -> LoadedHooks:
    return LoadedHooks(
        by_event=MappingProxyType({}), settings=HookSettings(on_failure=on_failure, may_approve=may_approve)
    )


OF_FAILURE = {
    OnFailure.ALLOW: Verdict.NONE,
    OnFailure.ASK: Verdict.ASK,
    OnFailure.BLOCK: Verdict.DENY,
}
STRICTER = list(OF_FAILURE)


@pytest.mark.parametrize(("event", "setting", "own"), list(product(EVENTS, OnFailure, (None, *OnFailure))))
def test_a_failure_counts_as_the_stricter_of_setting_and_handler_says(
    event: HookEvent, setting: OnFailure, own: OnFailure | None
) -> None:
    result = HookResult("run", handler(event, on_failure=own), BROKEN)
    decision = decide(event, [result], hooks(setting))
    if event.has(HookRole.GUARDS):
        stricter = max((each for each in (setting, own) if each), key=STRICTER.index)
        assert decision.verdict is OF_FAILURE[stricter]
        assert decision.verdict is Verdict.NONE or "`/bin/guard`" in decision.reason
        assert decision.verdict is Verdict.NONE or "within 5 s" in decision.reason
    else:
        assert decision == NO_DECISION
    assert run_status(event, result)[0] is HookRunStatus.FAILED


FILES = (HookSource.USER, HookSource.PROJECT, HookSource.SESSION)


@pytest.mark.parametrize(("source", "setting"), list(product(FILES, MayApprove)))
def test_allow_counts_only_from_a_hook_that_may_approve(source: HookSource, setting: MayApprove) -> None:
    result = HookResult("run", handler(source=source), HookOutput(verdict=Verdict.ALLOW))
    approves = setting is MayApprove.ALL or (setting is MayApprove.USER and source is HookSource.USER)
    verdict = decide(TOOL, [result], hooks(may_approve=setting)).verdict
    assert verdict is (Verdict.ALLOW if approves else Verdict.NONE)


def test_a_hook_with_a_condition_that_is_not_understood_approves_nothing() -> None:
    """It may have been meant for other calls."""
    plain = handler(source=HookSource.USER)
    conditional = replace(plain, definition=replace(plain.definition, is_conditional=True))
    outputs = {Verdict.ALLOW: Verdict.NONE, Verdict.DENY: Verdict.DENY, Verdict.ASK: Verdict.ASK}
    for verdict, counted in outputs.items():
        result = HookResult("run", conditional, HookOutput(verdict=verdict))
        assert decide(TOOL, [result], hooks(may_approve=MayApprove.ALL)).verdict is counted


@pytest.mark.parametrize(("rights", "setting"), list(product((True, False), MayApprove)))
def test_allow_of_a_client_counts_as_its_own_answer_would(*, rights: bool, setting: MayApprove) -> None:
    result = HookResult("run", handler(source=HookSource.CLIENT), HookOutput(verdict=Verdict.ALLOW))
    given = replace(hooks(may_approve=setting), clients_approve=rights)
    approves = rights and setting is not MayApprove.NONE
    assert decide(TOOL, [result], given).verdict is (Verdict.ALLOW if approves else Verdict.NONE)


def test_a_handler_that_nobody_waits_for_decides_nothing() -> None:
    output = HookOutput(verdict=Verdict.DENY, reason="no", context="x", stops=True, message="m")
    result = HookResult("run", handler(is_async=True), output)
    assert decide(TOOL, [result], hooks()) == NO_DECISION
    assert run_status(TOOL, result)[0] is HookRunStatus.STOPPED


def test_reasons_of_the_verdict_are_joined_in_display_order() -> None:
    outputs = [
        HookOutput(verdict=Verdict.ASK, reason="maybe"),
        HookOutput(verdict=Verdict.DENY, reason="first"),
        HookOutput(verdict=Verdict.DENY, reason="second"),
    ]
    results = [HookResult(f"run {n}", handler(), each) for n, each in enumerate(outputs)]
    decision = decide(TOOL, results, hooks())
    assert decision.reason == "first; second"
    assert [block.run_id for block in decision.blocks] == ["run 1", "run 2"]


def test_the_last_other_input_counts_unless_the_call_is_denied() -> None:
    first, second = (HookOutput(updated_input={"command": each}) for each in ("a", "b"))
    results = [HookResult("1", handler(), first), HookResult("2", handler(), second)]
    rewrite = decide(TOOL, results, hooks()).rewrite
    assert rewrite is not None
    assert rewrite.input == {"command": "b"}
    denied = HookResult("3", handler(), HookOutput(verdict=Verdict.DENY, reason="no"))
    assert decide(TOOL, [*results, denied], hooks()).rewrite is None


def test_entries_of_a_run() -> None:
    output = HookOutput(message="m", warnings=("w",), context="c", verdict=Verdict.DENY, reason="r")
    status, entries = run_status(TOOL, HookResult("1", handler(), output))
    assert status is HookRunStatus.BLOCKED
    kinds = [HookEntryKind.WARNING, HookEntryKind.WARNING, HookEntryKind.CONTEXT, HookEntryKind.FEEDBACK]
    assert [entry.kind for entry in entries] == kinds
    assert [entry.text for entry in entries] == ["m", "w", "c", "r"]


OUTCOMES = st.builds(
    HookOutput,
    verdict=st.sampled_from(Verdict),
    reason=st.text(max_size=3),
    updated_input=st.none() | st.just({"command": "x"}),
    stops=st.booleans(),
) | st.just(BROKEN)
HANDLERS = st.builds(
    handler,
    source=st.sampled_from(HookSource),
    on_failure=st.none() | st.sampled_from(OnFailure),
    is_async=st.booleans(),
)
RESULTS = st.builds(HookResult, st.text(max_size=3), HANDLERS, OUTCOMES)


@given(
    st.lists(RESULTS, max_size=4),
    RESULTS,
    st.integers(0, 4),
    st.sampled_from(OnFailure),
    st.sampled_from(MayApprove),
)
def test_one_more_hook_never_makes_a_decision_looser(
    results: list[HookResult], more: HookResult, at: int, on_failure: OnFailure, may_approve: MayApprove
) -> None:
    loaded = hooks(on_failure, may_approve)
    before = decide(TOOL, results, loaded)
    after = decide(TOOL, [*results[:at], more, *results[at:]], loaded)
    assert after.verdict >= before.verdict
    assert before.stop is None or after.stop is not None
    if not loaded.may_approve(more.handler) and before.verdict is not Verdict.ALLOW:
        assert after.verdict is not Verdict.ALLOW


@given(st.lists(RESULTS, max_size=4), st.sampled_from(OnFailure))
def test_without_the_right_to_approve_nothing_is_allowed(
    results: list[HookResult], on_failure: OnFailure
) -> None:
    decision = decide(TOOL, results, hooks(on_failure, MayApprove.NONE))
    assert decision.verdict is not Verdict.ALLOW
