"""The declaration of a thread's settings: values, patches, the stored line."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server_protocol.engine.thread_settings import (
    COMPANIONS,
    FIELDS,
    RIGHTS,
    UNCHANGED,
    UNSET,
    ModeSettings,
    PromptMode,
    SettingsPatch,
    SystemPrompt,
    ThreadSettings,
    patch_of,
)
from app_server_protocol.parse import read
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    QuestionKinds,
    ReasoningSummary,
    TurnMode,
    WorkspaceWrite,
)
from app_server_protocol.rollout import TurnContextItem

BEFORE = ThreadSettings(cwd="/w", granular=QuestionKinds(rules=False), permission_profile=":read-only")
OTHER: dict[str, Any] = {
    "cwd": "/other",
    "model": "m",
    "effort": "xhigh",
    "summary": ReasoningSummary.DETAILED,
    "service_tier": "priority",
    "approval_policy": AskForApproval.NEVER,
    "granular": QuestionKinds(mcp_elicitations=False),
    "sandbox_policy": DangerFullAccess(),
    "permission_profile": ":danger-full-access",
    "workspace_roots": (),
    "mode": ModeSettings(TurnMode.PLAN, "plan well"),
    "system_prompt": SystemPrompt(mode=PromptMode.OVERRIDE, text="You are a parrot."),
}
"""Another value than the default of each field."""

NO_RIGHTS = {
    *("cwd", "model", "effort", "summary", "service_tier", "workspace_roots", "mode", "system_prompt")
}
"""Fields that do not say what the agent may do. Rights are not taken over from a stored turn where the user's own
settings have to count, so it has to be known of each field.
"""

NOT_STORED = {
    "summary": "the line has one even if none was chosen",
    "workspace_roots": "they are named by each client, and are among the roots of the stored policy",
}


def test_every_field_has_another_value_here() -> None:
    assert set(OTHER) == set(FIELDS)


def test_it_is_known_of_each_field_whether_it_is_a_right() -> None:
    assert set(FIELDS) == {*RIGHTS} | NO_RIGHTS


def test_a_patch_and_a_value_have_the_fields_of_the_declaration() -> None:
    assert SettingsPatch.__struct_fields__ == ThreadSettings.__struct_fields__ == FIELDS
    assert all(getattr(UNCHANGED, name) is UNSET for name in FIELDS)
    assert BEFORE.patched(UNCHANGED) == BEFORE
    assert BEFORE.patched(BEFORE.part(FIELDS)) == BEFORE


@given(st.sets(st.sampled_from(FIELDS)))
def test_a_patch_changes_what_it_names_and_what_completes_it(names: set[str]) -> None:
    changed = BEFORE.patched(SettingsPatch(**{name: OTHER[name] for name in names}))
    for name in FIELDS:
        owner = COMPANIONS.get(name)
        if owner is None:
            expected = OTHER[name] if name in names else getattr(BEFORE, name)
        elif owner in names:
            expected = OTHER[name] if name in names else None
        else:
            expected = getattr(BEFORE, name)
        assert getattr(changed, name) == expected, name


@given(st.sets(st.sampled_from(FIELDS)), st.sets(st.sampled_from(FIELDS)))
def test_two_patches_as_one_are_one_after_the_other(low: set[str], high: set[str]) -> None:
    """What completes another field is given together with it, as by requests."""
    low |= {owner for name, owner in COMPANIONS.items() if name in low}
    high |= {owner for name, owner in COMPANIONS.items() if name in high}
    lower = SettingsPatch(**{name: OTHER[name] for name in low})
    upper = ThreadSettings(cwd="/high").part(high)
    assert BEFORE.patched(upper.over(lower)) == BEFORE.patched(lower).patched(upper)


def test_a_relative_folder_is_below_the_one_before() -> None:
    assert BEFORE.patched(SettingsPatch(cwd="../x/./y")).cwd == "/x/y"


def test_roots_of_a_workspace_stay_beside_another_policy_and_go_with_other_roots() -> None:
    wide = BEFORE.patched(SettingsPatch(sandbox_policy=WorkspaceWrite(), workspace_roots=("/w", "/a", "/a/")))
    assert (wide.workspace_roots, wide.sandbox_policy) == (("/a",), WorkspaceWrite(writable_roots=("/a",)))
    own = wide.patched(SettingsPatch(sandbox_policy=WorkspaceWrite(writable_roots=("/b",))))
    assert own.sandbox_policy == WorkspaceWrite(writable_roots=("/b", "/a"))
    moved = own.patched(SettingsPatch(workspace_roots=("/w", "/c")))
    assert moved.sandbox_policy == WorkspaceWrite(writable_roots=("/b", "/c"))


class Parameters:
    """Parameters of a request, some of which have the names of settings."""

    cwd = None
    model = "m"
    unknown = 1
    mode = "of another form"


def test_a_patch_has_the_parameters_of_the_same_names() -> None:
    assert patch_of(Parameters(), mode=UNSET) == SettingsPatch(model="m")
    assert patch_of(Parameters(), mode=UNSET, effort=None, model="n") == SettingsPatch(model="n", effort=None)


def stored(settings: ThreadSettings) -> TurnContextItem:
    profile = settings.permission_profile
    active = None if profile is None else {"id": profile}
    line = TurnContextItem.of(settings, turn_id=None, active_permission_profile=None, permission_profile=None)
    return read(TurnContextItem, {**line.to_value(), "active_permission_profile": active})


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in NOT_STORED])
def test_a_turn_is_stored_with_each_setting_and_gives_it_back(name: str) -> None:
    settings = BEFORE.patched(SettingsPatch(**{"model": "m", **OTHER}))
    assert getattr(stored(settings).patch(), name) == OTHER[name]
    alone = ThreadSettings(cwd="/w", model="m")
    assert alone.patched(stored(alone).patch()) == alone


@pytest.mark.parametrize(
    ("line", "effort"),
    [({}, None), ({"effort": "high"}, "high"), ({"further_effort": "x" * 65}, UNSET), ({"model": ""}, UNSET)],
)
def test_lines_of_others_restore_what_a_setting_can_be(line: dict[str, Any], effort: object) -> None:
    known = stored(ThreadSettings(cwd="/w", model="m")).to_value()
    found = read(TurnContextItem, {**known, **line, "cwd": "relative", "service_tier": ""}).patch()
    assert (found.cwd, found.service_tier, found.effort) == (UNSET, UNSET, effort)
