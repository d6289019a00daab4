"""The calls of a reply: each is answered once, whatever becomes of the tool."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import pytest

from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from app_server.core.tools.runtime import CallItem, CallRun, ToolRuntime, as_call
from protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    LocalShellCall,
    LocalShellExec,
    LocalShellStatus,
    MessageItem,
    ResponseItem,
)
from tests.unit.tools.conftest import MakeScene


@dataclass
class Scripted:
    """A tool that does what the test wants."""

    body: Callable[[], Awaitable[ToolOutput]]
    name: str = "tool"
    parallel: bool = True
    calls: list[ToolCall] = field(default_factory=list)

    def spec(self) -> ToolSpec:
        return FunctionTool(name=self.name, description="", parameters={"type": "object"})

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        self.calls.append(call)
        return await self.body()


async def fine() -> ToolOutput:
    return text_output("fine")


def call(call_id: str, name: str = "tool") -> FunctionCall:
    return FunctionCall(call_id=call_id, name=name, arguments="{}")


def runtime(scene: MakeScene, tool: Scripted) -> ToolRuntime:
    return ToolRuntime({tool.name: tool}, scene().turn)


async def answers(scene: MakeScene, tool: Scripted, *items: CallItem) -> list[list[ResponseItem]]:
    """What the model is told of each call, without the call itself."""
    calls = runtime(scene, tool)
    async with anyio.create_task_group() as group:
        runs = [calls.start(item, group) for item in items]
    return [run.items(0.0)[1:] for run in runs]


def text(item: ResponseItem) -> str:
    assert isinstance(item, FunctionCallOutput)
    return item.output.content


async def test_a_call_is_followed_by_its_output(scene: MakeScene) -> None:
    ((output,),) = await answers(scene, Scripted(fine), call("a"))
    assert isinstance(output, FunctionCallOutput)
    assert (output.call_id, output.output.content, output.output.success) == ("a", "fine", True)


async def test_a_custom_call_has_an_output_of_its_own_kind(scene: MakeScene) -> None:
    tool = Scripted(fine)
    ((output,),) = await answers(scene, tool, CustomToolCall(call_id="a", name="tool", input="free text"))
    assert output == CustomToolCallOutput(call_id="a", output="fine")
    assert tool.calls == [ToolCall("a", "tool", "free text", custom=True)]


async def test_an_unknown_tool_is_reported(scene: MakeScene) -> None:
    ((output,),) = await answers(scene, Scripted(fine), call("a", "x" * 1000))
    assert text(output) == f"unsupported call: {'x' * 200}"


async def test_an_id_that_is_in_use_is_not_run_a_second_time(scene: MakeScene) -> None:
    tool = Scripted(fine)
    (first,), (second,) = await answers(scene, tool, call("a"), call("a"))
    assert len(tool.calls) == 1
    assert text(first) == "fine"
    assert text(second) == "call id a is in use by a call that is still running"


async def test_an_id_is_free_again_once_its_call_has_ended(scene: MakeScene) -> None:
    tool = Scripted(fine)
    calls = runtime(scene, tool)
    for _ in range(2):
        async with anyio.create_task_group() as group:
            run = calls.start(call("a"), group)
        assert text(run.items(0.0)[1]) == "fine"
    assert len(tool.calls) == 2


async def test_a_failure_of_a_tool_is_reported_to_the_model(scene: MakeScene) -> None:
    async def fails() -> ToolOutput:
        raise ToolFailure("there is no such file")

    ((output,),) = await answers(scene, Scripted(fails), call("a"))
    assert isinstance(output, FunctionCallOutput)
    assert (output.output.content, output.output.success) == ("there is no such file", False)


async def test_a_bug_fails_one_call_and_is_logged(scene: MakeScene, caplog: pytest.LogCaptureFixture) -> None:
    async def breaks() -> ToolOutput:
        raise ZeroDivisionError("secret details")

    with caplog.at_level(logging.ERROR):
        ((output,),) = await answers(scene, Scripted(breaks), call("a"))
    assert text(output) == "the tool failed unexpectedly (ZeroDivisionError)"
    assert "tool tool" in caplog.text


async def test_what_was_interrupted_says_so(scene: MakeScene) -> None:
    async def waits() -> ToolOutput:
        await anyio.sleep_forever()
        raise AssertionError

    shell = Scripted(waits, name="shell")
    calls = runtime(scene, shell)
    told: list[CallRun] = []
    async with anyio.create_task_group() as group:
        run = calls.start(call("a", "shell"), group, lambda _: told.append(run))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert "aborted by user" in text(run.items(1.5)[1])
    assert told == [], "nobody was told of an end that there was not"


async def test_what_follows_an_output_comes_after_it(scene: MakeScene) -> None:
    image = MessageItem(role="user", content=())

    async def shows() -> ToolOutput:
        return ToolOutput(text_output("look").payload, (image,))

    ((output, after),) = await answers(scene, Scripted(shows), call("a"))
    assert (text(output), after) == ("look", image)


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        (LocalShellExec(command=("ls", "-l")), '{"command": ["ls", "-l"]}'),
        (
            LocalShellExec(command=("ls",), working_directory="/w", timeout_ms=5),
            '{"command": ["ls"], "workdir": "/w", "timeout_ms": 5}',
        ),
    ],
)
async def test_the_providers_own_shell_call_is_one_of_ours(action: LocalShellExec, arguments: str) -> None:
    for ids in ({"call_id": "a"}, {"id": "a"}):
        made = as_call(LocalShellCall(**ids, status=LocalShellStatus.COMPLETED, action=action))
        assert made == ToolCall("a", "local_shell", arguments, local_shell=True)
