"""A turn without a session: a runner that runs nothing, or one that really runs; a user who answers from a list."""

import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import anyio
import pytest

from app_server.engine.approvals.broker import ApprovalBroker
from app_server.engine.approvals.consent import ApprovalMemory
from app_server.engine.client_context import ActiveClient
from app_server.engine.config.config_values import SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult, OnOutput
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.exec.launcher_process import LauncherProcess
from app_server.engine.sandbox.exec.probe import SandboxBackend
from app_server.engine.sandbox.plan import SandboxState
from app_server.engine.tools.registry import TOOLS
from app_server.engine.tools.terminals import Terminals
from app_server.engine.tools.tool_base import (
    ApprovalServices,
    ClockAndIds,
    CommandServices,
    Tool,
    ToolCall,
    ToolContext,
    TurnDiffTracker,
)
from app_server.engine.turn.emitter import TurnEmitter
from app_server.server.apis.v1.v1_adapter import ConversationAdapter
from app_server.server.conversations.live_turn import LiveTurn
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import CommandOutput, EngineEvent, SessionEvent
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.engine.questions import CommandApprovalQuestion, PatchApprovalQuestion
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.events.command_events import ExecCommandOutputDeltaEvent
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    ReasoningSummary,
    ReviewDecision,
    SandboxPolicy,
    WorkspaceWrite,
)
from app_server_protocol.values import replace
from tests.support.adapter_messages import lines_of
from tests.support.callers import some_caller
from tests.support.event_sink import EventSink

DENIED = ExecResult(
    exit_code=1, stdout=b"", stderr=b"no: Permission denied", aggregated=b"no: Permission denied", duration_s=0.1,
    denied=True,
)  # fmt: skip


def ran(output: bytes = b"", code: int = 0) -> ExecResult:
    return ExecResult(exit_code=code, stdout=output, stderr=b"", aggregated=output, duration_s=0.1)


def program_in(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


class ScriptedSandbox(SandboxBackend):
    """Sandbox with the level that the test sets."""

    scripted = SandboxState("full")

    async def state(self) -> SandboxState:
        return self.scripted


ENVIRONMENT = {"PATH": "/usr/bin", "MY_API_KEY": "sentinel"}


class ScriptedRunner(CommandRunner):
    """Runner that plans like the real one. The results of commands come from a list; after that every command
    succeeds.
    """

    results: list[ExecResult | Exception]
    asked: list[CommandSpec]
    sandbox: ScriptedSandbox
    witness: Callable[[CommandSpec], None]
    """Function that checks the world while a command would run."""

    def __init__(self, home: Path) -> None:
        super().__init__("python", str(home), ENVIRONMENT)
        self.results, self.asked = [], []
        self.sandbox = ScriptedSandbox(LauncherProcess("python", {}), "python", str(home), "linux")
        self.witness = lambda spec: None

    async def run(self, spec: CommandSpec, on_output: OnOutput) -> ExecResult:
        self.asked.append(spec)
        self.witness(spec)
        result = self.results.pop(0) if self.results else ran()
        if isinstance(result, Exception):
            raise result
        if result.stdout:
            on_output(ExecOutputStream.STDOUT, result.stdout)
        return result

    @property
    def confined(self) -> list[bool]:
        """Whether each command that was run was in the sandbox."""
        return [spec.sandbox is not None for spec in self.asked]


@dataclass
class Scene:
    """One turn with all its emitted events: `events` are the engine's, `said` the conversation API's."""

    root: Path
    runner: ScriptedRunner
    turn: ToolContext
    said: list[EventMsg]
    events: list[EngineEvent]
    answers: list[ReviewDecision] = field(default_factory=list)
    """Answers of the user, in order."""
    while_asked: Callable[[], None] = lambda: None
    """Function that is called while the user reads the question."""

    @property
    def ws(self) -> Path:
        return self.root / "ws"

    def kinds(self) -> list[str]:
        return [event.type for event in self.said]

    def questions(self) -> list[CommandApprovalQuestion | PatchApprovalQuestion]:
        kinds = (CommandApprovalQuestion, PatchApprovalQuestion)
        return [event for event in self.events if isinstance(event, kinds)]


MakeScene = Callable[..., Scene]


@pytest.fixture
def scene(tmp_path: Path) -> MakeScene:
    for name in ("home", "ws", "outside"):
        (tmp_path / name).mkdir()

    def make(
        approval: AskForApproval = AskForApproval.ON_REQUEST,
        sandbox: SandboxPolicy | None = None,
        answers: list[ReviewDecision] | None = None,
    ) -> Scene:
        policy = sandbox or WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
        said: list[EventMsg] = []
        events: list[EngineEvent] = []
        broker, runner = ApprovalBroker(), ScriptedRunner(tmp_path / "home")
        config = load_config(SettingsSource(home=tmp_path / "home", cwd=tmp_path / "ws"))

        adapter, live = ConversationAdapter("01a1fc2e-450f-7ed0-9b52-64722a96c4dc"), LiveTurn()

        def emit(event: EngineEvent) -> None:
            events.append(event)
            for each in live.take(SessionEvent("1", "turn-1", event)):
                said.extend(adapter.event_messages(each, live))
                if isinstance(event, CommandOutput):
                    for line in lines_of(adapter.messages(each, live, raw=False)):
                        shown = json.loads(line)["params"]["msg"]
                        said.append(
                            ExecCommandOutputDeltaEvent(
                                call_id=shown["call_id"], stream=event.stream, chunk=shown["chunk"]
                            )
                        )
            if isinstance(event, CommandApprovalQuestion | PatchApprovalQuestion):
                assert broker.is_open(event.call_id)  # registered before the question is sent
                made.while_asked()
                broker.resolve(event.call_id, made.answers.pop(0))

        async def store() -> None:
            pass

        turn = ToolContext(
            id="1",
            settings=ThreadSettings(
                cwd=str(tmp_path / "ws"),
                approval_policy=approval,
                sandbox_policy=policy,
                model="m",
                effort=None,
                summary=ReasoningSummary.AUTO,
            ),
            config=config,
            items=TurnEmitter(EventSink(lambda each: emit(each.event)), "1", "turn-1", lambda: 0.0),
            commands=CommandServices(
                runner, runner.roots.open(), Terminals(), "/bin/sh", ActiveClient(some_caller(), ENVIRONMENT)
            ),
            approvals=ApprovalServices(broker, ApprovalMemory(), store),
            mcp=cast("McpManager", None),  # no tool here uses servers
            diffs=TurnDiffTracker(),
            sources=ClockAndIds(
                clock=lambda: 0.0,
                now=lambda: datetime.fromtimestamp(0, UTC),
                new_id=lambda: str(uuid.uuid4()),
                new_turn_id=lambda: str(uuid.uuid4()),
                wall_clock=lambda: 0.0,
            ),
        )
        made = Scene(tmp_path, runner, turn, said, events, list(answers or []))
        return made

    return make


MakeLive = Callable[..., Scene]


@pytest.fixture
async def live(scene: MakeScene, tmp_path: object) -> AsyncIterator[MakeLive]:
    """Yield `live(approval, sandbox, answers)`. The turns that it opened are ended afterwards."""
    home = os.path.join(str(tmp_path), "home")
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    runner = CommandRunner(python=sys.executable, home=home, environment=environment)
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
    """Call a tool; return the text for the model. Raises ToolFailure."""
    output = await tool.invoke(ToolCall(call_id, tool.name, json.dumps(arguments)), scene.turn)
    return output.payload.content
