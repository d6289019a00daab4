"""The calls of a reply, and tools of clients: each is answered once, independent of the others."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import pytest

from app_server.engine.model.catalogue import find_model
from app_server.engine.model.prompt import FunctionTool, ToolSpec
from app_server.engine.support.engine_errors import ConversationError
from app_server.engine.support.images import BROKEN
from app_server.engine.tools.client_tool import MAX_TEXT, MOST_PARTS, MOST_TOOLS, bounded, checked_tools
from app_server.engine.tools.registry import RESERVED_NAMES, build_tools
from app_server.engine.tools.runtime import CallRun, ToolRuntime, as_call
from app_server.engine.tools.tool_base import ToolCall, ToolContext, ToolFailure, ToolOutput, text_output
from app_server_protocol.encoding import Json
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.policy import TurnMode
from app_server_protocol.responses import (
    CallItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    InputImage,
    InputText,
    LocalShellCall,
    LocalShellExec,
    LocalShellStatus,
    MessageItem,
    ResponseItem,
)
from tests.engine.tools.conftest import MakeScene
from tests.support.pictures import PNG, picture_url


@dataclass
class Scripted:
    """Tool whose behaviour the test sets."""

    body: Callable[[], Awaitable[ToolOutput]]
    name: str = "tool"
    parallel: bool = True
    calls: list[ToolCall] = field(default_factory=list)

    def spec(self) -> ToolSpec:
        return FunctionTool(name=self.name, description="", parameters={"type": "object"})

    async def invoke(self, call: ToolCall, turn: ToolContext) -> ToolOutput:
        self.calls.append(call)
        return await self.body()


async def fine() -> ToolOutput:
    return text_output("fine")


def call(call_id: str, name: str = "tool") -> FunctionCall:
    return FunctionCall(call_id=call_id, name=name, arguments="{}")


def runtime(scene: MakeScene, tool: Scripted) -> ToolRuntime:
    return ToolRuntime({tool.name: tool}, scene().turn)


async def answers(scene: MakeScene, tool: Scripted, *items: CallItem) -> list[list[ResponseItem]]:
    """Return the outputs for the model of each call, without the call itself."""
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


SCHEMA: Json = {"type": "object", "properties": {"id": {"type": "string"}}}
PICTURE = picture_url(PNG)


def tool(name: str = "lookup", namespace: str | None = None, schema: Json = SCHEMA) -> ClientTool:
    return ClientTool(name=name, namespace=namespace, description="d", input_schema=schema)


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ([tool("")], "must not be empty"),
        ([tool("a b")], "must match"),
        ([tool("é")], "must match"),
        ([tool("a\n")], "must match"),
        ([tool("a", "b c")], "namespace must match"),
        ([tool("a" * 129)], "at most 128"),
        ([tool("shell")], "reserved"),
        ([tool("apply_patch")], "reserved"),
        ([tool("mcp__x__y")], "reserved"),
        ([tool("y", "mcp__x")], "reserved"),
        ([tool(), tool()], "duplicate"),
        ([tool("b", "a"), tool("a__b")], "duplicate"),
        ([tool(schema=5)], "schema"),
        ([tool(schema={"type": "array"})], "schema"),
        ([tool(schema={"$ref": "#/nowhere"})], "schema"),
        ([tool(f"t{n}") for n in range(MOST_TOOLS + 1)], "more than"),
        ([ClientTool(name="a", description="x" * 200_000, input_schema=SCHEMA)], "descriptions"),
    ],
)
def test_what_no_model_could_be_offered_is_refused(tools: list[ClientTool], why: str) -> None:
    with pytest.raises(ConversationError, match=why):
        checked_tools(tools, RESERVED_NAMES)


async def test_a_tool_of_a_client_may_take_the_place_of_one_that_only_reads(scene: MakeScene) -> None:
    config, family = scene().turn.config, find_model("some-model")
    brought = checked_tools([tool("read_file"), tool("find", "kit"), tool()], RESERVED_NAMES)
    names = [each.name for each in build_tools(config, family, None, client_tools=brought).offered]
    assert names[-3:] == ["read_file", "kit__find", "lookup"]
    assert len(names) == len(set(names))


async def test_the_user_is_asked_in_plan_mode_only(scene: MakeScene) -> None:
    config, family = scene().turn.config, find_model("some-model")
    offered = {
        mode: {each.name for each in build_tools(config, family, None, mode=mode).offered}
        for mode in TurnMode
    }
    assert offered[TurnMode.PLAN] - offered[TurnMode.DEFAULT] == {"request_user_input"}


def test_what_is_too_long_is_cut_with_a_note() -> None:
    first, second = bounded((InputText(text="a" * (MAX_TEXT + 1)), InputText(text="b")))
    assert isinstance(first, InputText)
    assert first.text.endswith(f"[cut here: the text had {MAX_TEXT + 1} characters]")
    assert isinstance(second, InputText)
    assert second.text.startswith("\n[cut here")
    assert len(bounded((InputText(text=""),) * (MOST_PARTS + 9))) == MOST_PARTS + 1


@pytest.mark.parametrize("address", ["file:///etc/passwd", "/etc/passwd", "data:text/plain;base64,aaaa", ""])
def test_an_address_that_is_no_picture_is_left_out(address: str) -> None:
    [note] = bounded((InputImage(image_url=address),))
    assert isinstance(note, InputText)
    assert "left out" in note.text
    broken = InputImage(image_url=PICTURE[:-8])
    note = InputText(text=f"[an image was left out: {BROKEN}]")
    assert bounded((InputImage(image_url=PICTURE), broken)) == (InputImage(image_url=PICTURE), note)
