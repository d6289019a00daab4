"""`shell`, by all its names, and `shell_command`: what is run, and that a patch in it is applied as one."""

import json
from pathlib import Path

import pytest

from app_server.core.tools.builtin.shell import ShellCommandTool, ShellTool
from app_server.core.tools.contract import ToolFailure
from protocol.base import Json
from protocol.events.commands import ExecCommandBeginEvent
from protocol.policy import ReviewDecision
from tests.unit.tools.builtin.conftest import MakeLive, run
from tests.unit.tools.conftest import MakeScene, Scene

PATCH = "*** Begin Patch\n*** Add File: new\n+x\n*** End Patch"


def begun(scene: Scene) -> ExecCommandBeginEvent:
    return next(event for event in scene.said if isinstance(event, ExecCommandBeginEvent))


async def test_an_argument_vector_is_run_without_a_shell(live: MakeLive) -> None:
    scene = live()
    told = json.loads(
        await run(ShellTool(), scene, command=["printf", "%s", "$HOME"], timeout_ms=None, other=1)
    )
    assert told["output"] == "$HOME"


async def test_a_line_is_run_by_the_users_shell(live: MakeLive) -> None:
    scene = live()
    (scene.ws / "sub").mkdir()
    told = json.loads(await run(ShellCommandTool(), scene, command="echo $((1 + 1)); pwd", workdir="sub"))
    assert told["output"].splitlines() == ["2", str(scene.ws / "sub")]
    assert begun(scene).command == ("/bin/sh", "-lc", "echo $((1 + 1)); pwd")


async def test_a_line_keeps_its_time_limit(live: MakeLive) -> None:
    told = json.loads(await run(ShellCommandTool(), live(), command="sleep 30", timeout_ms=50))
    assert told["metadata"]["exit_code"] == 124


async def test_a_line_can_ask_to_leave_the_sandbox(scene: MakeScene) -> None:
    asked = scene(answers=[ReviewDecision.APPROVED])
    await run(ShellCommandTool(), asked, command="true", with_escalated_permissions=True, justification="why")
    (question,) = asked.questions()
    assert question.reason == "why"
    assert asked.runner.confined == [False]


@pytest.mark.parametrize("script", [f"apply_patch <<'EOF'\n{PATCH}\nEOF", f"apply_patch '{PATCH}'"])
async def test_a_patch_in_a_line_is_applied_as_a_patch(live: MakeLive, script: str) -> None:
    scene = live()
    scene.turn.commands.shell_path = "/bin/bash"
    told = json.loads(await run(ShellCommandTool(), scene, command=script))
    assert told["output"] == "Success. Updated the following files:\nA new\n"
    assert Path(scene.ws, "new").read_text() == "x\n"
    assert scene.kinds() == ["patch_apply_begin", "exec_command_output_delta", "patch_apply_end"]


@pytest.mark.parametrize(
    ("tool", "arguments"), [(ShellTool(), {"command": "ls"}), (ShellCommandTool(), {"command": ["ls"]})]
)
async def test_one_form_is_not_taken_for_the_other(
    scene: MakeScene, tool: ShellTool | ShellCommandTool, arguments: dict[str, Json]
) -> None:
    with pytest.raises(ToolFailure, match=r"\$\.command: "):
        await run(tool, scene(), **arguments)
