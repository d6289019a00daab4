"""The settings of a stored conversation that is opened again, and of an open one that is joined, by a request and the
last turn.
"""

from pathlib import Path
from typing import Any

import pytest

from app_server.engine.config.config_values import Config, RequestOverrides
from app_server.engine.config.settings_service import UserSettings
from app_server.server.apis.acp.session_options import plan_session
from app_server.server.apis.contexts import resolved_patch
from app_server.server.apis.v2.thread_settings import with_last_settings
from app_server.server.bootstrap.launch import ProcessOptions
from app_server.server.bootstrap.overrides import cli_overrides
from app_server_protocol.engine.thread_settings import ModeSettings, SettingsPatch, ThreadSettings
from app_server_protocol.policy import (
    AskForApproval,
    QuestionKinds,
    ReadOnly,
    StoredPolicy,
    TurnMode,
    WorkspaceWrite,
)
from app_server_protocol.rollout import StoredProfile, TurnContextItem
from app_server_protocol.values import replace

NETWORK = WorkspaceWrite(network_access=True)
LAST = TurnContextItem.of(
    ThreadSettings(
        cwd="/last",
        model="last",
        effort="high",
        service_tier="priority",
        granular=QuestionKinds(rules=False),
        sandbox_policy=NETWORK,
        mode=ModeSettings(TurnMode.PLAN),
    ),
    turn_id=None,
    active_permission_profile=None,
    permission_profile=None,
)


def source(home: Path, text: str = "") -> UserSettings:
    (home / "config.toml").write_text(text)
    return UserSettings(home=home, cwd=home, environment={})


def reopened(home: Path, given: RequestOverrides, last: TurnContextItem = LAST, **how: Any) -> Config:
    return source(home, 'model = "configured"\n').load(with_last_settings(given, last, **how))


def asked(settings: dict[str, Any] | None = None, **patch: Any) -> RequestOverrides:
    return RequestOverrides(patch=SettingsPatch(**patch), settings=settings or {})


def test_a_thread_goes_on_with_the_settings_of_its_last_turn(tmp_path: Path) -> None:
    thread = reopened(tmp_path, asked()).thread
    assert (thread.cwd, thread.model, thread.effort, thread.service_tier) == (
        "/last",
        "last",
        "high",
        "priority",
    )
    assert (thread.approval_policy, thread.granular) == (
        AskForApproval.ON_REQUEST,
        QuestionKinds(rules=False),
    )
    assert (thread.sandbox_policy, thread.mode) == (NETWORK, ModeSettings(TurnMode.PLAN))


@pytest.mark.parametrize(
    "given", [asked(model="named"), asked({"model": "named"}), asked({"model": None}, model="named")]
)
def test_a_model_that_a_request_names_is_asked_without_effort_and_tier_of_the_last_one(
    tmp_path: Path, given: RequestOverrides
) -> None:
    thread = reopened(tmp_path, given).thread
    assert (thread.model, thread.effort, thread.service_tier) == ("named", None, None)


@pytest.mark.parametrize(
    ("given", "granular"),
    [
        (asked(approval_policy=AskForApproval.NEVER), None),
        (asked({"approval_policy": "never"}), None),
        (asked(granular=QuestionKinds(), approval_policy=AskForApproval.NEVER), QuestionKinds()),
    ],
)
def test_an_approval_policy_that_a_request_names_brings_its_kinds_of_questions(
    tmp_path: Path, given: RequestOverrides, granular: QuestionKinds | None
) -> None:
    thread = reopened(tmp_path, given).thread
    assert (thread.approval_policy, thread.granular) == (AskForApproval.NEVER, granular)


@pytest.mark.parametrize(
    ("given", "how"),
    [
        (asked(permission_profile=":read-only"), {}),
        (asked({"sandbox_mode": None}), {}),
        (replace(asked(), sandbox="read-only"), {}),
        (asked(), {"sandbox": False}),
        (asked(), {"rights": False}),
    ],
)
def test_the_sandbox_of_the_last_turn_is_left_where_another_way_is_named(
    tmp_path: Path, given: RequestOverrides, how: dict[str, Any]
) -> None:
    thread = reopened(tmp_path, given, LAST, **how).thread
    assert (thread.sandbox_policy, thread.model) == (ReadOnly(), "last")
    assert thread.granular == (None if how == {"rights": False} else QuestionKinds(rules=False))


def test_a_profile_of_the_last_turn_means_what_the_settings_say(tmp_path: Path) -> None:
    last = replace(LAST, active_permission_profile=StoredProfile(id=":read-only"))
    thread = reopened(tmp_path, asked(), last).thread
    assert (thread.permission_profile, thread.sandbox_policy) == (":read-only", ReadOnly())


def test_who_joins_a_conversation_changes_what_the_request_names(tmp_path: Path) -> None:
    roots = (str(tmp_path), "/more")
    given = replace(asked(model="named", workspace_roots=roots), sandbox="workspace-write")
    config = source(tmp_path, 'model_reasoning_effort = "low"\n').load(given)
    patch = resolved_patch(given, config)
    assert patch == SettingsPatch(
        model="named",
        workspace_roots=roots,
        sandbox_policy=WorkspaceWrite(writable_roots=("/more",)),
        permission_profile=None,
    )
    joined = ThreadSettings(cwd=str(tmp_path), effort="high").patched(patch)
    assert (joined.effort, joined.workspace_roots) == ("high", ("/more",))
    assert joined.sandbox_policy == WorkspaceWrite(writable_roots=("/more",))
    assert resolved_patch(asked(), config) == SettingsPatch()


@pytest.mark.parametrize(
    ("policy", "name"), [(NETWORK, None), (ReadOnly(), ":read-only")], ids=["other", "configured"]
)
def test_acp_restores_rights_and_no_name_of_another_sandbox(
    tmp_path: Path, policy: StoredPolicy, name: str | None
) -> None:
    stored = replace(LAST, sandbox_policy=policy)
    thread = plan_session(source(tmp_path), str(tmp_path), (), stored).config.thread
    assert (thread.sandbox_policy.mode, thread.permission_profile) == (policy.mode, name)
    assert (thread.cwd, thread.model, thread.effort) == (str(tmp_path), "last", "high")
    assert (thread.mode, thread.service_tier) == (ModeSettings(), None)


def test_acp_loads_a_session_whose_file_names_no_model(tmp_path: Path) -> None:
    plan = plan_session(source(tmp_path, 'model = "m"\n'), str(tmp_path), (), replace(LAST, model=""))
    assert (plan.options.model, plan.options.effort) == ("m", None)


@pytest.mark.parametrize("model", ["m", "1.5", 'a"b\\c', "é\u2028", "true", "[x]"])
def test_named_options_of_a_command_line_are_settings_above_those_of_c(tmp_path: Path, model: str) -> None:
    launch = ProcessOptions(
        home=tmp_path,
        cwd=tmp_path,
        environment={},
        settings=(("model", "other"), ("model_reasoning_effort", "low")),
        model=model,
        approval_policy="onRequest",
        sandbox_mode="workspace-write",
    )
    thread = replace(source(tmp_path), cli=cli_overrides(launch)).load().thread
    assert (thread.model, thread.effort) == (model, "low")
    assert (thread.approval_policy, thread.sandbox_policy.mode) == (
        AskForApproval.ON_REQUEST,
        "workspace-write",
    )


def test_an_approval_policy_that_there_is_not_is_refused_with_the_command_line(tmp_path: Path) -> None:
    launch = ProcessOptions(home=tmp_path, cwd=tmp_path, environment={}, approval_policy="sometimes")
    with pytest.raises(ValueError, match="sometimes"):
        cli_overrides(launch)
