"""exec_command and write_stdin: a command goes on between calls, is asked about like others, ends with its owner."""

from __future__ import annotations

import re

import anyio
import pytest

from app_server.core.exec.pty import PtySession
from app_server.core.tools.builtin.exec_command import ExecCommandTool
from app_server.core.tools.builtin.write_stdin import WriteStdinTool
from app_server.core.tools.contract import ToolFailure
from app_server.core.tools.terminals import MOST, Terminals
from protocol.base import Json
from protocol.events.commands import ExecCommandBeginEvent, ExecCommandEndEvent
from protocol.policy import AskForApproval, ReadOnly, ReviewDecision
from tests.unit.tools.builtin.conftest import MakeLive, run
from tests.unit.tools.conftest import Scene

pytestmark = pytest.mark.anyio

EXEC, WRITE = ExecCommandTool(), WriteStdinTool()
SHORT: dict[str, Json] = {"login": False, "shell": "/bin/sh"}


async def opened(scene: Scene, cmd: str, until: str) -> int:
    """Opens a session and looks until it has said that."""
    said = await run(EXEC, scene, cmd=cmd, yield_time_ms=250, **SHORT)
    number = int(re.findall(r"session ID (\d+)", said)[0])
    with anyio.fail_after(20):
        while until not in said:
            said = await run(WRITE, scene, session_id=number)
    return number


def ends(scene: Scene) -> list[ExecCommandEndEvent]:
    return [event for event in scene.said if isinstance(event, ExecCommandEndEvent)]


async def test_a_command_that_ends_is_told_at_once(live: MakeLive) -> None:
    scene = live()
    said = await run(EXEC, scene, cmd="echo out; echo err >&2; exit 3", yield_time_ms=60_000, **SHORT)
    shape = r"Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess exited with code 3\nOutput:\n"
    assert re.fullmatch(shape + "out\r\nerr\r\n", said)
    assert [end.exit_code for end in ends(scene)] == [3]
    assert scene.kinds()[0] == "exec_command_begin"
    assert len(scene.turn.terminals) == 0


async def test_a_session_is_typed_into_until_it_ends(live: MakeLive) -> None:
    scene = live()
    number = await opened(scene, "echo ready; while read line; do echo got:$line; done; exit 7", "ready")
    assert not ends(scene)
    assert "got:hello" in await run(WRITE, scene, session_id=number, chars="hello\n", yield_time_ms=500)
    said = await run(WRITE, scene, session_id=number, chars="\x04", yield_time_ms=60_000)
    assert "Process exited with code 7" in said
    [end] = ends(scene)
    assert end.call_id == "c1"
    assert "ready" in end.aggregated_output
    assert "got:hello" in end.aggregated_output
    with pytest.raises(ToolFailure, match=f"no session {number}"):
        await run(WRITE, scene, session_id=number, chars="more\n")


async def test_numbers_are_given_to_what_goes_on(live: MakeLive) -> None:
    scene = live()
    assert await opened(scene, "cat", "") == 0
    await run(EXEC, scene, cmd="true", yield_time_ms=60_000, **SHORT)
    assert await opened(scene, "cat", "") == 1
    await run(WRITE, scene, session_id=0, chars="\x04", yield_time_ms=60_000)
    assert await opened(scene, "cat", "") == 2


async def test_much_output_is_cut_and_said_to_be(live: MakeLive) -> None:
    said = await run(EXEC, live(), cmd="seq 1 50000", max_output_tokens=50, yield_time_ms=60_000, **SHORT)
    assert "Original token count: " in said
    assert "tokens truncated" in said
    assert said.endswith("50000\r\n")
    assert len(said) < 500


async def test_what_the_user_denies_is_not_run(live: MakeLive) -> None:
    scene = live(AskForApproval.UNTRUSTED, answers=[ReviewDecision.DENIED])
    with pytest.raises(ToolFailure, match="rejected by user"):
        await run(EXEC, scene, cmd="echo > made", **SHORT)
    assert not (scene.ws / "made").exists()
    [question] = scene.questions()
    [begin] = [event for event in scene.said if isinstance(event, ExecCommandBeginEvent)]
    assert question.command == ("/bin/sh", "-c", "echo > made")  # type: ignore[union-attr]
    assert begin.command == ("echo > made",)


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
    assert len(scene.turn.terminals) == 0


async def test_a_shell_that_is_not_there_is_told(live: MakeLive) -> None:
    scene = live()
    with pytest.raises(ToolFailure, match="execution error"):
        await run(EXEC, scene, cmd="true", shell="/no/such/shell")
    assert [end.exit_code for end in ends(scene)] == [-1]
    assert len(scene.turn.terminals) == 0


async def test_a_patch_in_a_line_is_applied_as_a_patch(live: MakeLive) -> None:
    scene = live()
    patch = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch"
    await run(
        EXEC, scene, cmd=f"apply_patch <<'EOF'\n{patch}\nEOF\n", **{**SHORT, "shell": "bash", "login": True}
    )
    assert (scene.ws / "made.txt").read_text() == "hello\n"
    assert "patch_apply_begin" in scene.kinds()


async def test_closing_ends_every_session(live: MakeLive) -> None:
    scene = live()
    numbers = [await opened(scene, "trap '' HUP TERM; echo up; sleep 1000", "up") for _ in range(2)]
    ptys = [terminal.pty for number in numbers if (terminal := scene.turn.terminals.find(number))]
    with anyio.CancelScope() as interrupted:
        interrupted.cancel()
        await scene.turn.terminals.close()
    assert [pty.exit_code for pty in ptys] == [137, 137]
    assert len(scene.turn.terminals) == 0


async def test_too_many_sessions_cost_the_one_used_longest_ago(live: MakeLive) -> None:
    """An ended one goes before any other."""

    class Ended(PtySession):
        @property
        def exit_code(self) -> int | None:
            return self.master

        async def close(self) -> None:
            closed.append(self)

    closed: list[PtySession] = []
    terminals = Terminals()
    made = []
    for n in range(MOST + 1):
        pty = Ended.__new__(Ended)
        pty.master = 0 if n == 5 else None  # type: ignore[assignment]  # stands for its exit code
        made.append(pty)
        await terminals.keep(f"c{n}", pty, began=0, confined=False)
    assert closed == [made[5]]
    terminals.find(0)
    await terminals.keep("more", made[6], began=0, confined=False)
    assert closed == [made[5], made[1]]
