"""The scene with a runner that really runs."""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from app_server.core.exec.runner import CommandRunner
from app_server.core.tools.contract import Tool, ToolCall
from app_server.core.tools.registry import TOOLS
from protocol.policy import AskForApproval, DangerFullAccess, ReviewDecision, SandboxPolicy
from protocol.structs import Json, replace
from tests.unit.tools.conftest import MakeScene, Scene

MakeLive = Callable[..., Scene]


@pytest.fixture
async def live(scene: MakeScene, tmp_path: object) -> AsyncIterator[MakeLive]:
    """`live(approval, sandbox, answers)`; what was opened in it is ended at the end."""
    home = os.path.join(str(tmp_path), "home")
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    runner = CommandRunner(python=sys.executable, home=home, tmpdir=None, environment=environment)
    made: list[Scene] = []

    def make(
        approval: AskForApproval = AskForApproval.NEVER,
        sandbox: SandboxPolicy | None = None,
        answers: list[ReviewDecision] | None = None,
    ) -> Scene:
        one = scene(approval, sandbox or DangerFullAccess(), answers)
        one.turn.commands.runner = runner
        one.turn.sources = replace(one.turn.sources, clock=anyio.current_time)
        made.append(one)
        return one

    async with runner:
        yield make
        for one in made:
            await one.turn.commands.terminals.close()


def builtin(name: str) -> Tool:
    return next(tool for tool in TOOLS if tool.name == name)


async def run(tool: Tool, scene: Scene, call_id: str = "c1", **arguments: Json) -> str:
    """What the model is told. Raises ToolFailure."""
    output = await tool.invoke(ToolCall(call_id, tool.name, json.dumps(arguments)), scene.turn)
    return output.payload.content
