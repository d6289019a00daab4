"""The course of a command: questions, its sandbox, its events; and the scope of an approval over several turns."""

import errno
import os
from pathlib import Path

import pytest

from app_server.engine.sandbox.exec.command import ExecResult
from app_server.engine.sandbox.plan import SandboxState
from app_server.engine.support.engine_errors import LaunchError, SandboxUnavailable
from app_server.engine.tools.orchestrator import ESCALATION_REASON, RETRY_REASON, Command, run_command
from app_server.engine.tools.tool_base import ToolFailure, ToolOutput
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.engine.questions import CommandApprovalQuestion
from app_server_protocol.events.command_events import ExecCommandEndEvent
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    ReviewDecision,
    SandboxPolicy,
    WorkspaceWrite,
)
from app_server_protocol.values import replace
from tests.engine.tools.conftest import DENIED, MakeScene, Scene, program_in, ran

YES, SESSION, NO = ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION, ReviewDecision.DENIED
UNTRUSTED, ON_FAILURE = AskForApproval.UNTRUSTED, AskForApproval.ON_FAILURE
ON_REQUEST, NEVER = AskForApproval.ON_REQUEST, AskForApproval.NEVER


WORKSPACE = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
"""Workspace policy without writable temporary folders."""


async def say(
    on: Scene,
    *argv: str,
    call_id: str = "c1",
    escalated: bool = False,
    because: str | None = None,
    cwd: str | None = None,
) -> ToolOutput:
    """Run a command as the model calls it."""
    return await run_command(
        Command(
            call_id=call_id,
            argv=argv or ("make", "all"),
            cwd=cwd or str(on.ws),
            escalated=escalated,
            justification=because,
        ),
        on.turn,
    )


def end(scene: Scene) -> ExecCommandEndEvent:
    [found] = [event for event in scene.said if isinstance(event, ExecCommandEndEvent)]
    return found


async def test_the_directory_that_the_model_names_is_no_root(scene: MakeScene) -> None:
    on = scene(NEVER)
    outside = str(on.root / "outside")
    await say(on, "make", cwd=outside)
    plan = on.runner.asked[0].sandbox
    assert plan is not None
    assert plan.writable_roots == (str(on.ws),)
    assert on.runner.asked[0].cwd == outside


@pytest.mark.parametrize(
    ("approval", "argv", "asks"),
    [
        (UNTRUSTED, ("make",), True),
        (UNTRUSTED, ("ls",), False),
        (ON_FAILURE, ("make",), False),
        (ON_REQUEST, ("make",), False),
        (NEVER, ("make",), False),
    ],
)
async def test_the_policy_decides_who_is_asked_first(
    scene: MakeScene, approval: AskForApproval, argv: tuple[str, ...], asks: bool
) -> None:
    on = scene(approval, answers=[YES])
    await say(on, *argv)
    assert len(on.questions()) == asks
    assert on.runner.confined == [True]


async def test_a_no_runs_nothing_and_the_end_says_so(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, answers=[NO])
    with pytest.raises(ToolFailure, match="exec command rejected by user"):
        await say(on)
    assert on.runner.asked == []
    assert on.kinds()[-1] == "exec_command_end"
    assert end(on).exit_code == -1


@pytest.mark.parametrize("approval", [UNTRUSTED, ON_FAILURE, NEVER])
async def test_who_must_not_ask_for_more_rights_gets_none(scene: MakeScene, approval: AskForApproval) -> None:
    on = scene(approval, answers=[YES])
    with pytest.raises(ToolFailure, match="you should not ask for escalated permissions"):
        await say(on, escalated=True, because="because")
    assert (on.runner.asked, on.said) == ([], [])


async def test_more_rights_are_asked_for_with_their_reason(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[YES])
    await say(on, escalated=True, because="because")
    [question] = on.questions()
    assert isinstance(question, CommandApprovalQuestion)
    assert (question.reason, question.command) == ("because", ("make", "all"))
    assert on.runner.confined == [False]


@pytest.mark.parametrize(
    ("approval", "answers", "confined"),
    [
        (ON_FAILURE, [YES], [True, False]),
        (ON_FAILURE, [NO], [True]),
        (UNTRUSTED, [YES, YES], [True, False]),  # the first approval was for a run in the sandbox
        (UNTRUSTED, [YES, NO], [True]),
        (ON_REQUEST, [], [True]),
        (NEVER, [], [True]),
    ],
)
async def test_after_a_denial_only_a_yes_leaves_the_sandbox(
    scene: MakeScene, approval: AskForApproval, answers: list[ReviewDecision], confined: list[bool]
) -> None:
    on = scene(approval, answers=answers)
    on.runner.results = [DENIED]
    try:
        await say(on)
    except ToolFailure:
        assert NO in answers
    assert on.runner.confined == confined
    assert len(on.questions()) == len(answers)


async def test_full_access_runs_without_a_sandbox_and_still_asks_before_it_destroys(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, DangerFullAccess(), [NO])
    await say(on)
    assert on.runner.confined == [False]
    with pytest.raises(ToolFailure):
        await say(on, "rm", "-rf", "build", call_id="c2")
    assert len(on.questions()) == 1


async def test_what_destroys_is_asked_about_in_the_sandbox_and_runs_there(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[NO, YES])
    with pytest.raises(ToolFailure, match="rejected by user"):
        await say(on, "rm", "-rf", "build")
    assert on.runner.asked == []
    await say(on, "rm", "-rf", "build", call_id="c2")
    assert on.runner.confined == [True]


async def test_under_full_access_a_wish_for_more_is_no_question(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, DangerFullAccess(), [NO])
    await say(on, escalated=True, because="because")
    assert (on.questions(), on.runner.confined) == ([], [False])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LaunchError("no such program"), "execution error: no such program"),
        (SandboxUnavailable("it cannot be built"), "it cannot be built"),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "execution error: Too many open files; the machine is short of resources, try again",
        ),
    ],
)
async def test_a_command_that_did_not_run_has_an_end_and_the_model_gets_the_reason(
    scene: MakeScene, error: Exception, told: str
) -> None:
    on = scene(NEVER)
    on.runner.results = [error]
    with pytest.raises(ToolFailure) as raised:
        await say(on)
    assert str(raised.value) == told
    assert end(on).stderr == told


@pytest.mark.parametrize(
    ("argv", "folder"), [((), ""), (("a\0b",), ""), (("a\ud800",), ""), (("a",), "\0"), (("a",), "\ud800")]
)
async def test_what_cannot_be_a_command_is_not_run(
    scene: MakeScene, argv: tuple[str, ...], folder: str
) -> None:
    on = scene(NEVER)
    with pytest.raises(ToolFailure):
        await run_command(Command(call_id="c1", argv=argv, cwd=f"{on.ws}/{folder}"), on.turn)
    assert on.runner.asked == []
    assert end(on).exit_code == -1


async def test_a_weak_sandbox_is_reported_once_before_its_first_command(scene: MakeScene) -> None:
    on = scene(NEVER, ReadOnly())
    on.runner.sandbox.scripted = SandboxState("degraded", "no namespaces", ("other processes are visible",))
    await say(on)
    await say(on, call_id="c2")
    [warning] = [event for event in on.events if isinstance(event, WarningNotice)]
    assert "other processes are visible" in warning.message
    assert on.kinds().index("warning") < on.kinds().index("exec_command_end")


async def test_an_unused_or_complete_sandbox_is_not_reported(scene: MakeScene) -> None:
    free = scene(NEVER, DangerFullAccess())
    free.runner.sandbox.scripted = SandboxState("degraded", "no namespaces")
    whole = scene(NEVER)
    for on in (free, whole):
        await say(on)
        assert "warning" not in on.kinds()


async def test_output_that_is_no_text_reaches_both_readers(scene: MakeScene) -> None:
    on = scene(NEVER)
    on.runner.results = [ran(b"\xff\xfe ok")]
    output = await say(on)
    assert end(on).stdout == "\ufffd\ufffd ok"
    assert "ok" in output.payload.content


async def test_the_model_is_informed_of_a_time_out(scene: MakeScene) -> None:
    on = scene(NEVER)
    on.runner.results = [
        ExecResult(exit_code=124, stdout=b"", stderr=b"", aggregated=b"x", duration_s=2.0, timed_out=True)
    ]
    output = await say(on)
    assert "command timed out after 2000 milliseconds" in output.payload.content


# --- approvals over several turns: nothing ever runs with more rights than the last approval or the policy gave
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
    assert isinstance(first, CommandApprovalQuestion)
    assert isinstance(second, CommandApprovalQuestion)
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
    assert isinstance(question, CommandApprovalQuestion)
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
    """The conversation was given the link's first target, and so would be the command."""
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
    assert isinstance(question, CommandApprovalQuestion)
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
    """This holds also for a program that commands could write in an earlier turn."""
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
