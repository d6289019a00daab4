"""exec_command and write_stdin: a command runs on between calls, input needs approval, and the resources of open
terminals.
"""

import os
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from app_server.engine.approvals.consent import EVERYTHING
from app_server.engine.sandbox.exec.pty import PtySession
from app_server.engine.sandbox.exec.streams import CommandRoot, ProcessUsage, usage_of
from app_server.engine.sandbox.launcher import descendants
from app_server.engine.tools.orchestrator import Command, run_command
from app_server.engine.tools.terminals import MOST, Terminal, Terminals, look_at_terminals
from app_server.engine.tools.tool_base import ToolFailure
from app_server_protocol.encoding import Json
from app_server_protocol.engine.items import CommandExecution
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
from tests.engine.tools.conftest import MakeLive, Scene, builtin, run
from tests.support.waiting import until, wait_until

EXEC, WRITE = builtin("exec_command"), builtin("write_stdin")
SHORT: dict[str, Json] = {"login": False, "shell": "/bin/sh"}


async def opened(scene: Scene, cmd: str, until: str) -> int:
    """Open a session and poll it until its output contains the text; return its number."""
    said = await run(EXEC, scene, cmd=cmd, yield_time_ms=250, **SHORT)
    number = int(re.findall(r"session ID (\d+)", said)[0])
    with anyio.fail_after(20):
        while until not in said:
            said = await run(WRITE, scene, session_id=number)
    return number


def ends(scene: Scene) -> list[ExecCommandEndEvent]:
    return [event for event in scene.said if isinstance(event, ExecCommandEndEvent)]


async def test_the_end_of_a_command_is_reported_at_once(live: MakeLive) -> None:
    scene = live()
    said = await run(EXEC, scene, cmd="echo out; echo err >&2; exit 3", yield_time_ms=60_000, **SHORT)
    shape = r"Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess exited with code 3\nOutput:\n"
    assert re.fullmatch(shape + "out\r\nerr\r\n", said)
    assert [end.exit_code for end in ends(scene)] == [3]
    assert scene.kinds()[0] == "exec_command_begin"
    assert len(scene.turn.commands.terminals) == 0


async def test_numbers_are_given_to_what_goes_on(live: MakeLive) -> None:
    scene = live()
    assert await opened(scene, "cat", "") == 0
    await run(EXEC, scene, cmd="true", yield_time_ms=60_000, **SHORT)
    assert await opened(scene, "cat", "") == 1
    await run(WRITE, scene, session_id=0, chars="\x04", yield_time_ms=60_000)
    assert await opened(scene, "cat", "") == 2


async def test_long_output_is_shortened_and_marked(live: MakeLive) -> None:
    said = await run(EXEC, live(), cmd="seq 1 50000", max_output_tokens=50, yield_time_ms=60_000, **SHORT)
    assert "Original token count: " in said
    assert "tokens truncated" in said
    assert said.endswith("50000\r\n")
    assert len(said) < 500


async def test_a_session_is_confined_like_a_command(live: MakeLive) -> None:
    scene = live(sandbox=ReadOnly())
    said = await run(EXEC, scene, cmd="echo > made; echo done", yield_time_ms=60_000, **SHORT)
    assert "done" in said
    assert not (scene.ws / "made").exists()


async def test_what_the_sandbox_stopped_is_offered_and_run_without_it(live: MakeLive) -> None:
    scene = live(AskForApproval.ON_FAILURE, ReadOnly(), [ReviewDecision.APPROVED])
    said = await run(EXEC, scene, cmd="touch made", yield_time_ms=60_000, **SHORT)
    assert "Process exited with code 0" in said
    assert (scene.ws / "made").exists()
    assert len(scene.turn.commands.terminals) == 0


async def test_a_missing_shell_is_reported(live: MakeLive) -> None:
    scene = live()
    with pytest.raises(ToolFailure, match="execution error"):
        await run(EXEC, scene, cmd="true", shell="/no/such/shell")
    assert [end.exit_code for end in ends(scene)] == [-1]
    assert len(scene.turn.commands.terminals) == 0


async def test_a_patch_in_a_line_is_applied_as_a_patch(live: MakeLive) -> None:
    scene = live()
    patch = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch"
    await run(
        EXEC, scene, cmd=f"apply_patch <<'EOF'\n{patch}\nEOF\n", **{**SHORT, "shell": "bash", "login": True}
    )
    assert (scene.ws / "made.txt").read_text() == "hello\n"
    assert "patch_apply_begin" in scene.kinds()


NO_TMP = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)


def change(scene: Scene, approval: AskForApproval, sandbox: SandboxPolicy) -> None:
    """Change the settings of the next turn."""
    scene.turn.settings = replace(scene.turn.settings, approval_policy=approval, sandbox_policy=sandbox)


@pytest.mark.parametrize("chars", ["", "echo > made\n"])
async def test_a_session_ends_when_the_policy_gives_less_than_when_it_was_opened(
    live: MakeLive, chars: str
) -> None:
    scene = live()
    number = await opened(scene, "echo up; exec sh", "up")
    change(scene, AskForApproval.UNTRUSTED, ReadOnly())
    for _ in range(2):
        with pytest.raises(ToolFailure, match="gave more rights than this turn's"):
            await run(WRITE, scene, session_id=number, chars=chars)
    assert [(end.call_id, end.exit_code) for end in ends(scene)] == [("c1", 137)]
    assert scene.questions() == []
    assert not (scene.ws / "made").exists()


async def test_it_ends_before_any_command_of_the_stricter_turn_runs(live: MakeLive) -> None:
    scene = live()
    number = await opened(scene, "echo up; exec sh", "up")
    terminal = scene.turn.commands.terminals.find(number)
    assert terminal is not None
    change(scene, AskForApproval.NEVER, ReadOnly())
    await run_command(Command(call_id="c2", argv=("true",), cwd=str(scene.ws)), scene.turn)
    assert terminal.pty.exit_code == 137
    assert len(scene.turn.commands.terminals) == 0


async def test_a_session_goes_on_under_the_same_policy_or_a_wider_one(live: MakeLive) -> None:
    scene = live(sandbox=NO_TMP)
    number = await opened(scene, "echo up; exec sh", "up")
    for sandbox in (NO_TMP, replace(NO_TMP, network_access=True), DangerFullAccess()):
        change(scene, AskForApproval.NEVER, sandbox)
        said = await run(WRITE, scene, session_id=number, chars="echo $((40 + 2))\n")
        with anyio.fail_after(20):
            while "42" not in said:
                said += await run(WRITE, scene, session_id=number)


async def outside_the_sandbox(live: MakeLive, answer: ReviewDecision) -> tuple[Scene, int]:
    """Return a shell that the user let out of the sandbox, with the answer to the next question set."""
    scene = live(AskForApproval.ON_REQUEST, NO_TMP, [ReviewDecision.APPROVED, answer])
    said = await run(EXEC, scene, cmd="exec sh", yield_time_ms=250, with_escalated_permissions=True, **SHORT)
    return scene, int(re.findall(r"session ID (\d+)", said)[0])


async def test_typing_into_what_runs_without_the_sandbox_is_asked_about(live: MakeLive) -> None:
    scene, number = await outside_the_sandbox(live, ReviewDecision.APPROVED)
    line = f"echo > {scene.root}/outside/made; exit\n"
    await run(WRITE, scene, "c2", session_id=number, chars=line, yield_time_ms=60_000)
    assert (scene.root / "outside/made").exists()
    question = scene.questions()[1]
    assert isinstance(question, CommandApprovalQuestion)
    assert (question.call_id, question.command, question.cwd) == ("c1", (line,), str(scene.ws))
    assert question.reason == f"to be typed into session {number} (exec sh), which runs without the sandbox"


async def test_what_the_user_denies_is_not_typed(live: MakeLive) -> None:
    scene, number = await outside_the_sandbox(live, ReviewDecision.DENIED)
    with pytest.raises(ToolFailure, match="input rejected by user"):
        await run(WRITE, scene, "c2", session_id=number, chars="echo denied\n")
    # The next input finds no part of the denied one in the line.
    scene.answers = [ReviewDecision.APPROVED]
    said = await run(WRITE, scene, "c3", session_id=number, chars="exit\n", yield_time_ms=60_000)
    assert "denied" not in said


async def test_nobody_is_asked_about_what_a_command_that_has_ended_would_not_read(live: MakeLive) -> None:
    scene, number = await outside_the_sandbox(live, ReviewDecision.DENIED)
    terminal = scene.turn.commands.terminals.find(number)
    assert terminal is not None
    await terminal.pty.write(b"exit 3\n")
    await until(lambda: terminal.end_emitted)
    said = await run(WRITE, scene, "c2", session_id=number, chars="echo late\n")
    assert "Process exited with code 3" in said


async def test_what_was_typed_with_a_yes_for_the_session_may_be_typed_there_again(live: MakeLive) -> None:
    answers = [ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION, ReviewDecision.DENIED]
    scene = live(AskForApproval.UNTRUSTED, NO_TMP, answers)
    number = await opened(scene, "echo up; exec cat", "up")
    for _ in range(2):
        await run(WRITE, scene, session_id=number, chars="y\n")
    assert len(scene.questions()) == 2
    with pytest.raises(ToolFailure, match="rejected"):
        await run(WRITE, scene, session_id=number, chars="n\n")


async def test_under_never_nothing_is_typed_into_what_the_user_let_out_of_the_sandbox(live: MakeLive) -> None:
    scene, number = await outside_the_sandbox(live, ReviewDecision.APPROVED)
    change(scene, AskForApproval.NEVER, NO_TMP)
    with pytest.raises(ToolFailure, match="nothing was typed"):
        await run(WRITE, scene, session_id=number, chars="echo > made\n")
    assert f"session ID {number}" in await run(WRITE, scene, session_id=number), "it may be read"


async def test_too_many_sessions_cost_the_one_used_longest_ago(live: MakeLive) -> None:
    """An ended session is removed before any other."""

    class Ended(PtySession):
        code: int | None

        @property
        def exit_code(self) -> int | None:
            return self.code

        async def close(self) -> None:
            closed.append(self)

    closed: list[PtySession] = []
    terminals = Terminals()

    scene = live()

    async def keep(call_id: str, pty: PtySession) -> None:
        await terminals.make_room()
        item = CommandExecution(id=call_id, command=("cat",), cwd="/", parsed=())
        terminals.add(
            item,
            scene.turn.items,
            pty,
            seconds=lambda: 0.0,
            rights=EVERYTHING,
            policy=EVERYTHING,
        )

    made = []
    for n in range(MOST + 1):
        pty = Ended.__new__(Ended)
        pty.code = 0 if n == 5 else None
        made.append(pty)
        await keep(f"c{n}", pty)
    assert closed == [made[5]]
    terminals.find(0)
    await keep("more", made[6])
    assert closed == [made[5], made[1]]


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


def terminal(root: CommandRoot | None) -> Terminal:
    process = SimpleNamespace(root=root)
    return cast("Terminal", SimpleNamespace(pty=SimpleNamespace(process=process), last_usage=None))


def test_shares_are_of_the_time_since_the_look_before(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(
        [
            ProcessUsage(7, 1.0, 100, 4.0),
            ProcessUsage(7, 1.1, 120, 4.1),  # too soon after the first reading to count alone
            ProcessUsage(7, 2.0, 90, 6.0),
            ProcessUsage(7, 1.5, 90, 8.0),  # an ended process that was not waited for
            None,
        ]
    )
    monkeypatch.setattr("app_server.engine.sandbox.exec.streams.usage_of", lambda root, table: next(looks))
    one = terminal(CommandRoot(7, is_supervisor=False))
    told = [look_at_terminals([one])[0] for _ in range(5)]
    assert [each and (each.cpu_percent, each.rss_kb) for each in told] == [
        (25.0, 100),
        (26.8, 120),
        (50.0, 90),
        (0.0, 90),
        None,
    ]


def test_nothing_is_known_of_what_has_not_started() -> None:
    assert look_at_terminals([terminal(None)]) == [None]
    assert look_at_terminals([]) == []


@needs_proc
def test_a_tree_is_counted_as_one() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo up; wait"], stdout=subprocess.PIPE) as shell:
        try:
            assert shell.stdout is not None
            shell.stdout.readline()
            [child] = descendants.below(shell.pid, descendants.listed())
            # The kernel accounts the memory of a new process late.
            wait_until(
                lambda: (
                    (usage := usage_of(CommandRoot(child, is_supervisor=False), descendants.listed()))
                    is not None
                    and usage.rss_kb > 0
                )
            )
            inner, table = (
                usage_of(CommandRoot(child, is_supervisor=False), descendants.listed()),
                descendants.listed(),
            )
            assert inner is not None
            whole = usage_of(CommandRoot(shell.pid, is_supervisor=False), table)
            as_supervisor = usage_of(CommandRoot(shell.pid, is_supervisor=True), table)
            assert whole is not None
            assert as_supervisor is not None
            assert (whole.pid, inner.pid, as_supervisor.pid) == (shell.pid, child, child)
            assert whole.rss_kb > inner.rss_kb > 0
            assert whole.age_seconds >= 0
        finally:
            os.kill(child, 9)
            shell.kill()
    assert usage_of(CommandRoot(shell.pid, is_supervisor=False), descendants.listed()) is None
