"""A yes over several turns: nothing ever runs with more rights than the last yes or the policy gave."""

import os
from pathlib import Path

import pytest

from app_server.core.tools.contract import ToolFailure
from app_server.core.tools.orchestrator import ESCALATION_REASON, RETRY_REASON, Command, run_command
from protocol.events.commands import ExecApprovalRequestEvent
from protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    ReviewDecision,
    SandboxPolicy,
    WorkspaceWrite,
)
from protocol.structs import replace
from tests.unit.tools.conftest import DENIED, MakeScene, Scene, program_in

YES, SESSION, NO = ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION, ReviewDecision.DENIED
UNTRUSTED, ON_FAILURE = AskForApproval.UNTRUSTED, AskForApproval.ON_FAILURE
ON_REQUEST, NEVER = AskForApproval.ON_REQUEST, AskForApproval.NEVER

WORKSPACE = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
"""Each gives more than the one before."""


async def say(
    on: Scene, *argv: str, call_id: str = "c1", escalated: bool = False, cwd: str | None = None
) -> None:
    await run_command(
        Command(call_id=call_id, argv=argv or ("make", "all"), cwd=cwd or str(on.ws), escalated=escalated),
        on.turn,
    )


async def test_what_was_approved_for_the_session_runs_in_the_sandbox_each_time(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, answers=[SESSION])
    for call_id in ("c1", "c2", "c3"):
        await say(on, call_id=call_id)
    assert on.runner.confined == [True, True, True]
    assert len(on.questions()) == 1


async def test_a_retry_that_was_approved_for_the_session_is_not_asked_about_again(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, answers=[SESSION, SESSION])
    for call_id in ("c1", "c2"):
        on.runner.results = [DENIED]
        await say(on, call_id=call_id)
    assert on.runner.confined == [True, False, True, False], "the sandbox comes first, as at first"
    first, second = on.questions()
    assert isinstance(first, ExecApprovalRequestEvent)
    assert isinstance(second, ExecApprovalRequestEvent)
    assert (first.reason, second.reason) == (None, RETRY_REASON)


async def test_a_yes_to_the_first_run_is_none_to_one_without_the_sandbox(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, answers=[SESSION, NO, NO])
    for call_id in ("c1", "c2"):
        on.runner.results = [DENIED]
        with pytest.raises(ToolFailure):
            await say(on, call_id=call_id)
    assert on.runner.confined == [True, True]


async def test_an_escalation_that_was_approved_for_the_session_covers_no_other_kind_of_run(
    scene: MakeScene,
) -> None:
    on = scene(ON_REQUEST, answers=[SESSION, NO, NO])
    await say(on, escalated=True)
    await say(on, call_id="c2", escalated=True)
    assert on.runner.confined == [False, False]
    assert len(on.questions()) == 1
    on.turn.settings = replace(on.turn.settings, approval_policy=UNTRUSTED)
    with pytest.raises(ToolFailure):
        await say(on, call_id="c3")
    assert len(on.questions()) == 2


async def test_an_escalation_without_a_reason_says_what_it_is(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[NO])
    with pytest.raises(ToolFailure):
        await say(on, escalated=True)
    [question] = on.questions()
    assert isinstance(question, ExecApprovalRequestEvent)
    assert question.reason == ESCALATION_REASON


@pytest.mark.parametrize(
    ("then", "asks"), [(ReadOnly(), True), (WORKSPACE, True), (DangerFullAccess(), False)]
)
async def test_a_stricter_policy_ends_what_was_approved_for_the_session(
    scene: MakeScene, then: SandboxPolicy, asks: bool
) -> None:
    on = scene(UNTRUSTED, DangerFullAccess(), [SESSION, YES])
    await say(on)
    on.turn.settings = replace(on.turn.settings, sandbox_policy=then)
    await say(on, call_id="c2")
    assert len(on.questions()) == 1 + asks
    assert on.runner.confined == [False, asks]


async def test_a_link_that_has_moved_hides_no_root_from_what_a_yes_is_compared_with(
    scene: MakeScene,
) -> None:
    """The conversation was given where the link led first, and the command would be, too."""
    on = scene(UNTRUSTED, WORKSPACE, [SESSION, NO])
    (on.root / "data").mkdir()
    (on.root / "ln").symlink_to("data")
    await say(on)
    wider = replace(WORKSPACE, writable_roots=(str(on.root / "ln"),))
    on.turn.settings = replace(on.turn.settings, sandbox_policy=wider)
    on.turn.commands.roots.learn(wider, str(on.ws))
    (on.root / "ln").unlink()
    (on.root / "ln").symlink_to("ws")
    with pytest.raises(ToolFailure):
        await say(on, call_id="c2")
    assert len(on.questions()) == 2


async def test_under_never_nothing_remembered_counts(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, DangerFullAccess(), [SESSION])
    await say(on)
    on.turn.settings = replace(on.turn.settings, approval_policy=NEVER, sandbox_policy=ReadOnly())
    on.runner.results = [DENIED]
    await say(on, call_id="c2")
    assert on.runner.confined == [False, True]


async def test_a_folder_by_a_link_is_shown_by_where_it_leads_and_runs_there(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[YES])
    (on.ws / "sub").symlink_to(on.root / "outside")
    await say(on, escalated=True, cwd=str(on.ws / "sub"))
    [question] = on.questions()
    assert isinstance(question, ExecApprovalRequestEvent)
    assert question.cwd == str(on.ws / "sub")
    assert question.reason == f"{on.ws}/sub leads to {on.root}/outside; {ESCALATION_REASON}"
    [spec] = on.runner.asked
    assert (spec.cwd, spec.exact_cwd) == (str(on.root / "outside"), True)


async def test_a_folder_that_becomes_a_link_while_it_is_asked_about_runs_nothing(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[YES])
    sub = on.ws / "sub"
    sub.mkdir()

    def swap() -> None:
        sub.rmdir()
        sub.symlink_to(on.root / "outside")

    on.while_asked = swap
    with pytest.raises(ToolFailure, match="has become a link"):
        await say(on, escalated=True, cwd=str(sub))
    assert on.runner.asked == []


async def test_a_yes_for_the_session_is_for_the_folder_and_not_for_its_name(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[SESSION, NO])
    sub = on.ws / "sub"
    sub.mkdir()
    await say(on, escalated=True, cwd=str(sub))
    sub.rmdir()
    sub.symlink_to(on.root / "outside")
    with pytest.raises(ToolFailure):
        await say(on, call_id="c2", escalated=True, cwd=str(sub))
    assert len(on.questions()) == 2


@pytest.mark.parametrize("folder", ["ws/bin", "earlier"])
async def test_a_program_that_commands_can_have_written_is_asked_about(scene: MakeScene, folder: str) -> None:
    """Also one that they could write in an earlier turn."""
    on = scene(NEVER, replace(WORKSPACE, writable_roots=(str(on_root(scene) / "earlier"),)))
    program_in(on.root / folder, "ls")
    on.turn.commands.caller.environment = {"PATH": f"{on.root / folder}:{os.defpath}"}
    await say(on)
    on.turn.settings = replace(on.turn.settings, approval_policy=UNTRUSTED, sandbox_policy=ReadOnly())
    on.answers = [NO]
    with pytest.raises(ToolFailure):
        await say(on, "ls", call_id="c2")
    on.turn.commands.caller.environment = {"PATH": f"/usr/bin:{on.root / folder}"}
    await say(on, "ls", call_id="c3")
    assert len(on.questions()) == 1


def on_root(scene: MakeScene) -> Path:
    return scene().root
