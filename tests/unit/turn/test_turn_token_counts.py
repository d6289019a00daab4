"""Token counts and settings between turns."""

from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.turn.settings import Settings, SettingsChange
from app_server.core.turn.token_counts import TokenCounts
from protocol.events.turn import TokenUsage
from protocol.policy import AskForApproval, DangerFullAccess, ReadOnly, ReasoningEffort, ReasoningSummary

numbers = st.integers(0, 10_000)
usages = st.builds(
    TokenUsage,
    input_tokens=numbers,
    cached_input_tokens=numbers,
    output_tokens=numbers,
    reasoning_output_tokens=numbers,
    total_tokens=numbers,
)


@given(st.lists(usages, min_size=1))
def test_totals_add_up_and_the_last_is_the_last(parts: list[TokenUsage]) -> None:
    counts = TokenCounts()
    for usage in parts:
        counts.add(usage, 1000)
    assert counts.info is not None
    assert counts.info.last_token_usage == parts[-1]
    assert counts.info.total_token_usage.total_tokens == sum(usage.total_tokens for usage in parts)
    assert counts.in_context == parts[-1].total_tokens


def test_a_full_window_is_what_is_missing_of_it() -> None:
    counts = TokenCounts()
    counts.add(TokenUsage(total_tokens=300), 1000)
    counts.fill(1000)
    assert counts.info is not None
    assert counts.info.last_token_usage.total_tokens == 700
    assert counts.info.total_token_usage.total_tokens == 1000


def test_an_estimate_changes_what_is_in_context_and_not_what_was_paid() -> None:
    counts = TokenCounts()
    counts.add(TokenUsage(total_tokens=300), 1000)
    counts.estimate(50, None)
    assert counts.info is not None
    assert counts.in_context == 50
    assert counts.info.total_token_usage.total_tokens == 300
    assert counts.info.model_context_window == 1000


def test_nothing_is_known_before_the_first_answer() -> None:
    assert TokenCounts().in_context is None


SETTINGS = Settings(
    cwd="/w",
    approval_policy=AskForApproval.NEVER,
    sandbox_policy=ReadOnly(),
    model="m",
    effort=ReasoningEffort.HIGH,
    summary=ReasoningSummary.AUTO,
)

CHANGES: dict[str, Any] = {
    "cwd": "/elsewhere",
    "approval_policy": AskForApproval.UNTRUSTED,
    "sandbox_policy": DangerFullAccess(),
    "model": "n",
    "effort": None,
    "summary": ReasoningSummary.NONE,
}


@given(st.sets(st.sampled_from(sorted(CHANGES))))
def test_a_change_of_settings_touches_what_it_names_and_nothing_else(names: set[str]) -> None:
    changed = SETTINGS.changed(SettingsChange(**{name: CHANGES[name] for name in names}))
    expected = {name: CHANGES[name] if name in names else getattr(SETTINGS, name) for name in CHANGES}
    assert {name: getattr(changed, name) for name in CHANGES} == expected


def test_every_setting_can_be_changed() -> None:
    assert {field.name for field in fields(SettingsChange)} == {field.name for field in fields(Settings)}
