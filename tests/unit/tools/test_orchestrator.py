"""What becomes of a command: who is asked, in which sandbox it runs, what is emitted."""

import errno

import pytest

from app_server.core.errors import LaunchError, SandboxUnavailable
from app_server.core.exec.command import ExecResult
from app_server.core.sandbox.probe import SandboxState
from app_server.core.tools.contract import ToolFailure
from app_server.core.tools.orchestrator import Command, run_command
from protocol.events.commands import ExecApprovalRequestEvent, ExecCommandEndEvent
from protocol.events.notices import WarningEvent
from protocol.policy import AskForApproval, DangerFullAccess, ReadOnly, ReviewDecision
from tests.unit.tools.conftest import DENIED, MakeScene, Scene, ran

YES, SESSION, NO = ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION, ReviewDecision.DENIED
UNTRUSTED, ON_FAILURE = AskForApproval.UNTRUSTED, AskForApproval.ON_FAILURE
ON_REQUEST, NEVER = AskForApproval.ON_REQUEST, AskForApproval.NEVER


def command(scene: Scene, *argv: str, escalated: bool = False, call_id: str = "c1") -> Command:
    return Command(
        call_id=call_id,
        argv=argv or ("make", "all"),
        cwd=str(scene.ws),
        escalated=escalated,
        justification="because" if escalated else None,
    )


def end(scene: Scene) -> ExecCommandEndEvent:
    [found] = [event for event in scene.said if isinstance(event, ExecCommandEndEvent)]
    return found


async def test_the_directory_that_the_model_names_is_no_root(scene: MakeScene) -> None:
    on = scene(NEVER)
    outside = str(on.root / "outside")
    await run_command(Command(call_id="c1", argv=("make",), cwd=outside), on.turn)
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
    await run_command(command(on, *argv), on.turn)
    assert len(on.questions()) == asks
    assert on.runner.confined == [True]


async def test_a_no_runs_nothing_and_the_end_says_so(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, answers=[NO])
    with pytest.raises(ToolFailure, match="exec command rejected by user"):
        await run_command(command(on), on.turn)
    assert on.runner.asked == []
    assert on.kinds()[-1] == "exec_command_end"
    assert end(on).exit_code == -1


@pytest.mark.parametrize("approval", [UNTRUSTED, ON_FAILURE, NEVER])
async def test_who_must_not_ask_for_more_rights_gets_none(scene: MakeScene, approval: AskForApproval) -> None:
    on = scene(approval, answers=[YES])
    with pytest.raises(ToolFailure, match="you should not ask for escalated permissions"):
        await run_command(command(on, escalated=True), on.turn)
    assert (on.runner.asked, on.said) == ([], [])


async def test_more_rights_are_asked_for_with_their_reason(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[YES])
    await run_command(command(on, escalated=True), on.turn)
    [question] = on.questions()
    assert isinstance(question, ExecApprovalRequestEvent)
    assert (question.reason, question.command) == ("because", ("make", "all"))
    assert on.runner.confined == [False]


@pytest.mark.parametrize(
    ("approval", "answers", "confined"),
    [
        (ON_FAILURE, [YES], [True, False]),
        (ON_FAILURE, [NO], [True]),
        (UNTRUSTED, [YES, YES], [True, False]),  # the first yes was for a run in the sandbox
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
        await run_command(command(on), on.turn)
    except ToolFailure:
        assert NO in answers
    assert on.runner.confined == confined
    assert len(on.questions()) == len(answers)


async def test_a_yes_for_the_session_covers_the_same_words_in_the_same_place_only(scene: MakeScene) -> None:
    on = scene(UNTRUSTED, answers=[SESSION, NO, NO, NO])
    await run_command(command(on), on.turn)
    await run_command(command(on, call_id="c2"), on.turn)
    assert len(on.questions()) == 1
    elsewhere = Command(call_id="c4", argv=("make", "all"), cwd=str(on.root))
    for other in (command(on, "make", "all", "x", call_id="c3"), elsewhere):
        with pytest.raises(ToolFailure):
            await run_command(other, on.turn)
    assert len(on.questions()) == 3


async def test_full_access_runs_without_a_sandbox_and_still_asks_before_it_destroys(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, DangerFullAccess(), [NO])
    await run_command(command(on), on.turn)
    assert on.runner.confined == [False]
    with pytest.raises(ToolFailure):
        await run_command(command(on, "rm", "-rf", "build", call_id="c2"), on.turn)
    assert len(on.questions()) == 1


async def test_what_destroys_is_asked_about_in_the_sandbox_and_runs_there(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, answers=[NO, YES])
    with pytest.raises(ToolFailure, match="rejected by user"):
        await run_command(command(on, "rm", "-rf", "build"), on.turn)
    assert on.runner.asked == []
    await run_command(command(on, "rm", "-rf", "build", call_id="c2"), on.turn)
    assert on.runner.confined == [True]


async def test_under_full_access_a_wish_for_more_is_no_question(scene: MakeScene) -> None:
    on = scene(ON_REQUEST, DangerFullAccess(), [NO])
    await run_command(command(on, escalated=True), on.turn)
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
        await run_command(command(on), on.turn)
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
    await run_command(command(on), on.turn)
    await run_command(command(on, call_id="c2"), on.turn)
    [warning] = [event for event in on.said if isinstance(event, WarningEvent)]
    assert "other processes are visible" in warning.message
    assert on.kinds().index("warning") < on.kinds().index("exec_command_end")


async def test_an_unused_or_complete_sandbox_is_not_reported(scene: MakeScene) -> None:
    free = scene(NEVER, DangerFullAccess())
    free.runner.sandbox.scripted = SandboxState("degraded", "no namespaces")
    whole = scene(NEVER)
    for on in (free, whole):
        await run_command(command(on), on.turn)
        assert "warning" not in on.kinds()


async def test_output_that_is_no_text_reaches_both_readers(scene: MakeScene) -> None:
    on = scene(NEVER)
    on.runner.results = [ran(b"\xff\xfe ok")]
    output = await run_command(command(on), on.turn)
    assert end(on).stdout == "\ufffd\ufffd ok"
    assert "ok" in output.payload.content


async def test_the_model_is_informed_of_a_time_out(scene: MakeScene) -> None:
    on = scene(NEVER)
    on.runner.results = [
        ExecResult(exit_code=124, stdout=b"", stderr=b"", aggregated=b"x", duration_s=2.0, timed_out=True)
    ]
    output = await run_command(command(on), on.turn)
    assert "command timed out after 2000 milliseconds" in output.payload.content
